"""Estimated tokens of images, audio, video and files in a prompt, from published provider figures.

The size of the data is not used: providers count pixels, seconds and pages.
"""

from __future__ import annotations

IMAGE_TOKENS = 765
"""OpenAI, 1024 x 1024 pixels in high detail: four tiles of 170 tokens plus 85."""
SMALL_IMAGE_TOKENS = 85
"""OpenAI, an image in low detail."""
AUDIO_TOKENS = 960
"""Gemini, 30 seconds at 32 tokens per second."""
VIDEO_TOKENS = 2_900
"""Gemini, 10 seconds at one frame (258 tokens) per second, plus 32 tokens per second for sound."""
FILE_TOKENS = 2_250
"""Anthropic, one page of a PDF: the middle of 1,500 to 3,000 tokens."""
