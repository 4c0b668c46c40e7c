"""``python -m langmem_tiers`` is the command line."""

from langmem_tiers.cli import main

if __name__ == "__main__":
    main()
