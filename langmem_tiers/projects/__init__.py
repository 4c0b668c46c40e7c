"""Projects: MemorySystem, one object for a project's conversations."""
