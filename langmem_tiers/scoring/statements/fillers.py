"""What can be left out of a statement without changing what it says."""

from __future__ import annotations

FILLERS = frozenset(
    """
    please really just actually currently presently now very quite basically simply still already also too
    additionally definitely certainly absolutely clearly kindly so well okay ok overall generally usually
    normally typically however today's hi hello hey remember thanks personally honestly truly highly strongly
    particularly especially officially formally itself themselves ourselves myself himself herself then there
    here that which who pretty rather somewhat apparently obviously essentially literally again yet hence thus
    therefore indeed surely naturally nowadays lately recently anyway um uh particular specific certain mainly
    mostly primarily simply eventually finally totally completely fully strictly etc it he she they them him
    one's entirely exactly wholly altogether these those this such any ever
    """.split()
)
"""Words."""
_PHRASES = """
in my opinion; as for me; if you ask me; as a user; for instance; as always; in principle; in terms of; per
se; in short; long story short; at the end of the day; like i say; i mean; to be clear; to be precise; on
the whole; by all means; at the moment; right now; these days; for now; at present; as of now; as of today;
from now on; going forward; note that; keep in mind that; please note; remember that; remember to; be aware
that; make sure to; be sure to; make sure that; make sure; it is important that; in general; as a rule; for
the record; by the way; in the future; the fact is that; in order; kind of; sort of; a bit; a lot; of
course; as usual; the user say that; the user mention that; the user state that; user say that; user mention
that; i say that; user note that; it has been decide that; fyi; a total of; in total; at all; for sure; as a
matter of fact; in fact; to be honest; located at the; from now; for the time being; so far; whenever
possible; if possible; when possible; way to go; in addition; as well; once and for all; any more; anymore;
in fact; also known as; a copy of; just so you know; you know; as you know; it turns out that; pretty much;
as such; needless to say; as mentioned; as a reminder; reminder; heads up; for your information; it should
be note that; it is worth noting that; the fact that; at this point; at the current time; in any case; I
would say; in particular; once again; of all; as far as; for your reference; i want you to know that; this
means that; i would like you to know that; the user has said that; the user has mentioned that; the user has
stated that; it is known that
"""
FILLER_PHRASES = tuple(" ".join(phrase.lower().split()) for phrase in _PHRASES.split(";"))
"""Phrases, in any inflection."""
