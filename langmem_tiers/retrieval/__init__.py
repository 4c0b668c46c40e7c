"""Finding what was said: by its words, its meaning, its neighbours, its speaker and its time."""
