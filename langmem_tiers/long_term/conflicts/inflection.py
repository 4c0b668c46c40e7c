"""Stemming that removes only inflection and differences of spelling, so that different words keep different stems.

``choose``, ``chose`` and ``choosing`` have one stem, and so do ``colour`` and ``color``. ``university`` and
``universe`` keep different stems; stemmers of search engines would merge them.
"""

from __future__ import annotations

import re
from functools import lru_cache

_IRREGULAR_VERBS = """
be am is are was were been being; have has had having; do does did done doing; go goes went gone going;
choose chose chosen choosing; buy bought; bring brought; think thought; teach taught; catch caught; fight
fought; begin began begun beginning; drink drank drunk; sing sang sung; swim swam swum swimming; run ran
running; write wrote written writing; drive drove driven driving; ride rode ridden riding; rise rose risen
rising; speak spoke spoken; break broke broken; take took taken taking; wake woke woken waking; give gave
given giving; get got gotten getting; forget forgot forgotten; eat ate eaten; fall fell fallen; see saw
seen; know knew known; grow grew grown; throw threw thrown; fly flew flown flies; draw drew drawn; show
shown; wear wore worn; tell told; sell sold; hold held; find found; leave left leaving; keep kept; sleep
slept; feel felt; meet met; lead led; read reads; send sent; spend spent; build built; lend lent; lose lost
losing; make made making; pay paid pays; say said says; stand stood; understand understood; sit sat sitting;
win won winning; come came coming; become became becoming; hear heard; mean meant; teach taught; hide hid
hidden hiding; stick stuck; strike struck; swear swore sworn; tear torn; bear born borne; freeze froze
frozen freezing; seek sought; sew sewn; shake shook shaken shaking; shoot shot; steal stole stolen; wind
wound; bite bitten biting; die died dying dies; lie lay lain lying; tie tied tying; use used using uses; see
seeing sees; set sets setting; put puts putting; cut cuts cutting; let lets letting; hit hits hitting; cost
costs; quit quits quitting; rely relied; live lived living lives; forbid forbade forbidden; leave leaves;
agree agreed agreeing; guarantee guaranteed; free freed; paste pasted pasting; taste tasted tasting; waste
wasted wasting; see sees; open opened opening; edit edited editing; lay laid; owe owed owing; cache caches
cached caching; ache aches aching; quote quoted quoting; route routed routing; guide guided guiding;
establish established founded founding;
"""
_IRREGULAR_NOUNS = """
child children; person people; man men; woman women; foot feet; tooth teeth; goose geese; niche niches; lens
lenses; mouse mice; knife knives; wife wives; half halves; shelf shelves; criterion criteria; datum data;
index indices indexes; vertex vertices; matrix matrices; analysis analyses; crisis crises; bus buses;
process processes; access accesses; class classes; address addresses; business businesses; status statuses;
virus viruses; gas gases; quiz quizzes; api apis; ui uis; taxi taxis; kpi kpis; emoji emojis; wiki wikis;
cli clis; ski skis; kiwi kiwis; pr prs; vm vms; id ids; db dbs; tv tvs; pc pcs; ad ads; developer devs
developers; wolf wolves; loaf loaves; hero heroes; tomato tomatoes; potato potatoes; shoe shoes; toe toes;
"""
_KEPT = frozenset(
    """
    is this its his us as was has does plus bus gas always perhaps yes news series less across thus unless
    during evening morning meeting building wedding nothing something everything anything ceiling king ring string
    spring thing wing billing pricing bring red bed need feed speed seed weed indeed hundred shed embed kubernetes
    redis aws ios https dns css js ts analysis basis crisis tennis paris james alps texas diabetes
    species physics mathematics economics besides sometimes pants jeans alias canvas bias atlas christmas
    """.split()
)
_OUR = re.compile(
    r"\b(col|fav|hon|lab|neighb|flav|hum|rum|harb|vap|vig|endeav|sav|savi|behavi|arm|od|tum|parl|cand|splend|demean"
    r"|clam|glam)our"
)
_LOGUE = re.compile(r"logu(?:e\Z|(?=es|ed|ing))()")
_GREEK = re.compile(
    r"\b(h|p|an|gyn|leuk|orthop|encyclop|arch|medi|c|f|diarrh|hom)(?:ae|oe)(?=[a-z]{3})|\b()oe(?=str|soph)"
)
_NOT_IZE = frozenset(
    """
    rise arise wise exercise promise raise praise noise precise advise revise supervise surprise otherwise enterprise
    compromise expertise premise concise paradise merchandise likewise cruise devise improvise disguise franchise
    treatise poise bruise raised promised advised revised exercised supervised surprised promises exercises advising
    revising exercising promising raising enterprises premises cruises bruised disguised compromised praised advises
    raises rises arises noises revises supervising supervises improvised
    """.split()
)
_ISE = re.compile(r"(?<=[a-z]{3})(i|y)s(e|ed|es|ing|er|ers|able|ation|ations)\Z")
_SINGLE_L = frozenset(
    """
    cancel travel label model signal fuel level total channel enrol fulfil instal dial tunnel counsel marvel control
    patrol compel expel excel
    """.split()
)
_OTHER_SPELLINGS = """
centre center; theatre theater; metre meter; litre liter; fibre fiber; grey gray; licence license; defence
defense; offence offense; catalogue catalog; dialogue dialog; programme program; cheque check; tyre tire;
aluminium aluminum; jewellery jewelry; storey story; practise practice; learnt learned; spelt spelled; burnt
burned; enrolment enrollment; fulfilment fulfillment; judgement judgment; ageing aging; artefact artifact;
pyjamas pajamas; moustache mustache; sceptical skeptical; mum mom; yoghurt yogurt; doughnut donut; analogue
analog; kilometre kilometer; cosy cozy; mould mold; fulfill fulfil; enroll enrol; calibre caliber; sombre
somber; dreamt dreamed; leapt leaped; smelt smelled; spoilt spoiled; pretence pretense; omelette omelet;
disc disk; racquet racket; speciality specialty; towards toward; amongst among; whilst while; afterwards
afterward; anticlockwise counterclockwise; enquiry inquiry; enquire inquire; tonne ton; forwards forward;
aeroplane airplane; kerb curb; plough plow; skilful skillful; instalment installment; manoeuvre maneuver;
sulphur sulfur; acknowledgement acknowledgment; dependant dependent; orthopaedic orthopedic; paediatric
pediatric; diarrhoea diarrhea; whisky whiskey; maths math; counsellor counselor; traveller traveler; woollen
woolen; gynaecologist gynecologist; paediatrician pediatrician; anaemia anemia; draught draft
"""
_SPELLINGS: dict[str, str] = dict(pair.split() for pair in _OTHER_SPELLINGS.split(";"))
_VOWEL = re.compile("[aeiouy]")
_SHORT = 5
_LOST_E = re.compile(
    r"(?:(?:\A|[^aeiou])[aeiouy][^aeiouwxy]|[rnl][sv]|[rn]c|[rd]g|[^s]s|[cvzu]|[^aeiouyl]l)\Z"
)
"""Endings of a short word before -ed and -ing whose base form ends in e."""
_DOUBLED = re.compile(r"([bdgkmnprtv])\1\Z")


