"""The mark on what memory puts into a prompt, as LangChain's own middleware marks what it adds."""

SOURCE = "langmem_tiers"
MARK = {"lc_source": SOURCE}
"""In the ``additional_kwargs`` of a message, or in the metadata of a call."""
