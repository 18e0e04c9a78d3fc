"""Where another value than that of another system is right, and why: the one list, for the tests and for the docs.

A key says which recorded row is meant (`tests/data/vectors`), a value what is right and the reason. Each test of such rows
expects what stands here, and theirs everywhere else; `docs/differences.md` is made of it by `python -m tests.docs.differences`.
"""

from __future__ import annotations

SKIPPED, ERRORED, REFUSED = "skipped", "errored", "settings refused"
"""What can be right instead of a number."""

NOT_ROUNDED = "not rounded to two digits"
NO_NUMBER = "no number instead of a 0 that nobody scored"

BUILTINS: dict[tuple[str, str], tuple[float | str, str]] = {
    ("scorer.includes", '{"output": "abc", "target": ""}'): (0.0, "every text holds the empty one, which says nothing"),
    ("code_template.equal", '{"actual_output": "a", "reference_output": null}'): (
        SKIPPED,
        "no reference answer: skipped, where they disagree between an exception and 0",
    ),
    ("checks.toolOrder", '{"order": [], "calls": ["x"]}'): (
        REFUSED,
        "an empty order is met by everything: it is refused before the run",
    ),
    ("code_template.regex", '{"actual_output": "abc", "reference_output": ""}'): (
        0.0,
        "every text matches the empty pattern, which says nothing",
    ),
    ("checks.equals", '{"expected": "Paris", "output": "Paris "}'): (
        1.0,
        "outer space does not count; trim: false has it count",
    ),
    ("checks.includes", '{"expected": "first", "outputParts": ["first part", "second part"]}'): (
        1.0,
        "all text parts of the last message are read",
    ),
    ("levenshtein", '{"output": "😀", "expected": "😁"}'): (0.0, "code points, not halves of them: one of one differs"),
    ("levenshtein", '{"output": "x"}'): (SKIPPED, "no expected answer: skipped, not an error"),
    ("numericDiff", '{"output": "abc", "expected": 42}'): (0.0, "an answer that is no number is wrong, and never NaN"),
    ("numericDiff", '{"output": 3}'): (SKIPPED, "no expected answer: skipped, not an error"),
    ("scorer.match", '{"output": "123456", "target": "123457", "numeric": true}'): (
        0.0,
        "every digit counts, not the first five",
    ),
    ("scorer.match", '{"output": "1234567", "target": "1234599", "numeric": true}'): (
        0.0,
        "every digit counts, not the first five",
    ),
    ("scorer.match", '{"output": "一百二十三", "target": "123", "numeric": true}'): (
        0.0,
        "numbers are written in digits: words for them are not read in any language",
    ),
    ("scorer.math", '{"output": "1.4142135623730951", "target": "\\\\sqrt{2}"}'): (
        ERRORED,
        "numbers are compared, and no algebra is done: what is expected is a number in digits",
    ),
    ("scorer.exact", '{"output": "", "target": ""}'): (1.0, "an empty text is an expected answer like any other"),
    ("scorer.f1", '{"output": "Paris is the capital of France", "target": ["Lyon", "Paris"]}'): (
        1 / 3,
        "not rounded to two digits",
    ),
    ("scorer.f1", '{"output": "anything", "target": "the"}'): (
        SKIPPED,
        "an expected answer without a word that counts asks for nothing",
    ),
    ("scorer.choice", '{"selected": [0], "n_choices": 4, "target": ["A", "C"], "output": "ANSWER: A"}'): (
        1.0,
        "a list means any of; both together are `A,C`, or a list in the list",
    ),
    ("code_template.contains_any", '{"actual_output": "abc", "reference_output": ""}'): (
        0.0,
        "every text holds the empty one, which says nothing",
    ),
    ("code_template.starts_with", '{"actual_output": "abc", "reference_output": ""}'): (
        0.0,
        "every text begins with the empty one, which says nothing",
    ),
    ("checks.matches", '{"pattern": "/a|b/", "exact": true, "output": "axxx"}'): (
        0.0,
        "the whole output must match, not the beginning of it",
    ),
    ("checks.matches", '{"pattern": "/x/g", "output": "x", "runs": 2}'): (1.0, "the same task gets the same score"),
    ("keyword-coverage", '{"input": "", "output": "anything here"}'): (
        SKIPPED,
        "a reference without keywords asks for nothing",
    ),
    ("keyword-coverage", '{"input": "the and of", "output": "xyz"}'): (
        SKIPPED,
        "a reference without keywords asks for nothing",
    ),
    ("completeness", '{"input": "东京是日本的首都", "output": "完全不同的内容"}'): (
        1 / 8,
        "scripts without spaces are read too, a character at a time: one of eight is there",
    ),
    ("tone", '{"input": "", "output": ""}'): (SKIPPED, "an empty text has no tone"),
    ("tone", '{"input": "", "output": "I love it. This is awful"}'): (
        0.0,
        "what stands after the last full stop is read too: from 1 to -1 is a variance of 1",
    ),
    ("toolCallAccuracyCode", '{"config": {}, "payload": {}}'): (
        SKIPPED,
        "which calls are expected may stand in the item; where nobody says it, the score is skipped",
    ),
    ("code-tool-call-accuracy", '{"config": {"expectedToolOrder": ["a", "b"]}, "toolCalls": ["b", "a", "b"]}'): (
        1.0,
        "the calls are there in order, after another one",
    ),
    ("code-tool-call-accuracy", '{"config": {"expectedToolOrder": ["a", "a"]}, "toolCalls": ["a", "b", "a"]}'): (
        1.0,
        "the calls are there in order, with another one between",
    ),
    ("code-tool-call-accuracy", '{"config": {"expectedToolOrder": []}, "toolCalls": ["a"]}'): (
        REFUSED,
        "an empty order can never be met or missed: it is refused before the run",
    ),
    (
        "compareTrajectories",
        '{"actual": [{"name": "s", "toolArgs": {"a": 1, "b": 2}}], "expected": [{"name": "s", "stepType": "tool_call", '
        '"toolArgs": {"b": 2, "a": 1}}], "options": {}}',
    ): (1.0, "the order of keys does not matter in JSON"),
    ("code-trajectory", '{"options": {}, "steps": ["x"]}'): (SKIPPED, "nothing is expected: nothing is judged"),
    ("code-trajectory-accuracy", '{"options": {}, "steps": ["a"]}'): (
        SKIPPED,
        "nothing is expected: nothing is judged, and that is no 0",
    ),
}
"""By the name there, and the input as JSON."""

