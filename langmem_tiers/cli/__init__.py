"""The ``langmem-tiers`` command."""


def main() -> None:
    """Run the command line."""
    from langmem_tiers.cli.app import app  # noqa: PLC0415 - typer and rich load when they are used

    app()
