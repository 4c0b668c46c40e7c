"""Items: JSON values under a namespace and a key, as LangGraph stores use them."""
