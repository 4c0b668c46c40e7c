"""Type aliases of the arrays that ranking computes with."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]


Rows: TypeAlias = NDArray[np.int64]


Flags: TypeAlias = NDArray[np.bool_]
