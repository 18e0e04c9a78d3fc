"""All scorers of each library can be described: none is missing because its constructor is of an unknown kind."""

from __future__ import annotations

from typing import Any

import pytest

from evalbus_server.runner.documents import read_yaml
from tests.docs.pages import PAGES, Page

pytestmark = pytest.mark.timeout(400)

ENVIRONMENTS = {"autoevals": "judges", "deepeval": "judges", "ragas": "ragas", "inspect_ai": "inspect"}
DESCRIBE = """
import importlib, json, sys
from evalbus.adapters import AdapterError, find

library, place, versions = sys.argv[1], sys.argv[2], {}
module = importlib.import_module(place)
for name in getattr(module, "__all__", None) or dir(module):
    try:
        plugin = find(f"{library}.{name}")
    except AdapterError:
        continue
    json.loads(plugin.info.settings_schema)
    versions[name] = plugin.info.version
print(json.dumps(versions))
"""


def settings_of_page(page: Page, environment: str) -> list[tuple[str, Any]]:
    """The scorers of libraries that a page uses, with their settings, as far as they are in an environment."""
    parts = [read_yaml(block.body).data for block in page.blocks if block.language == "yaml"]
    uses = [use for part in parts for use in part.get("scorers", ())]
    return [
        (use["use"], use.get("settings", {}))
        for use in uses
        if ENVIRONMENTS.get(str(use["use"]).partition(".")[0]) == environment
    ]


@pytest.mark.parametrize(
    ("library", "place", "some"),
    [
        ("autoevals", "autoevals", {"Factuality", "Levenshtein", "AnswerCorrectness", "Moderation"}),
        ("deepeval", "deepeval.metrics", {"GEval", "FaithfulnessMetric", "ToolCorrectnessMetric"}),
        ("ragas", "ragas.metrics.collections", {"Faithfulness", "NoiseSensitivity", "ToolCallF1", "ExactMatch"}),
        ("inspect_ai", "inspect_ai.scorer", {"match", "includes", "choice", "model_graded_qa"}),
    ],
)
def test_every_scorer_can_be_described(bench, library, place, some):
    found = bench(ENVIRONMENTS[library]).ask(DESCRIBE, library, place)
    assert some <= found.keys()
    assert len(found) >= {"autoevals": 25, "deepeval": 25, "ragas": 30, "inspect_ai": 10}[library]
    (version,) = set(found.values())
    rows = [row for row in PAGES["docs/scorers/bring-your-own.md"].text.splitlines() if f"`{library}.NAME`" in row]
    assert version in rows[0], f"tested with {version}"
