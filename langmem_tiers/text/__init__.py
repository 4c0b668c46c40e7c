"""Reading text: tokens, sentences, facts, times, names, addresses."""
