"""Compression of messages: fewer tokens, the same facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.compression.compressor import CompressedText, Compressor
    from langmem_tiers.compression.fact_finder import FactFinder
    from langmem_tiers.compression.layout import Summary
    from langmem_tiers.compression.summarizer import Summarizer, SummaryReport
    from langmem_tiers.compression.tool_output.compressor import ContextCompressor
    from langmem_tiers.compression.tool_output.models import CompressedExtraction, CompressionContentType
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".compressor": "CompressedText Compressor",
            ".fact_finder": "FactFinder",
            ".layout": "Summary",
            ".summarizer": "Summarizer SummaryReport",
            ".tool_output.compressor": "ContextCompressor",
            ".tool_output.models": "CompressedExtraction CompressionContentType",
        },
    )

__all__ = [
    "CompressedExtraction",
    "CompressedText",
    "CompressionContentType",
    "Compressor",
    "ContextCompressor",
    "FactFinder",
    "Summarizer",
    "Summary",
    "SummaryReport",
]