JUDGES: dict[tuple[str, int], tuple[float | str, str]] = {
    ("coze-loop judge_parse.regex_fallback", 0): (ERRORED, "prose is not searched for a number: it may be any"),
    ("coze-loop judge_parse.regex_fallback", 2): (ERRORED, "prose is not searched for a number: it may be any"),
    ("coze-loop judge_parse.regex_fallback", 3): (ERRORED, "prose is not searched for a number: .5 became 5"),
    ("coze-loop judge_parse.content", 1): (ERRORED, "7 is out of the range 0 to 1"),
    ("evalkit modelGraded.default_parse", 0): (ERRORED, "the reply is JSON; a letter is not searched for in prose"),
    ("evalkit modelGraded.default_parse", 1): (ERRORED, "INCORRECT holds the letter C, and was taken for correct"),
    ("evalkit modelGraded.default_parse", 2): (ERRORED, "what is no verdict is not a wrong answer"),
    ("voltagent answerRelevancy", 0): (1.0, "by verdicts on statements, not by words that a made-up question shares"),
    ("voltagent answerCorrectness", 2): (SKIPPED, "nothing to compare has no value"),
    ("voltagent contextRelevancy", 2): (SKIPPED, "no passage has no value"),
    ("voltagent moderation", 1): (ERRORED, "a reply that is no verdict lets nothing through"),
    ("mastra answer-relevancy", 1): (1.0, "settings have defaults: there is no NaN"),
    ("mastra answer-similarity", 0): (0.4 / 1.2, NOT_ROUNDED),
    ("mastra answer-similarity", 4): (1.0, "an empty expected answer is one; its units are what the model says"),
    ("mastra bias", 0): (1 / 3, NOT_ROUNDED),
    ("mastra bias", 1): (1.0, "outer space does not make a yes a no"),
    ("mastra toxicity", 0): (SKIPPED, "without a statement there is no value; it was the most toxic one"),
    ("mastra faithfulness", 0): (2 / 3, NOT_ROUNDED),
    ("mastra faithfulness", 1): (1.0, "a capital letter does not make a yes a no"),
    ("mastra hallucination", 1): (SKIPPED, "without a claim there is no value"),
    ("mastra context-precision", 0): (5 / 6, NOT_ROUNDED),
    ("mastra context-recall", 0): (ERRORED, "five verdicts on two claims are none"),
    ("mastra context-recall", 1): (SKIPPED, "no expected answer: skipped"),
    ("mastra context-relevance", 0): (1.7 / 3, NOT_ROUNDED),
    ("mastra context-relevance", 3): (SKIPPED, "no passage has no value"),
    ("mastra rubric", 3): (ERRORED, "no criterion is refused before the run"),
    ("mastra summarization", 0): (2 / 3, NOT_ROUNDED),
    ("mastra summarization", 2): (SKIPPED, "a source that answers nothing cannot be summarised"),
    ("mastra llm-trajectory-accuracy", 0): (1.0, "a way without a fault is worth 1, not 0.9"),
    ("mastra llm-trajectory-accuracy", 1): (2 / 3, "in the same proportion: 0.6 of 0.9"),
}
"""By system and name there, and the how many-th row of these it is."""

