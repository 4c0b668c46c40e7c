"""Words that reverse the meaning of a sentence when they change."""

from __future__ import annotations

NUMBER_WORDS = frozenset(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
    hundred thousand million billion dozen half third quarter once twice first second fourth fifth
    sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth
    seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth hundredth thousandth last
    next single double both
    """.split()
)
"""Number words."""

_DATE_STEMS = frozenset(
    """
    january february march april may june july august september october november december jan feb
    mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday
    sunday mon tue tues wed weds thu thur thurs fri sat sun today tomorrow yesterday tonight morning noon afternoon
    evening midnight am pm daily weekly monthly yearly hourly second seconds minute minutes hour
    hours day days week weeks month months year years
    """.split()
)
DATE_WORDS = _DATE_STEMS | {f"{word}{end}" for word in _DATE_STEMS for end in ("s", "'s", "’s")}
"""Days, months and times, including plurals and possessives."""

OPPOSITES = frozenset(
    """
    yes true false on off enable enabled disable disabled allow allowed deny denied accept
    accepted reject rejected pass passed fail failed fails succeed succeeded success successful
    before after above below over under more less fewer most least always only all any some every
    increase increased decrease decreased add added remove removed start started stop stopped open
    opened close closed with left right up down in out from to max min maximum
    minimum plus minus enables disables allows denies accepts rejects old new
    """.split()
)
"""Words that have an opposite."""

NEGATIONS = frozenset(
    """
    no not never none nothing nobody nowhere neither nor cannot without instead rather unless except
    hardly dont doesnt didnt cant wont isnt arent wasnt shouldnt
    nicht nichts kein keine keinen keinem keiner nie niemals ohne statt nein
    ne pas jamais sans aucun aucune rien nunca jamás sin ni ningún ninguna não nem nenhum sem
    non mai senza nessuno niet geen nooit zonder inte ej aldrig utan ingen ikke aldri uden uten
    nie nigdy bez brak не нет ни никогда без
    """.split()
)
"""Negations in common languages."""
