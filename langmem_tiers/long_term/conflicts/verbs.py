"""Frequent verbs, used to divide a sentence into its parts."""

from __future__ import annotations

VERBS = frozenset(
    """
    abandon cofound empty coauthor accept accuse acquire act add admire adopt affect agree alert allow answer
    approve archive arrive ask assign attack attend audit authenticate authorize avoid award babysit back bake
    beat become believe belong bite blame block book borrow break bring build buy cache calculate call cancel
    carry catch cause celebrate certify change charge chase check choose clean close coach come commit compile
    complete compose compute configure connect consider consist consume contact contain control convert cook
    cost count create crop cut cycle dance decide decorate decrease defeat defend delete depart depend deploy
    deprecate design develop diagnose direct disable discontinue discuss dislike display divorce donate
    downgrade download draft draw drink drive drop earn eat edit email emit enable encrypt end enforce engage
    engineer ensure estimate examine exclude exercise exist expect expire explain exploit export expose extend
    face favor feed feel film filter finance fire fix fly follow forbid forecast found fund furnish gain
    gather get give go govern graduate grant groom handle happen harvest hate help hike hire hold hope host
    implement import include increase index influence inform inherit inspect install intend introduce invest
    invite invoke iron join jump keep kill know lack land last launch lead leak learn lease leave lend let
    license lie like limit listen live locate lock log login look lose love maintain make manage marry matter
    mean measure meet mention mentor merge migrate mirror monitor move name need notify offer open operate
    order organise organize override oversee owe own pack paint park parse pay photograph pick plan plant play
    poll postpone power practice precede predict prefer prepare prescribe print process produce promise
    promote proofread propose protect provide publish pull push query raise rank read receive recommend record
    reference refuel refund refuse reimburse reject release relocate rely remain rename render renovate rent
    repair replace replicate report represent require reschedule rescue resign resize respect respond restrict
    retire return revert review revoke run save say scan schedule secure see sell send serve set shard ship
    show sign sing sit sleep smoke sort speak spend spin sponsor stand start stay steal stop store stream
    study submit subscribe succeed sue suffer suggest summarize supervise supply support swim switch sync take
    talk teach tell test text think throttle throw train transfer translate travel treat trigger trust try
    tutor undo unpack update upgrade upload use vacuum validate visit wake walk want wash watch water wear
    weigh win wish withdraw work wrap write absorb abstain abuse accelerate access accompany accomplish
    achieve acknowledge adapt adjust administer admit advise advocate aim alternate analyze announce annoy
    apologize appeal appear apply appoint appreciate approach argue arrange arrest assemble assess assist
    assume assure attach attempt attract auction automate await balance ban battle bear beg begin behave bend
    benefit bet bind bleed blend blog boil bother bounce breathe breed brew brief broadcast brush bully bump
    burn bury calm camp capture care carve cater cease challenge chat cheat cheer chew claim clash clear click
    climb cofound collaborate collapse collect comb combine comfort command comment commute compare compete
    complain comply concentrate concern conduct confess confirm conflict confuse congratulate conquer consent
    consult contest continue contract contribute convince cope copy correct correspond cough cover crack crash
    crave crawl criticize crochet cross crush cry cultivate cure curl customize damage dare date deal debate
    debug decline dedicate defer define delay delegate delight deliver demand demonstrate deny derive deserve
    destroy detect determine devote differ dig dine disagree disappear disappoint discover dispatch distribute
    dive divide dominate double doubt drag dream dress drill drown dry dump dye educate elect eliminate
    embrace emerge emigrate emphasize employ encounter encourage endure enjoy enroll enter entertain escape
    establish evaluate evolve exaggerate exceed excel exchange excuse execute exhibit expand experience
    experiment explore express fade fail faint fall fascinate fast fear fetch fight fill finish fit flash flee
    float flood flow focus fold force forget forgive foster freelance freeze frighten fry function generate
    giggle grab grill grind grow guarantee guard guess guide hang harm heal hear heat hesitate hide highlight
    hit hug hunt hurry hurt identify ignore imagine immigrate impress improve inject injure inquire insist
    inspire insure integrate interact interfere interpret interrupt interview invent investigate isolate issue
    jog joke judge juggle justify kick kiss kneel knit knock laugh lay lean leap lift link liquidate load loan
    lower mark match mature melt memorize mind miss mix moderate mop motivate mount mow multiply narrate
    navigate neglect negotiate nod note notice obey observe obtain occupy occur omit oppose oversleep
    overwhelm pass pause perform permit persuade phone pitch please plug point polish pose possess post pour
    praise pray preach present preserve press prevent proceed progress prohibit pronounce prove pump punish
    purchase pursue qualify quarrel question quilt quit race rain reach react realize rebuild recall reckon
    recognize reconsider recover recruit recycle reduce refactor refer reflect refresh regard register regret
    regulate rehearse relate relax remember remind remove reopen repeat reply request research resemble
    reserve reset reside resist resolve rest restart restore retain retrieve reuse reveal reverse reward ride
    risk roast rob roll rotate rule rush sail satisfy scare scold score scratch scream scrub sculpt seal
    search seek seem select separate settle sew shake share shave shift shine shock shoot shop shout shrink
    shut sigh simplify ski skip slice slip slow smell smile sneeze snore snow soak solve sound spare
    specialize specify spell spill split spoil spot spray spread squash stain stamp stare steer step stick
    stimulate stir stitch strengthen stress stretch strike struggle stumble suck supersede suppose surf
    surprise surrender survive suspect suspend swap swear sweat sweep swing tackle tap target taste tease tend
    terminate terrify thank tick tidy tie tolerate touch trace track trade transform transport tremble trick
    trim trouble turn tweak undergo understand unite unlock urge vanish vary vend volunteer vote wait wander
    warm warn waste weaken weed weld wipe wonder worry worship wound wrestle yell yield zoom
    """.split()
)
"""Verbs in base form."""
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
    access age aim appeal approach balance ban battle bear benefit bet blend blog box brief broadcast
    brush budget bully burn camp care chair challenge chat cheer claim clash click climb color comb
    comfort command comment concern conduct conflict contact contest contract copy cough cover crack
    crash cross crush cry cure curl damage date deal debate debut decline delay demand diet document
    doubt dream dress drill dump dust dye exchange excuse exhibit exit experience experiment express
    fall farm fast fear fight file fish fit flash flood flow focus fold force form fry function garden
    grill guarantee guard guess guide harm head heat hide hit hug hunt hurry hurt interest interview
    issue joke judge kick kiss knock label laugh lay lift light link list load loan mail march mark
    mask match mind mine miss mix mount nest nod note notice number nurse object pass pause pet
    phone pitch place plug point polish pop pose position post present press progress pump purchase
    question quilt race rain reach register regret research reserve reset rest reward ride ring risk
    roast roll row rule rush sail score scratch scream screen seal search seat shake share shift shine
    shock shoot shop shout signal ski skip slice slip smell smile smoke snow sound spell split spot
    spray spread squash stain stamp state step stick stock stress stretch strike struggle style surf
    surprise swap sweat swing tackle tap target taste thank tick tie time touch tour trace track trade
    transport trap trick trim trouble turn type volunteer vote wait waste weed wonder worry wound
    yield
    """.split()
)
"""Verbs that can also be nouns."""
