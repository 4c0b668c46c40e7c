"""Memory for LlamaIndex. Nothing is exported yet; see "What works today" in the README."""

__all__: list[str] = []
