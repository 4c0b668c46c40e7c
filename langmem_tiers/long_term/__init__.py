"""Long-term entries: storage, conflicts between facts, relations, decay, consolidation."""
