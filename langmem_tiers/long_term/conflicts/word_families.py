"""Word families: words derived from the same word, and words that often replace each other in a sentence.

They do not give two words one key. They only match the words that are left over after all others are matched.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from langmem_tiers.long_term.conflicts.inflection import stem
from langmem_tiers.long_term.conflicts.vocabulary import are_opposite, get_canonical_key

_GROUPS = """
afraid fear fearful scared phobia terrified dread; attend take go join visit frequent; class lesson course
training workshop; wipe clear empty purge reset clean delete flush truncate; crash fail break choke error;
start startup boot launch begin; shop buy shopping purchase; exam test examination; surgery operation
procedure; instructor teacher trainer coach tutor; teach instruct tutor coach train; lawyer attorney
solicitor; screen display monitor; phone call ring dial; look search hunt seek; mind care look watch;
illness disease sickness condition disorder; suffer own get experience; topic subject theme about; thesis
dissertation; essay paper; comment remark note feedback; point raise mention flag; security safety; buy
get acquire; tell inform notify; like love enjoy; want prefer; responsible handle manage; responsibility
handle; answer reply response; keep stay remain hold; help assistance support aid; reach contact; work
function; job position role post; salary wage pay income earnings; spouse partner; wife spouse; husband
spouse; trip journey travel voyage tour; house home place; flat place; fix repair solve; error bug defect
problem fault issue; speak talk; use rely; use work; use run; use write; run host deploy; run operate
manage; manage lead head run oversee direct; create make build produce; write make draft compose; meal
food dish; meeting call session; minimum least threshold; maximum most limit threshold; threshold limit;
often regularly; rarely seldom infrequently; large big huge; ask request; ask consult; show present
display; rest relax; car vehicle; bike bicycle cycle; commute travel ride drive go; doctor gp physician;
medicine drug pill medication tablet; dose dosage; baby infant newborn; pregnant expecting; wedding marry
marriage; marry wedding; birthday bear birth; die death dead; stroll walk; walk foot; jog run; swim
swimming; sick ill unwell; headache migraine; tired exhausted weary fatigued; sad unhappy depressed; glad
happy pleased delighted; angry upset annoyed; stressed anxious worried nervous; calm relaxed; funny
amusing; strange weird odd; ugly unattractive; pretty beautiful; client customer; employee staff worker;
team group crew squad; director head chief; founder creator; goal aim objective target; plan intend; plan
schedule; plan roadmap; idea concept notion; reason cause; result outcome; advantage benefit; task ticket
issue; request requirement; rule policy guideline; guide manual handbook; documentation docs manual;
version release; branch fork; folder directory; file document; script program; machine server computer
host; laptop notebook; message text; mail letter; photo picture image; song track; band group; movie film;
show series; game match; book novel; store shop; mall shop; supermarket grocery; grocery food; town city;
village hamlet; street road; garden yard; basement cellar; toilet bathroom; dinner supper; lunch luncheon;
sweet dessert; cook prepare make; drink consume; eat consume; earn make; pay cost spend charge; cost
charge price; buy pay; sell offer; rent lease hire; borrow lend; save put; donate give; give hand; hold
own get receive; turn become; pregnant expect; send ship mail forward; receive get; bring take carry;
return give send; begin start; end finish; finish complete; cancel drop; delay postpone; change update
edit; add include; contain include; remove drop; check review inspect; review examine; test check; approve
accept agree; reject refuse; allow permit; forbid ban; require need; must need; know understand; believe
think; remember recall; forget overlook; learn study; study read; student pupil; school academy;
university college; degree diploma; graduate finish; pass clear; win beat; lose misplace; find discover
locate; hide conceal; protect guard secure; attack assault; hurt injure harm; heal recover; recover
improve; grow raise; grow increase; shrink decrease; rise increase; fall drop decrease; big tall; quick
fast; noise sound; smell scent odor; color shade; warm hot; cool cold; damp wet; dirty filthy; clean tidy;
broken defective faulty damaged; full complete; empty blank; right correct; wrong false; main central;
first initial; last final; new fresh recent; old elderly; young youthful; remote distributed; childhood
youth; dad father; relative family; roommate flatmate housemate; neighbor neighbour; mate friend; pal
friend; boyfriend partner; girlfriend partner; colleague teammate; boss manager; landlord owner; vacation
holiday; gym fitness; exercise training workout; yoga pilates; hike trek; hobby pastime interest; music
tune; instrument tool; tool utility; library package module; framework library; function method; variable
parameter; value setting; setting option configuration; default standard; password passcode; login signin;
log record; record track; monitor observe watch; alert notify warn; deploy release; merge integrate;
commit push; build compile; crash outage; outage downtime; traffic load; slow sluggish; speed pace; memory
ram; disk drive; network connection; database store; table sheet; column field; row record; key
identifier; user customer; person people; everyone all; anybody all; nobody nothing; price fee rate; fee
charge; money cash; budget funds; debt loan; loan mortgage; bill invoice; contract agreement; sign
execute; quit resign leave stop; leave depart exit; arrive come; stay live; live stay; move relocate;
visit see; meet see; date see; couple pair; talk presentation lecture; present show; speech talk; party
celebration; celebrate party; gift present; ceremony event; event occasion; place location venue; area
region; distance way; way method; type kind sort; part piece; amount quantity; number count; period
duration time; trial period; length duration; deadline limit; tidy clean; laundry washing; chores
housework; lawn grass; plant flower; pet animal
"""
_IRREGULAR_PAIRS = """
choice choose; decision decide; growth grow; death die; birth bear; flight fly; sale sell; thought think;
speech speak; belief believe; proof prove; loss lose; marriage marry; sight see; gift give; song sing;
departure depart; arrival arrive; failure fail; success succeed; analysis analyze; emphasis emphasize;
diagnosis diagnose; pressure press; injection inject; permission permit; admission admit; submission
submit; conclusion conclude; inclusion include; exclusion exclude; explanation explain; description
describe; subscription subscribe; prescription prescribe; reception receive; production produce; reduction
reduce; introduction introduce; solution solve; response respond; defense defend; advice advise; practice
practise; student study; resident reside; residence reside; preference prefer; reference refer; signature
sign; knowledge know; behavior behave; hatred hate; freedom free; strength strong; length long; width
wide; depth deep; height tall; weight weigh; heavy weigh; warmth warm; truth true; youth young; health
healthy; anger angry; hunger hungry; thirst thirsty; diabetes diabet; diabetic diabet; asthmatic asthma;
pregnancy pregnant; vacancy vacant; privacy private; electricity electric; musician music; vegetarianism
vegetarian; smoker smoke; driver drive; biker bike; cyclist cycle; pianist piano; guitarist guitar;
violinist violin; drummer drum; user use; coder code; owner own; payment pay; sober sobriety; beginner
begin; runner run; swimmer swim; winner win; planner plan; scanner scan; shopper shop; shopping shop;
director direct; boss manage; retirement retire; resignation resign; commuter commute; membership member;
ownership own; partnership partner; engagement engage; fiance engage; widow widowed; purchase buy; renewal
renew; removal remove; refusal refuse; proposal propose; approval approve; denial deny; trial try; burial
bury; survival survive; rehearsal rehearse; storage store; usage use; coverage cover; breakage break; job
work; retention retain; wedding marry; registration register; resident live; cofounder cofound; founder
establish; foundation establish
"""


def _parse_irregular_pairs() -> dict[str, str]:
    return dict(pair.split() for pair in _IRREGULAR_PAIRS.split(";") if pair.strip())


GROUPS: Final = tuple(tuple(group.split()) for group in _GROUPS.split(";"))
IRREGULAR: Final = _parse_irregular_pairs()
"""Irregular words of a family."""


_SUFFIXES: Final = tuple(
    sorted(
        """
        ations ation itions ition ions ion ings ing ments ment ness ances ance ences ence ancy ency als al ers er
        ors or ists ist ants ant ents ent ives ive ables able ibles ible ful less ships ship ity ies ous ics ic ly
        age ages ag ed es s th ism y e ee at ate ities ure ur
        """.split(),
        key=lambda suffix: -len(suffix),
    )
)
_IRREGULAR: Final = {stem(word): stem(base) for word, base in IRREGULAR.items()}
_SHORTEST: Final = 4
"""Minimum length of a root in letters. Shorter roots are shared by unrelated words."""
_CUT: Final = 5
"""Minimum length in letters of an abbreviation by truncation."""
_ENDING: Final = re.compile(r"(?:[aeiy]|(?P<twice>[bdgklmnprt])(?P=twice))\Z")


@lru_cache(maxsize=20_000)
def find_roots(word: str) -> frozenset[str]:
    """Return the possible roots of a word, without derivational endings."""
    word = _IRREGULAR.get(word, word)
    found = {_strip_ending(word)}
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST:
            found.add(_strip_ending(word[: -len(suffix)]))
            break
    return frozenset(found)


def _strip_ending(word: str) -> str:
    match = _ENDING.search(word)
    return word[:-1] if match and len(word) > _SHORTEST else word


@lru_cache(maxsize=20_000)
def _groups_of(key: str) -> frozenset[int]:
    return GROUPS_BY_KEY.get(key, frozenset())


def _index_groups_by_key() -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for number, group in enumerate(GROUPS):
        for word in group:
            key = get_canonical_key(word) if " " not in word else word
            found.setdefault(key or word, set()).add(number)
    return {key: frozenset(numbers) for key, numbers in found.items()}


GROUPS_BY_KEY: Final = _index_groups_by_key()
"""Groups of similar words by key."""


@lru_cache(maxsize=50_000)
def are_related_words(one: str, other: str) -> bool:
    """Return True if two keys belong to one family, or often replace each other."""
    if are_opposite(one, other):
        return False
    return bool(_groups_of(one) & _groups_of(other)) or are_derived(one, other) or _is_truncation(one, other)


def _is_truncation(one: str, other: str) -> bool:
    # "retro" for "retrospective"
    short, long = sorted((one, other), key=len)
    return len(short) >= _CUT and long.startswith(short) and short.isalpha()


@lru_cache(maxsize=50_000)
def are_derived(one: str, other: str) -> bool:
    """Return True if two keys belong to one family: "allergy" and "allergic", "approve" and "approval"."""
    return bool(find_roots(one) & find_roots(other)) and one.isalpha() and other.isalpha()
