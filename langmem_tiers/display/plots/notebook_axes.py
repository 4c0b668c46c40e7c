"""Axes that a notebook shows as a picture; the only module that imports matplotlib as it loads."""

from __future__ import annotations

from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["NotebookAxes", "create_axes"]


class NotebookAxes(Axes):
    """Axes of a figure that pyplot does not know: they show themselves."""

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.get_figure(root=True).savefig(out, format="png")  # type: ignore[union-attr]  # they are in one
        return out.getvalue()


def create_axes(width: float, height: float) -> Axes:
    """Axes in a figure of their own, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot(axes_class=NotebookAxes)
