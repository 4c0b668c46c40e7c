"""Plots of memory contents and behavior, drawn with matplotlib (``pip install 'langmem-tiers[notebook]'``).

::

    from langmem_tiers.display import plots

    plots.scores(namespace.recall("Who replaces Stripe?"))

Each function draws into the given axes, or into a new figure, and returns the axes. A notebook shows them as an
image if they are the last line of a cell; ``axes.figure.savefig(path)`` writes a file. No global state is changed:
neither pyplot nor settings. The colors are distinguishable with any kind of color vision. The active style
(``matplotlib.style``) decides between a light and a dark background. matplotlib is imported only when the first
plot is drawn.
"""

from langmem_tiers.display.plots.contexts import budget, usage
from langmem_tiers.display.plots.episodes import arc
from langmem_tiers.display.plots.recall import scores
from langmem_tiers.display.plots.relations import relations
from langmem_tiers.display.plots.timelines import conversation, decay, tuning

__all__ = ["arc", "budget", "conversation", "decay", "relations", "scores", "tuning", "usage"]
