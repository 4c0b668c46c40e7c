"""Words that decide whether a place takes one value: verbs of one thing, verbs of several, nouns of one."""

from __future__ import annotations

from typing import Final

from langmem_tiers.scoring.statements.atoms import SUBJECT
from langmem_tiers.scoring.statements.vocabulary import keys_of

MULTI: Final = keys_of(
    """
    like know speak visit buy include support contain meet see read watch play own attend interested want
    need love eat drink consume cook learn study try collect offer sell recommend follow accept add invite
    help teach talk call send receive order test review mention
    """
)
"""Verbs that hold of several things at once."""
SHARED: Final = keys_of(
    """
    know like support include visit speak attend see read contain accept interested sell offer allow need
    """
)
"""Those of them whose passive holds of several, too."""
PLANS: Final = keys_of(
    """
    want plan hope intend consider think try expect ask believe recommend suggest wish propose discuss evaluate
    explore investigate assess trial prototype experiment lean compare dream aim contemplate debate
    """
)
"""Verbs of what is not so, or not yet."""
TIMED: Final = keys_of(
    """
    be happen start end leave depart arrive open close expire launch release land fly set schedule wake
    sleep birthday deadline establish die marry graduate renew return deliver ship retire join run last
    continue valid expiration
    """
)
"""Verbs whose time is a property of what they tell."""
CHOICES: Final = keys_of("choose use switch migrate standardize adopt pick") | {"be"}
SINGLE_NOUNS: Final = keys_of(
    """
    name color status owner manager lead ceo cto cfo boss president director host address location venue
    capital title role language format database framework editor license deadline priority size theme
    timezone currency employer wife husband spouse partner hometown birthplace nationality phone email
    branch region provider dentist doctor landlord maintainer assignee reviewer author winner diet job
    tool stack platform registry domain url port path model destination goal password username nickname
    codename breed brand gate seat terminal airline hotel code style strategy approach policy method
    encoding engine backend frontend cache queue vendor supplier bank insurance school theme font layout
    mode method protocol algorithm convention unit package version captain coach chair secretary
    """
)
"""Nouns of which there is one at a time."""
DEVICES: Final = keys_of("phone laptop computer tablet watch camera car printer console editor browser")
"""Things of which most people use one."""
SINGLE_WORDS: Final = keys_of(
    "favorite default main current official preferred only best chosen final standard target top latest actual"
)
RELATIONS: Final = {
    "live": "in at", "locate": "in at on", "work": "at for as in", "report": "to", "marry": "to object",
    "birthday": "in on at", "name": "object complement", "belong": "to", "study": "at", "join": "object",
    "graduat": "from", "engag": "to", "move": "to", "stay": "at in", "lead": "first",
    "head": "first", "sit": "in at", "come": "from", "grow": "in", "grow up": "in on at", "bank": "with",
    "assign": "to",
}  # fmt: skip
"""Verbs that hold of one thing at a time, with the roles that it has."""
CLASSED: Final = keys_of(
    """host run write build store deploy license implement code serve track manage monitor hold keep record draw edit
    take"""
)
"""Verbs that hold of one member of a class at a time."""
SCOPE_ROLES = frozenset("in on for at during".split())
PASSIVE_ROLES = frozenset({SUBJECT, "with", "on", "via", "to", "under", "at", "in"})
