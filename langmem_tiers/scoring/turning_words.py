"""Words that turn the meaning of a sentence around when they change."""

from __future__ import annotations

NUMBER_WORDS = frozenset(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
    hundred thousand million billion dozen half third quarter once twice first second fourth fifth
    sixth seventh eighth ninth tenth last next single double both
    """.split()
)
"""Numbers in words."""

DATE_WORDS = frozenset(
    """
    january february march april may june july august september october november december jan feb
    mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday
    sunday mon tue wed thu fri sat sun today tomorrow yesterday tonight morning noon afternoon
    evening midnight am pm daily weekly monthly yearly hourly second seconds minute minutes hour
    hours day days week weeks month months year years
    """.split()
)
"""Days, months and times."""

OPPOSITES = frozenset(
    """
    yes no true false on off enable enabled disable disabled allow allowed deny denied accept
    accepted reject rejected pass passed fail failed fails succeed succeeded success successful
    before after above below over under more less fewer most least always only all any some every
    increase increased decrease decreased add added remove removed start started stop stopped open
    opened close closed with left right up down in out from to max min maximum minimum old new
    """.split()
)
"""Words that have an opposite."""

NEGATIONS = frozenset(
    """
    not never none nothing nobody nowhere neither nor cannot without instead rather unless except
    hardly dont doesnt didnt cant wont isnt arent wasnt shouldnt
    """.split()
)
"""Words that deny what follows."""
