"""Memory for LangChain and LangGraph. Nothing is exported yet; see "What works today" in the README."""

__all__: list[str] = []
