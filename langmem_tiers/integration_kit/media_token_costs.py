"""What images, audio, video and files take of a prompt, by rough published figures.

The length of their data says nothing: a provider counts pixels, seconds and pages.
"""

from __future__ import annotations

IMAGE_TOKENS = 765
"""OpenAI's figure for 1024 by 1024 pixels in high detail: four tiles of 170, and 85."""
SMALL_IMAGE_TOKENS = 85
"""OpenAI's figure for an image in low detail."""
AUDIO_TOKENS = 960
"""Half a minute by Gemini's 32 tokens a second."""
VIDEO_TOKENS = 2_900
"""Ten seconds by Gemini's 258 tokens a frame, one a second, and 32 for the sound."""
FILE_TOKENS = 2_250
"""A page by Anthropic's 1,500 to 3,000 tokens for one of a PDF."""
