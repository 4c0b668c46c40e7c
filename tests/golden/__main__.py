"""Write the golden files again: ``python -m tests.golden [NAME ...]``. Read the diff before you commit it."""

import sys

from tests.golden.snapshots import SNAPSHOTS, save

for name in sys.argv[1:] or SNAPSHOTS:
    save(name)