BLENDS: dict[str, tuple[str, str]] = {
    '{"components": [["a", 1], ["b", 1]]}': (SKIPPED, "nothing to blend is no 0"),
    '{"components": [["a", 0, 1]]}': (REFUSED, "a blend of nothing can never have a value: refused before the run"),
    '{"components": [["a", 2, 1], ["b", -1, 0]]}': (REFUSED, "a negative weight would leave the range"),
}
"""By the input as JSON."""

REDUCERS: dict[tuple[str, str], tuple[float | None, str]] = {
    ("majority", "[1, 1, 0, 0]"): (
        0.0,
        "majority says whether more than half pass; it has no value of its own to lose",
    ),
    ("majority", '["C", "I", "P"]'): (
        0.0,
        "majority says whether more than half pass; it has no value of its own to lose",
    ),
    ("majority", '["C", "NaN", "I"]'): (0.0, "1 of 2 is not more than half"),
    ("majority", '[1, 0, "NaN"]'): (
        0.0,
        "majority says whether more than half pass; it has no value of its own to lose",
    ),
    ("majority", '[1, 1, "NaN", "NaN"]'): (
        1.0,
        "trials without a value take no part, in no reducer; coverage tells of them",
    ),
    ("at_least_3", '[1, "NaN", 0]'): (None, "fewer than k scored trials decide nothing"),
}
"""By the name there, and the values as JSON."""

NUMBERS: dict[tuple[str, int], tuple[None, str]] = {
    ("metric.mean", 0): (None, NO_NUMBER),
    ("metric.std", 0): (None, NO_NUMBER),
    ("metric.std", 1): (None, "one value has no spread, which is not a spread of 0"),
    ("metric.stderr", 0): (None, NO_NUMBER),
    ("metric.stderr", 1): (None, "one value says nothing about its own error"),
    ("metric.var", 1): (None, "one value has no spread"),
    ("metric.ci", 0): (None, NO_NUMBER),
}
"""By the name there, and how many values there are."""
