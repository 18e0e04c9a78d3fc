"""The plugin in proto/README.md, written from the generated code alone, works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from evalbus import Item
from evalbus_server.api.rules import Allowed, AllowedCommand

from .service import experiment, serving

PROTO = Path(__file__).parents[2] / "proto"
PAGE = PROTO / "README.md"


async def test_the_plugin_without_an_sdk_is_started_and_asked(tmp_path: Path) -> None:
    found = re.search(r"<!-- example: shout\.py -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "shout.py").write_text(found[1])
    allowed = Allowed((AllowedCommand(("python", "shout.py"), str(tmp_path)),))
    async with serving(tmp_path, allowed=allowed) as served:
        await served.client.upload_dataset(
            "d", [Item(f"i{index}", f"text {index}", f"TEXT {index}") for index in range(600)]
        )
        run = await served.client.start(experiment("", target={"command": ["python", "shout.py"]}))
        ended = await run.wait()

    assert (ended.state.name, ended.counts.passed) == ("COMPLETED", 600)


def test_every_page_that_the_contract_links_to_is_there() -> None:
    for page in (PAGE, *(PROTO / "decisions").glob("*.md")):
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
