"""Categories of things. A denied category denies each of its members, and no member is another."""

from __future__ import annotations

from typing import Final

from langmem_tiers.long_term.conflicts.vocabulary import get_canonical_key

_KINDS = """
instrument: piano guitar violin cello drum flute clarinet trumpet saxophone harp bass banjo ukulele oboe
    accordion organ viola trombone keyboard
pet: dog cat parrot hamster rabbit goldfish turtle budgie canary lizard snake puppy kitten guinea tortoise
animal: dog cat parrot hamster rabbit horse chicken hen cow sheep goat bee duck pig
sibling: brother sister
kid: son daughter
parent: mother father mom dad
relative: aunt uncle cousin niece nephew grandma grandpa brother sister son daughter mother father
sport: soccer tennis basketball football handball volleyball golf hockey rugby cricket badminton squash
    climbing judo karate rowing cycling swimming running boxing fencing
meat: beef pork chicken lamb turkey bacon ham steak sausage
seafood: fish shrimp salmon tuna crab lobster shellfish
dairy: milk cheese yogurt butter cream
fruit: apple banana orange pear grape strawberry mango cherry plum peach kiwi
vegetable: carrot potato tomato onion spinach broccoli cabbage pepper
nut: peanut almond walnut hazelnut cashew pistachio
alcohol: beer wine whiskey vodka gin rum champagne cocktail
car: volvo bmw audi toyota honda ford tesla golf fiat skoda
vehicle: car motorcycle bike truck van scooter
language: english german french spanish italian dutch polish portuguese russian chinese japanese korean
    arabic turkish swedish danish norwegian finnish greek czech hindi
room: kitchen bedroom bathroom cellar attic garage hall
furniture: desk chair table sofa bed shelf lamp rug wardrobe
job: pilot nurse teacher lawyer engineer electrician plumber carpenter chef baker farmer writer doctor
    dentist accountant designer architect driver student
music: jazz rock pop classical techno blues metal folk rap punk reggae
course: history biology physics chemistry maths medicine law economics geography
meal: breakfast lunch dinner supper brunch
body: knee arm leg back shoulder hip ankle wrist foot hand neck eye ear
weather: rain snow wind fog
person: man woman boy girl husband wife
ownership: rent deposit mortgage salary bonus tax fee budget
dimension: tall wide long deep heavy thick
part: chapter page section paragraph
device: laptop phone tablet printer camera monitor keyboard
"""


def _members() -> dict[str, frozenset[str]]:
    above: dict[str, set[str]] = {}
    for line in _KINDS.replace("\n    ", " ").strip().splitlines():
        kind, _, members = line.partition(":")
        for member in members.split():
            above.setdefault(get_canonical_key(member) or member, set()).add(get_canonical_key(kind) or kind)
    return {member: frozenset(kinds) for member, kinds in above.items()}


ABOVE: Final = _members()
"""Categories of a key."""


def are_of_one_kind(one: str, other: str) -> bool:
    """Return True if both keys have a common category: a brother is not a sister."""
    return not ABOVE.get(one, frozenset()).isdisjoint(ABOVE.get(other, frozenset()))


def kinds_of(keys: frozenset[str]) -> frozenset[str]:
    """Return the categories of the keys."""
    return frozenset(kind for key in keys for kind in ABOVE.get(key, ()))
