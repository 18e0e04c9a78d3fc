"""The JSON that the pages show has the form of what the program prints."""

import json
from typing import Any

import evalbus_server
from evalbus import Item, Output
from evalbus_server.store import open_reader
from evalbus_server.wire.jsonform import event_document, result_document, summary_document
from tests.docs.pages import PAGES

SHOWN = [json.loads(block.body) for block in PAGES["docs/command-line.md"].blocks if block.language == "json"]


def form_of(document: Any) -> Any:
    """A document without its values: lists stand for their first entries."""
    if isinstance(document, dict):
        return {key: form_of(value) for key, value in sorted(document.items())}
    if isinstance(document, list) and document:
        return [form_of(document[0])]
    return type(document).__name__ if not isinstance(document, int | float) or document is True else "number"


def known(item: Item) -> str:
    return "From 9 to 5." if "open" in item.input.text else "I do not know."


def test_the_documents_of_the_command_line_have_the_form_that_is_shown(tmp_path) -> None:
    report = evalbus_server.run(
        {
            "name": "forms",
            "dataset": [
                {"input": "When are you open?", "expected": "9 to 5"},
                {"input": "Do you wrap presents?", "expected": "2 euros"},
            ],
            "scorers": [{"use": "includes", "threshold": 1, "metrics": ["accuracy"]}],
            "criteria": [{"metric": "mean", "scorer": "includes", "min": 0.5}],
        },
        target=known,
        db=tmp_path / "forms.db",
    )
    with open_reader(report.db) as reader:
        run = reader.run(report.run.id)
        results = reader.results(run)
        events = reader.events(run.id, after=0, limit=2)
    printed = [summary_document(report.summary), result_document(results[-1], run), event_document(events[1])]

    assert [form_of(document) for document in SHOWN] == [form_of(json.loads(json.dumps(each))) for each in printed]


def test_a_callback_gets_what_the_page_prints() -> None:
    said: list[Output | None] = []
    evalbus_server.run(
        {"dataset": [{"input": "open"}]}, target=known, on_item=lambda result: said.append(result.output)
    )
    assert [output and output.text for output in said] == ["From 9 to 5."]
