"""The plugin in proto/README.md, written from the generated code alone, works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evalbus import CallFailed, Item
from evalbus_server.api.rules import Allowed, AllowedCommand

from .service import experiment, serving

PROTO = Path(__file__).parents[2] / "proto"
PAGE = PROTO / "README.md"


def example(folder: Path, name: str) -> None:
    """A program of the page, written to a folder."""
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    (folder / name).write_text(found[1])


async def test_the_plugin_without_an_sdk_is_started_and_asked(tmp_path: Path) -> None:
    example(tmp_path, "shout.py")
    allowed = Allowed((AllowedCommand(("python", "shout.py"), str(tmp_path)),))
    async with serving(tmp_path, allowed=allowed) as served:
        await served.client.upload_dataset(
            "d", [Item(f"i{index}", f"text {index}", f"TEXT {index}") for index in range(600)]
        )
        run = await served.client.start(experiment("", target={"command": ["python", "shout.py"]}))
        ended = await run.wait()

    assert (ended.state.name, ended.counts.passed) == ("COMPLETED", 600)


async def test_the_scorer_without_an_sdk_judges_and_skips_and_has_its_settings_checked(tmp_path: Path) -> None:
    example(tmp_path, "brief.py")
    scorer = {"command": ["python", "brief.py"], "threshold": 1}
    allowed = Allowed((AllowedCommand(("python", "brief.py"), str(tmp_path)),))
    said = {"short": "one two", "long": " ".join(["word"] * 30), "none": ""}
    records = [{"id": item_id, "input": "?", "output": text} for item_id, text in said.items()]
    given = {"name": "x", "dataset": {"records": records}, "target": "none"}
    async with serving(tmp_path, allowed=allowed) as served:
        results = {}
        for words in (None, 1):
            settings = {} if words is None else {"settings": {"words": words}}
            run = await served.client.start({**given, "scorers": [{**scorer, **settings}]})
            await run.wait()
            results[words] = {result.item.id: result async for result in run.results()}
        with pytest.raises(CallFailed, match="words"):
            await served.client.start({**given, "scorers": [{**scorer, "settings": {"words": "ten"}}]})

    outcomes = {words: {item: each.outcome.name for item, each in found.items()} for words, found in results.items()}
    assert outcomes[None] == {"short": "PASSED", "long": "FAILED", "none": "SKIPPED"}
    assert outcomes[1] == {"short": "FAILED", "long": "FAILED", "none": "SKIPPED"}
    assert results[1]["short"].scores[0].score.explanation == "2 words"


def test_every_page_that_the_contract_links_to_is_there() -> None:
    for page in (PAGE, *(PROTO / "decisions").glob("*.md")):
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
