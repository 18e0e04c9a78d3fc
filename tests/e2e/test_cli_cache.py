"""`cache: true` as a user has it: processes that come and go, a target that is changed, and the way to forget it all."""

from pathlib import Path

import pytest

from tests.e2e.command_line import PLUGINS, Desk, serving


@pytest.mark.parametrize("at_a_server", [False, True])
def test_a_target_is_asked_again_only_when_something_has_changed(tmp_path: Path, at_a_server: bool) -> None:
    """Each command is a process of its own, and so is each target; the same over a database and at a server."""
    desk = Desk(tmp_path, items=6)
    desk.write("server.yaml", "db: server.db\ncommands: [[python, plugins.py]]\n")
    if not at_a_server:
        asked_only_when_something_has_changed(desk, ())
        return
    with serving(desk, "--config", "server.yaml") as (_, address):
        asked_only_when_something_has_changed(desk, ("--server", address))


def asked_only_when_something_has_changed(desk: Desk, where: tuple[str, ...]) -> None:
    def run(*words: str) -> tuple[int, int]:
        """How many outputs were remembered, and how many attempts were made."""
        ended = desk.run("run", "sums.yaml", "--set", "cache=true", "--json", *words, *where)
        assert ended.code in (0, 1), ended.err
        assert ended.document["scores"]["close"]["n"] == 6
        return ended.document["cached"], ended.document["attempts"]

    def remembered(*words: str) -> dict[str, object]:
        document: dict[str, object] = desk.run("cache", "--json", *words, *where).document
        return document

    assert run() == (0, 6)
    assert remembered() == {"answers": 6, "cleared": False}
    assert run() == (6, 0)
    results = desk.run("runs", "results", "latest", "--jsonl", *where).documents
    assert [(each["cached"], each["attempts"], each["latency_ms"]) for each in results] == [(True, 0, None)] * 6
    assert "cached   6 of 6 trials" in desk.run("runs", "show", "latest", *where).out
    assert "cached  " in desk.run("runs", "results", "latest", *where).out
    assert run("--epochs", "2") == (6, 6)
    assert run("--set", "target.settings.off_by=1") == (0, 6)
    off_by_one = desk.run("runs", "results", "latest", "--jsonl", *where).documents
    assert [each["output"] for each in off_by_one] == [2 * n + 1 for n in range(6)]
    assert all("cached" not in each for each in off_by_one)

    changed = PLUGINS.replace("Adds two numbers", "Adds some numbers")
    assert changed != PLUGINS
    desk.write("plugins.py", changed)
    assert run() == (0, 6)
    assert run() == (6, 0)

    assert remembered("--clear") == {"answers": 24, "cleared": True}
    assert "0 answers remembered" in desk.run("cache", *where).out
    assert run() == (0, 6)


def test_what_does_not_go_with_a_cache_is_refused_in_one_line(tmp_path: Path) -> None:
    desk = Desk(tmp_path, items=2)

    without_target = desk.run("run", "sums.yaml", "--set", "cache=true", "--set", "target=none")
    assert (without_target.code, "there is no target whose answers" in without_target.reason) == (2, True)
    not_kept = desk.run("run", "sums.yaml", "--set", "cache=true", "--set", "keep.outputs=false")
    assert (not_kept.code, "keep.outputs" in not_kept.reason) == (2, True)
    assert desk.run("cache").code == 4  # there is no database yet
