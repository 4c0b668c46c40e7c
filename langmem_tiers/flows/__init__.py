"""What moves through the tiers: analysis, compression under a budget, context, tuning."""
