"""A plugin written from the front page works the first time, for somebody who copies it and nothing else."""

import ast

from evalbus_server import RunState, Verdict
from evalbus_server.store import open_reader
from tests.docs.pages import PAGES, Block
from tests.docs.sessions import Sessions

FRONT = PAGES["README.md"]
LINES = 15


def block(name: str) -> Block:
    """The block that shows a file."""
    return next(block for block in FRONT.blocks if block.file == name)


def test_a_scorer_takes_15_lines() -> None:
    shown = block("polite.py")
    assert len(shown.body.splitlines()) <= LINES
    imported = [node for node in ast.walk(ast.parse(shown.body)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.module for node in imported if isinstance(node, ast.ImportFrom)] == ["evalbus"]
    assert not any(isinstance(node, ast.Import) for node in imported)


def test_the_scorer_of_the_front_page_works_the_first_time(sessions: Sessions) -> None:
    """The files of the page, copied as they are, and `evalbus run` as a process of its own."""
    session = sessions.of(FRONT)
    (ran,) = [ran for ran in session.ran if ran.command.words == "evalbus run desk.yaml"]
    assert ran.code == 0, ran.output
    for name in ("polite.py", "desk.py", "items.jsonl", "desk.yaml"):
        assert (session.folder / name).read_text() == block(name).body

    with open_reader(session.folder / "evalbus.db") as reader:
        (run,) = reader.runs()
        results = reader.results(run)
    assert (run.state, run.verdict) == (RunState.COMPLETED, Verdict.PASS)
    polite = [key.key for key in run.score_keys].index("polite")
    scores = {result.item.id: result.scores[polite].score for result in results}
    assert {item: score.value for item, score in scores.items()} == {
        "hours": 1.0,
        "return": 1.0,
        "shipping": 0.0,
        "gift": 0.0,
    }
    assert scores["hours"].explanation == "polite words: please"


def test_the_front_page_has_the_two_commands() -> None:
    first = next(block for block in FRONT.blocks if block.language == "console")
    assert first.body == "$ scripts/demo\n$ scripts/test\n"
