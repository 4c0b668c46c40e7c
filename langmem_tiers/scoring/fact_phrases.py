"""The words of the design document's fact patterns, as English uses them.

Each phrase is a part of a pattern that is tried on one sentence with single spaces between its words. Whole words
count, with their inflections; what only looks like the word, or is said without stating anything, does not.
"""

from __future__ import annotations


def not_after(words: str) -> str:
    """A pattern for a place that none of the words stands before."""
    return "".join(rf"(?<!\b{word} )" for word in words.split())


def any_of(words: str) -> str:
    """A pattern for one of the words; an underscore is a space, and an apostrophe may be a typographic one."""
    return f"(?:{'|'.join(words.split())})".replace("_", " ").replace("'", "['’]")


_NOT = r"n['’]t"
UNDENIED = not_after("not never no") + rf"(?<!{_NOT} )"
"""A place before which nothing denies what follows."""
_ADVERB = any_of(
    "really also now still always usually generally mostly especially particularly just both all only"
)
SOON = rf"(?:{_ADVERB} ){{0,2}}"
"""What may stand between somebody and what they do."""
_AUXILIARY = any_of("do does did will would don't doesn't didn't do_not does_not did_not never")
_DOES = rf"(?:{_AUXILIARY} )?{SOON}"
_IS = r"(?:\b(?:am|are|is|was|were)|['’](?:m|re|s)) (?:now )?"
PEOPLE = any_of(
    """
    i we they he she everyone everybody people folks users customers clients kids children parents friends developers
    engineers designers testers students readers colleagues managers team boss wife husband partner mother father mom
    mum dad son daughter brother sister
    """
)
"""Who decides, likes and wants."""
_OTHERS = any_of("me us him them you")
_BEEN = r"have (?:been|had|gone|done|got|made|seen|\w+ed)\b"

