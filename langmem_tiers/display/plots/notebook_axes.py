"""Axes that notebooks show as an image. The only module that imports matplotlib at import time."""

from __future__ import annotations

from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["NotebookAxes", "create_axes"]


class NotebookAxes(Axes):
    """Axes of a figure outside pyplot, which renders itself in notebooks."""

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.get_figure(root=True).savefig(out, format="png")  # type: ignore[union-attr]  # they always have a figure
        return out.getvalue()


def create_axes(width: float, height: float) -> Axes:
    """Create axes in a new figure; sizes are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot(axes_class=NotebookAxes)
