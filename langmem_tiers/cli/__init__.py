"""The ``langmem-tiers`` command."""

import os
import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever called
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as it runs
    try:
        from langmem_tiers.cli.app import app  # noqa: PLC0415 - typer and rich load when they are used
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    app()