IRREGULAR_BASES = frozenset(line.split()[0] for line in _IRREGULAR_VERBS.split(";") if line.strip())
"""Base forms of irregular verbs."""


def _parse_irregular_forms() -> dict[str, str]:
    forms: dict[str, str] = {}
    for line in (*_IRREGULAR_NOUNS.split(";"), *_IRREGULAR_VERBS.split(";")):
        base, *others = line.split() or [""]
        forms.update(dict.fromkeys((base, *others), base))
    return forms


_IRREGULAR = _parse_irregular_forms()
_IRREGULAR_PASTS = frozenset(
    form
    for line in _IRREGULAR_VERBS.split(";")
    for form in line.split()[1:]
    if not form.endswith(("s", "ing")) and form not in {"am", "are"}
) | {"was"}


SAME_PASTS = frozenset("quit split shut cut put let".split())
"""Verbs whose past form is the base form."""


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of a word in lower case."""
    if (irregular := _IRREGULAR.get(word)) is not None:
        return irregular
    word = _americanize(word)
    if word in _KEPT or len(word) <= 3 or not word.isalpha() or not word.isascii():
        return word
    singular = _strip_plural(word)
    if singular.endswith("ie") and len(singular) > 4:
        return f"{singular[:-2]}y"  # "movies" was already cut to "movie"
    if (irregular := _IRREGULAR.get(singular)) is not None:
        return irregular
    return _strip_final_e(_strip_verb_ending(singular))


@lru_cache(maxsize=50_000)
def is_past(word: str) -> bool:
    """Return True if the word is a past form, judged by its letters."""
    return word in _IRREGULAR_PASTS or (word.endswith("ed") and stem(word) != _strip_final_e(word))


def _americanize(word: str) -> str:
    if word in _SPELLINGS:
        return _SPELLINGS[word]
    base = word.removesuffix("s")
    if base in _SPELLINGS:
        return _SPELLINGS[base] + word[len(base) :]
    if "logu" in word:
        word = _LOGUE.sub(r"log\1", word)
    if "ae" in word or "oe" in word:
        word = _GREEK.sub(lambda match: f"{match[1] or ''}e", word)
    if "our" in word:
        word = _OUR.sub(r"\1or", word)
    if word not in _NOT_IZE:
        word = _ISE.sub(r"\1z\2", word)
    return word


def _strip_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    if word.endswith("oes"):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _strip_verb_ending(word: str) -> str:
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("ed") and not word.endswith("eed"):
        base = word[:-2]
    elif word.endswith("ing") and word not in _KEPT:
        base = word[:-3]
    else:
        return word
    if len(base) < 2 or not _VOWEL.search(base):
        return word
    if base.endswith("ll") and base[:-1] in _SINGLE_L:
        return base[:-1]
    if len(base) > 3 and _DOUBLED.search(base):
        return base[:-1]
    return base + "e" if len(base) < _SHORT and _LOST_E.search(base) else base


def _strip_final_e(word: str) -> str:
    # Short words keep a final e: "plane" is not "plan". Long words lose it, because their -ed and -ing forms have, too.
    return word[:-1] if len(word) > _SHORT and word.endswith("e") and not word.endswith("ee") else word
