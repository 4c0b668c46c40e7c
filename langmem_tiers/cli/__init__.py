"""The ``langmem-tiers`` command."""

import os
import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Python sets a standard stream to None if the calling process closed it; typer and rich need a file.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open until exit
    try:
        # Imported inside the try block: loading typer and rich takes long enough for a Ctrl-C to arrive.
        from langmem_tiers.cli.app import app  # noqa: PLC0415 - loaded on first use
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    app()
