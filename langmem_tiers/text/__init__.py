"""Text analysis: tokens, sentences, facts, times, names and URLs."""
