"""A plugin written from the front page works the first time, for somebody who copies it and nothing else."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import PAGES, Block

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


def test_the_scorer_of_the_front_page_works_the_first_time(tmp_path: Path) -> None:
    for shown in FRONT.blocks:
        if shown.file:
            (tmp_path / shown.file).write_text(shown.body)
    own = {name: value for name, value in os.environ.items() if not name.startswith("EVALBUS_")}
    ended = subprocess.run(
        [Path(sys.executable).with_name("evalbus"), "run", "desk.yaml", "--json"],
        cwd=tmp_path,
        env=own,
        capture_output=True,
        text=True,
        timeout=50,
        stdin=subprocess.DEVNULL,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    numbers = json.loads(ended.stdout)
    assert numbers["counts"]["planned"] == numbers["scores"]["polite"]["n"] == 4
    assert numbers["scores"]["polite"]["mean"] == 0.5
    assert numbers["scores"]["polite"]["errored"] == 0


def test_the_front_page_has_the_two_commands() -> None:
    first = next(block for block in FRONT.blocks if block.language == "console")
    assert first.body == "$ scripts/demo\n$ scripts/test\n"
