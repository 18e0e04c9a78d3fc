"""What `docs/scorers/choosing.md` and `judges.md` show works, and the first names every builtin."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from evalbus import ScorerBench
from evalbus_server.cli.main import main
from evalbus_server.runner.documents import read_yaml
from evalbus_server.runner.experiment_file import from_mapping
from evalbus_server.scorer.builtin import BUILTINS

PAGE = Path(__file__).parents[4] / "docs" / "scorers" / "choosing.md"
TEXT = PAGE.read_text("utf-8")
JUDGES = (PAGE.parent / "judges.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT + JUDGES, re.MULTILINE | re.DOTALL)


def test_every_builtin_is_named():
    assert {name for name in BUILTINS if f"`{name}`" not in TEXT and f"use: {name}" not in TEXT} == set()


@pytest.mark.parametrize("block", [body for language, body in BLOCKS if language == "yaml"])
async def test_its_scorers_can_be_used(block, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    experiment = from_mapping({"name": "x", "dataset": {"name": "d"}, "target": "none", **read_yaml(block).data}, "/")
    for use in experiment.scorers:
        assert use.use is not None
        await ScorerBench(BUILTINS[use.use], use.settings).open()


@pytest.mark.parametrize("block", [body for language, body in BLOCKS if language == "console"])
def test_its_commands_print_what_it_shows(block, capsys):
    words, _, expected = block.removeprefix("$ evalbus ").partition("\n")
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(words))
    assert not ended.value.code
    assert capsys.readouterr().out == expected


def test_its_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (PAGE.parent / link).exists(), link
