"""Pictures of what memory does, drawn with matplotlib (``pip install 'langmem-tiers[notebook]'``).

::

    from langmem_tiers.display import plots

    plots.scores(namespace.recall("Who replaces Stripe?"))

Each function draws into the axes that it is handed, or into a figure of its own, and returns the axes. A notebook
shows those as a picture where they are the last line of a cell; ``axes.figure.savefig(path)`` writes a file. Nothing
global is touched: no pyplot, no settings. Colours are told apart with any kind of sight, and the style in force
(``matplotlib.style``) decides whether the ground is light or dark. Nothing of matplotlib is imported before the
first picture.
"""

from langmem_tiers.display.plots.contexts import budget, usage
from langmem_tiers.display.plots.conversations import conversation
from langmem_tiers.display.plots.episodes import arc
from langmem_tiers.display.plots.recall import scores
from langmem_tiers.display.plots.relations import relations
from langmem_tiers.display.plots.timelines import decay, tuning

__all__ = ["arc", "budget", "conversation", "decay", "relations", "scores", "tuning", "usage"]
