"""How good or bad English words sound, from -5 to 5: a small list, for the tone of a text and not for its meaning."""

from __future__ import annotations

_BY_VALENCE = {
    5: "breathtaking outstanding superb thrilled",
    4: """amazing amazingly awesome brilliant brilliantly delighted euphoric exquisite fabulous fantastic funny heavenly
        magnificent marvelous masterpiece overjoyed perfect perfectly terrific triumph win winner winning wins wonderful
        wonderfully wow""",
    3: """admire admired affection beautiful beautifully beloved best celebrate celebrated celebrating charm charming
        cheer cheerful classy congratulations delight delightful devoted elegant enjoyable excellence excellent excited
        excitement exciting fascinating gain gained generous glad glorious good gorgeous graceful grateful gratitude
        great greatest happiness happy impress impressed impressive inspiring joy joyful kindness lovable love loved
        lovely loves loving loyal loyalty lucky luxury nice paradise pleasant pleased pleasing praise proud rejoice
        rewarding splendid strong success successful successfully superior talent talented thank thanks thoughtful
        trusted vibrant warm warmth wealthy worthy""",
    2: """accomplish accomplished advantage advantages agreeable appreciate appreciated appreciates appreciation
        attraction attractive benefit benefits better bless blessing bold brave calm capable care careful caring cherish
        clean clear clever comfort comfortable comforting compassionate competent confident convenient cool courage
        courteous creative cute dear dependable eager ease effective effectively efficient encourage encouraged
        encouraging energetic enjoy enjoyed enjoying enjoys enthusiastic excellently fair faithful favorite favorites
        fine fond freedom fresh friendly fulfilled fun gently gift gracious healthy heartfelt help helped helpful helps
        honest honor hope hopeful hopes hoping hug humor important improve improved improvement improves improving
        intelligent interested interesting inviting jolly kind laugh laughed laughing like liked likes merry optimistic
        passionate peace peaceful pleasure polite popular positive positively privileged progress prosperous protect
        protected recommend recommended recommends refreshed relaxed reliable relieved resolved respect respected
        responsible restful reward rich robust safe safely satisfied satisfying secure sincere sincerely smart smile
        smiled smiling solid stable strength strengthen support supported supporting supportive sweet tender trust
        useful valuable welcome welcomed wise""",
    1: """accept accepted accepting accepts agree agreed agrees allow approve approved assure easy feeling grant
        interest invite join keen matter please ready share shared significance thanked vision want yes""",
    -1: """alone annoy anxious apology argument avoid avoided badly blah bother challenge clash concerned controversial
        cut delay delayed demand demanding denied deny difficult dirty doubt doubtful dull emergency error errors escape
        excuse expose fake fight forget forgotten gap hard hesitant ignore ignored lack lacking late leave limited
        limits lonely mistaken no noisy odd pay poor pressure problematic quit refuse remorse silly slow sorry stiff
        stop stopped strange struck stuck unclear unsure upset wary""",
    -2: """abandon abandoned absurd accident accuse accused afraid aggressive alarm alarmed annoyed annoying anxiety
        argue ashamed awkward ban banned bitter blame blamed blocked bored boring broken burden careless chaos chaotic
        cheated collapse complain complained complaint complaints complex condemn conflict confuse confused confusing
        confusion crazy criticism criticize cruel damage damaged danger dangerous dead defeat defect defects delays
        depressed desperate destroy destroyed difficulty disadvantage disappoint disappointed disappointing
        disappointment disappoints discouraged dishonest disappears disliked dislike disorganized dispute distress
        disturb disturbed disturbing dread dump embarrassed embarrassing empty exhausted exhausting fail failed failing
        fails failure failures fear fearful fears flaw flawed flaws foolish frighten frustrate frustrated frustrates
        frustrating frustration gloomy greedy grief guilty hardship harm harmed harmful harms helpless hostile hurt
        hurting hurts hysterical ill inadequate incapable incompetent ineffective inferior insecure insult insulting
        irritated irritating jealous lazy liar limitation lost mess messy misleading miss missed misunderstood mistake
        mistakes moody mourn nasty needy negative negatively nervous offend offended offensive outdated pain painful
        panic pathetic penalty pessimistic pointless pollution problem problems protest punish punished regret regrets
        reject rejected resentful ridiculous risk risky rude ruin sad sadly scared selfish shock shocked sick sloppy
        sluggish sour stress stressed stressful stupid suffer suffered suffering suspicious tense threat threaten
        threatened tired tragic trouble troubled troubles ugly unacceptable uncomfortable unfair unfortunate
        unfortunately unhappy unhealthy unimpressed unlucky unpleasant unreliable unsafe unstable unwanted unwelcome
        upsetting useless victim violate vulnerable war warning wasted weak weakness weary worried worry worrying
        worthless wrong""",
    -3: """abuse abused abusive agony anger angry appalled appalling atrocious awful bad bankrupt betray betrayal betrayed
        cheat crime criminal cry crying deceive deceived despair despise destruction devastated devastating die died
        dire disastrous disgraceful disgust disgusted disgusting dreadful enraged evil fury furious ghastly hate hated
        hateful hates hating heartbreaking heartbroken hideous horrible horribly horrific horrified kill killed lies
        lousy lying mad miserable misery moron nightmare obnoxious outrage outraged pitiful poison revolting scandal
        shame shameful shitty terrible terribly terrified terrifying terror tragedy unbearable vicious vile violence
        violent worse worst wretched""",
    -4: "catastrophe catastrophic damn fraud hell torture tortured",
}
VALENCE = {word: value for value, words in _BY_VALENCE.items() for word in words.split()}
"""By word, lower-case."""
_NEGATIONS = """
not no never without cannot can't cant don't dont doesn't doesnt didn't didnt isn't isnt wasn't wasnt aren't arent won't
wont wouldn't wouldnt couldn't couldnt shouldn't shouldnt hardly non
"""
NEGATIONS = frozenset(_NEGATIONS.split())
"""Words that turn the next one round."""