DECISION = (
    rf"{UNDENIED}{not_after('be yet')}\bdecided\b",
    rf"\b(?:{PEOPLE}|it) {SOON}decides?\b",
    rf"{UNDENIED}{not_after('still')}\bdeciding (?=on\b|to\b|for\b|against\b|in favou?r)",
    rf"{UNDENIED}\bchose\b",
    r"(?:\b(?:have|has|had|been|was|were|is|are)|['’](?:ve|s)) (?:(?:now|also|finally|all) )?chosen\b",
    rf"{UNDENIED}{not_after('the a be yet any one my our your his her their its currently')}\bselected\b",
    rf"{not_after('ones what which how when if sure')}\b{PEOPLE} {SOON}(?:choose|select)s?\b",
    rf"{_IS}(?:choosing|selecting)\b",
    # "I went with my sister" chooses nothing, "we went with our own fork" does.
    rf"\bwent with\b(?! (?:{_OTHERS}|my|his|her|our|their)\b(?! own\b))",
    rf"\b(?:let['’]s|we|i|we['’]ll|i['’]ll|we will|i will) {SOON}go with\b",
    rf"{_IS}going with\b(?! {_OTHERS}\b)",
    r"\b(?:the|our|my|final) decision(?: is\b| was\b|:)",
    r"^decision:",
)
"""decided, chose, selected, went with."""
_NOUN_GOES_ON = any_of(
    "is are was were of for to here this next by in that remains? will must should has have behind number"
)
_NOUN_ENDS = rf"(?=:| [\u2013\u2014-]| {_NOUN_GOES_ON}\b)"
_DEMANDED = any_of("must should cannot can't needs?_to")
_SOMEBODYS = r"(?:my|our|the|his|her|their) (?:[\w'’-]+ )?"
GOAL = (
    # What is said of a goal, or is said to be one: not goals as such.
    rf"{not_after('own winning scored scores scoring penalty')}(?<!\bscored a )\bgoals?{_NOUN_ENDS}",
    (
        rf"\b(?:is|are|was|as|be|remains?) (?:(?:still|now|also|one of) )?{_SOMEBODYS}(?:[\w'’-]+ )?"
        r"(?:goal|objective|target)s?\b"
    ),
    # The noun, not the adjective and not the language.
    rf"{not_after('be being more less very remain stay')}\bobjectives?{_NOUN_ENDS}",
    rf"{UNDENIED}\baim(?:s|ed|ing)?\b",
    rf"{not_after('at moving')}\btargets?{_NOUN_ENDS}",
    rf"\b{PEOPLE} (?:are |is |am |were |was )?target(?:s|ed|ing)?\b(?! \w+ {_DEMANDED}\b)",
    r"['’](?:m|re|s) targeting\b",
    r"\btargets (?=the\b|an?\b|\d|(?-i:[A-Z]))",
)
"""goal, objective, aim, target."""
_FEELINGS = any_of(
    """
    fine ok okay good done ready enough easy there all kidding joking nice hard tired tough awesome great wonderful
    amazing fun exciting fantastic incredible cool lovely blast beautiful rewarding challenging difficult proud happy
    frustrating experience tricky interesting thrilled excited satisfying grateful
    """
)
_FELT = rf"(?:(?:so|really|such|pretty)\b|(?:(?:very|quite) )?(?:an? )?(?:(?:lot of|great|real|truly) )?{_FEELINGS})"
_AT_A_LOSS = any_of(
    """
    wait believe see find tell remember thank help_but help_you say imagine seem figure reproduce decide think complain
    be_sure get_it_to get_this_to get_that_to they we you it he she i live_without beat agree picture
    """
)
_ASKING = any_of(
    """
    know ask go think talk say admit share tell thank make_sure let mention hear discuss confirm check see learn_more
    look_into proceed
    """
)
_HELP = r"(?:(?:some|more|your|further|any|a bit of) )*" + any_of(
    "help advice tips ideas suggestions information info assistance recommendations inspiration"
)
CONSTRAINT = (
    # "It must have been the cache" guesses, "must have two reviewers" demands.
    (
        rf"{not_after('a')}\bmust(?:{_NOT})?\b(?!-|['’]ve| {_BEEN}| (?:be|have) {_FELT}\b"
        rf"| {any_of('feel remind love miss know bring')}\b)"
    ),
    # What should be fine is not demanded either.
    (
        rf"\bshould(?:{_NOT})?\b(?!['’]ve| {_BEEN}| be {_FELT}\b"
        rf"| {any_of('work do_it help suffice see really feel')}\b|[,.]"
        rf"| {any_of('i we you he she it they the there any')}\b)"
    ),
    rf"\bcan(?:not| not|['’]t)\b(?! {_AT_A_LOSS}\b)",
    rf"{UNDENIED}\bneed(?:s|ing)? to\b(?! {_ASKING}\b)",
    rf"\b(?:{PEOPLE}|it) {SOON}needed to\b(?! {_ASKING}\b)",
)
"""must, should, cannot, can't, need to."""
_WISHED = rf"(?! to {_ASKING}\b| {_HELP}\b)"
# What somebody needs or wants in general: "find what you need", "for those who want", "it made me want".
_NOT_ANYBODY = (
    not_after("who that me them us") + r"(?<!\bwhat you )(?<!\bwhat i )(?<!\bwhat we )(?<!\bhow i )"
)
REACTION = (
    r"(?! (?:the|this|that|these|those|your) (?:\w+ ){0,3}"
    r"(?:(?:idea|suggestion|option|caption|one)s?\b(?! of\b)|(?:sound|look)s? of\b))"
)
"""Not behind it: what was just proposed, which is gone with the conversation."""
PREFERENCE = (
    rf"{not_after('the who')}\bprefer(?:s|red|ring)?\b",
    rf"\b{_SOMEBODYS}preferences? (?:is|are|would be)\b",
    # A verb only behind somebody who likes: not "looks like", "something like", "tools like".
    rf"\b{PEOPLE}(?:['’]d)? {_DOES}liked?\b{_WISHED}{REACTION}(?! {_OTHERS}\b)",
    rf"{not_after('if as would do did')}(?<!ever )\byou(?:['’]d)? {_DOES}liked?\b{_WISHED}",
    rf"{not_after('the of more and or with few many by who')}(?<!\d )\blikes\b(?! of\b)",
    rf"{_IS}liking\b",
    rf"{not_after('to')}{_NOT_ANYBODY}\bwants?\b{_WISHED}",
    # "I wanted to stand out" tells a story, "I always wanted to sing" does not.
    rf"{not_after('to')}{_NOT_ANYBODY}(?:\bwanted\b(?! to\b)|(?<=always )wanted\b){_WISHED}",
    rf"(?:{_IS}|\bbeen )wanting\b{_WISHED}",
    # The verb, which has an object, not the noun.
    (
        rf"{not_after('no the a any special user as if when where in my our your his her their to much')}"
        rf"{_NOT_ANYBODY}(?<!-)\bneeds?\b(?= \w)"
        rf"(?! {any_of('to not be of and or for are is were in with like')}\b){_WISHED}"
    ),
    rf"\b(?:{PEOPLE}|it) {SOON}needed\b(?= \w)(?! to\b){_WISHED}",
)
"""prefer, like, want, need."""
