"""Verbs that are met often, by which the parts of a sentence are told apart."""

from __future__ import annotations

VERBS = frozenset(
    """
    abandon accept accuse acquire act add admire adopt affect agree alert allow answer approve archive
    arrive ask assign attack attend audit authenticate authorize avoid award babysit back bake beat become
    believe belong bite blame block book borrow break bring build buy cache calculate call cancel carry
    catch cause celebrate certify change charge chase check choose clean close coach come commit compile
    complete compose compute configure connect consider consist consume contact contain control convert
    cook cost count create crop cut cycle dance decide decorate decrease defeat defend delete depart
    depend deploy deprecate design develop diagnose direct disable discontinue discuss dislike display
    divorce donate downgrade download draft draw drink drive drop earn eat edit email emit enable encrypt
    end enforce engage engineer ensure estimate examine exclude exercise exist expect expire explain
    exploit export expose extend face favor feed feel film filter finance fire fix fly follow forbid
    forecast found fund furnish gain gather get give go govern graduate grant groom handle happen harvest
    hate help hike hire hold hope host implement import include increase index influence inform inherit
    inspect install intend introduce invest invite invoke iron join jump keep kill know lack land last
    launch lead leak learn lease leave lend let license lie like limit listen live locate lock log login
    look lose love maintain make manage marry matter mean measure meet mention mentor merge migrate mirror
    monitor move name need notify offer open operate order organise organize override oversee owe own pack
    paint park parse pay photograph pick plan plant play poll postpone power practice precede predict
    prefer prepare prescribe print process produce promise promote proofread propose protect provide
    publish pull push query raise rank read receive recommend record reference refuel refund refuse
    reimburse reject release relocate rely remain rename render renovate rent repair replace replicate
    report represent require reschedule rescue resign resize respect respond restrict retire return revert
    review revoke run save say scan schedule secure see sell send serve set shard ship show sign sing sit
    sleep smoke sort speak spend spin sponsor stand start stay steal stop store stream study submit
    subscribe succeed sue suffer suggest summarize supervise supply support swim switch sync take talk
    teach tell test text think throttle throw train transfer translate travel treat trigger trust try
    tutor undo unpack update upgrade upload use vacuum validate visit wake walk want wash watch water wear
    weigh win wish withdraw work wrap write
    """.split()
)
"""In their plain form."""
NOUNS_TOO = frozenset(
    """
    act alert answer attack audit award back block book break cache call carry cause change charge check
    close coach commit control cook cost count cut dance design display draft drink drive drop edit email
    end estimate exercise export face feed film filter fix forecast fund grant handle hate help hike host
    import index iron jump land last lead leak lease leave license limit lock log look love measure merge
    mirror move name need offer order paint park pick plan plant play power practice print process pull
    push query rank record release rent report request respect return review run schedule set show sign
    sleep sort stand start stay store stream study supply support switch sync talk test text train travel
    trigger trust update upgrade use visit walk want watch water work wrap
    """.split()
)
"""Those that can as well be a noun."""
