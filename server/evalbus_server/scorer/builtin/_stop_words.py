"""Words that say little by themselves."""

from __future__ import annotations

_ENGLISH = """
    a able about above across after again against ago all almost alone along already also although always am among an
    and another any anybody anyone anything anyway anywhere are aren't around as ask at away b back be became because
    become becomes been before began behind being below beside besides best better between beyond both but by c came can
    can't cannot cause certain certainly clear clearly come comes consider could couldn't d did didn't different do does
    doesn't doing don't done down during e each eight either else elsewhere end enough especially etc even ever every
    everybody everyone everything everywhere exactly example except f far few first five followed following for former
    four from further g gave general get gets getting give given gives go goes going gone good got great h had hadn't
    has hasn't have haven't having he he's hello help hence her here here's hers herself hi him himself his how however
    i i'd i'll i'm i've if in indeed instead into is isn't it it'd it'll it's its itself j just k keep keeps kept kind
    knew know known knows l last lately later latter least less let let's like likely little long look looking looks m
    made mainly make makes making man many may maybe me mean meanwhile might more moreover most mostly mr mrs ms much
    must my myself n name namely near nearly necessary need needs neither never nevertheless new next nine no nobody
    none nor normally not nothing now nowhere o obviously of off often oh ok okay old on once one ones only onto or
    other others otherwise ought our ours ourselves out over own p part particular particularly per perhaps place
    please possible probably provides put q quite r rather really reasonably regarding regards relatively right s said
    same saw say saying says second see seeing seem seemed seems seen self sent seven several shall she she's should
    shouldn't since six so some somebody someone something sometimes somewhat somewhere soon sorry still such sure t
    take taken takes tell tends than thank thanks that that's the their theirs them themselves then thence there
    there's therefore these they they're they've thing things think third this those though three through throughout
    thus to together too took toward towards tried try trying twice two u under unless until up upon us use used useful
    uses using usually v value various very via w want wants was wasn't way we we'd we'll we're we've welcome well went
    were weren't what what's whatever when whenever where where's whereas wherever whether which while who who's
    whoever whole whom whose why will wish with within without won't would wouldn't x y yes yet you you'd you'll
    you're you've your yours yourself yourselves z zero
"""
ENGLISH = frozenset(_ENGLISH.split())
