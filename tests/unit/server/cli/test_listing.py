"""The list of builtin scorers: in groups for people, by name for scripts, and every one of them in it."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from evalbus_server.cli import describing
from evalbus_server.scorer.builtin import BUILTINS, GROUPS
from evalbus_server.scorer.metrics import METRICS


def test_every_builtin_stands_in_one_group_with_one_line(capsys):
    describing.list_builtins(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line and not line.startswith(" ")]
    names = [line.split()[0] for line in lines if line.startswith("  ")]

    assert headings[:-1] == list(GROUPS)
    assert sorted(names) == sorted([*BUILTINS, *METRICS])
    assert all(BUILTINS[name].info.description in "\n".join(lines) for name in BUILTINS)


def test_descriptions_are_broken_beside_their_names_on_a_terminal(monkeypatch):
    out = io.StringIO()
    terminal = Console(file=out, width=70, force_terminal=True, color_system=None, legacy_windows=False)
    monkeypatch.setattr(describing, "console", lambda: terminal)
    describing.list_builtins(as_json=False)
    lines = out.getvalue().splitlines()

    assert all(len(line) <= 70 for line in lines)
    place = next(n for n, line in enumerate(lines) if line.startswith("  exact_match "))
    assert lines[place + 1].startswith(" " * 25) and lines[place + 1].strip()


@pytest.mark.parametrize("name", ["exact_match", "judge_goal", "weighted_blend"])
def test_the_document_is_by_name_and_says_the_group(capsys, name):
    describing.list_builtins(as_json=True)
    document = json.loads(capsys.readouterr().out)
    by_name = {each["name"]: each for each in document["scorers"]}

    assert list(by_name) == sorted(BUILTINS)
    assert BUILTINS[name] in GROUPS[by_name[name]["group"]]
    assert [each["name"] for each in document["metrics"]] == list(METRICS)
