"""What a new entry does to existing ones: duplicate, contradiction, or neither."""
