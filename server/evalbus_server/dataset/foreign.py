"""Rows in the forms of other systems, turned into ours before anything is mapped.

What has no field of its own becomes metadata, under the name that it has there. Nothing is evaluated: templates,
assertions in code and references to files stay text.
"""

from __future__ import annotations

from collections.abc import Callable

from evalbus import NULL, Value
from evalbus_server.dataset.cells import Row, cell_of, elements, members, object_of, raw_json
from evalbus_server.dataset.chat import chat_completions
from evalbus_server.dataset.refusal import RowRefused

Cells = dict[str, Value]

_ANSWERS = ("equals", "similar", "factuality", "icontains", "contains", "starts-with", "llm-rubric")
"""Assertions of promptfoo whose value is an answer, the best one first."""


def inspect_ai(cells: Cells) -> Cells:
    """Samples of inspect_ai: `input` (text or messages), `target`, `choices`, `id`, `metadata`, and files."""
    made = _renamed(cells, {"target": "expected"})
    choices = made.get("choices")
    if choices is not None and choices.kind == "text":
        words = choices.text.split(",") if "," in choices.text else choices.text.split()
        made["choices"] = Value.of([word.strip() for word in words])
    metadata = made.get("metadata")
    if metadata is not None and metadata.kind == "text":
        made["metadata"] = cell_of(metadata.text)
    return _conversation(made, "input")


def openai_evals(cells: Cells) -> Cells:
    """Samples of OpenAI evals: `input` (text or messages) and `ideal`."""
    return _conversation(_renamed(cells, {"ideal": "expected"}), "input")


def voltagent(cells: Cells) -> Cells:
    """Items of VoltAgent: `id` or `name`, `input`, `expected`, and `extra`, which becomes metadata."""
    made = dict(cells)
    if "id" not in made and "name" in made:
        made["id"] = made.pop("name")
    extra = made.pop("extra", None)
    if extra is not None and extra != NULL:
        if extra.kind != "json" or not extra.text.startswith("{"):
            raise RowRefused("bad_field", "extra must be a JSON object")
        made = {**{key: cell_of(raw) for key, raw in members(extra.text).items()}, **made}
    return _without_null(made, "id", "metadata", "label")


def mastra(cells: Cells) -> Cells:
    """Items of Mastra: `input`, `groundTruth`, `metadata`, and `externalId` or `id`."""
    made = dict(cells)
    external = made.pop("externalId", None)
    if external is not None and external != NULL:
        inner = made.pop("id", None)
        made["id"] = external
        if inner is not None:
            made["mastraId"] = inner
    made = _without_null(_renamed(made, {"groundTruth": "expected"}), "id", "metadata", "expected")
    for key in ("datasetId", "datasetVersion", "createdAt", "updatedAt", "isDeleted", "validTo"):
        made.pop(key, None)
    return made


def promptfoo(cells: Cells) -> Cells:
    """Tests of promptfoo: `vars` become the input (alone as it is, several as an object), an assertion the answer.

    In CSV, columns that begin with two underscores are promptfoo's, all others are vars.
    """
    if "vars" not in cells:
        return _promptfoo_csv(cells)
    made = dict(cells)
    made["input"] = _input_of({key: cell_of(raw) for key, raw in members(raw_json(made.pop("vars"))).items()})
    found = made.get("assert")
    if found is not None and found.kind == "json" and found.text.startswith("["):
        answer = _answer([{key: cell_of(raw) for key, raw in members(each).items()} for each in _objects(found.text)])
        if answer is not None:
            made["expected"] = answer
    return made


def results(cells: Cells) -> Cells:
    """Lines of `runs results --jsonl`: the items as they were asked, each with the output that it got."""
    made: Cells = {}
    epoch = cells.get("epoch")
    item = cells.get("item")
    if item is not None:
        first = epoch is None or epoch.text == "1"
        made["id"] = item if first or epoch is None else Value(f"{item.text}#{epoch.text}")
    for field in ("input", "expected", "metadata", "tags"):
        if field in cells:
            made[field] = cells[field]
    spoken = {
        key: cells[name]
        for key, name in (
            ("content", "output"),
            ("answer", "answer"),
            ("messages", "messages"),
            ("tool_calls", "tool_calls"),
            ("spans", "spans"),
            ("timing", "timing"),
            ("metadata", "output_metadata"),
            ("trace_ids", "trace_ids"),
        )
        if name in cells
    }
    if "content" in spoken or "messages" in spoken:
        made["output"] = cell_of(object_of(spoken))
    for name in ("outcome", "scores"):
        if name in cells:
            made[name] = cells[name]
    return made


FOREIGN: dict[str, Callable[[Cells], Cells]] = {
    "chat_completions": chat_completions,
    "inspect_ai": inspect_ai,
    "promptfoo": promptfoo,
    "openai_evals": openai_evals,
    "voltagent": voltagent,
    "mastra": mastra,
    "results": results,
}
RECORDS = {"voltagent": "data", "mastra": "items", "promptfoo": "tests"}
"""Where the rows stand if the file is one JSON object."""

IDS = {"chat_completions": "custom_id"}
"""The column by which rows of two files are joined."""


def turned(row: Row, name: str) -> Row:
    """A row in our form.

    Raises:
        RowRefused: it has not the form that it should have.
    """
    try:
        return Row(row.line, FOREIGN[name](row.cells), row.size)
    except RowRefused:
        raise
    except (ValueError, TypeError) as error:
        raise RowRefused("bad_field", f"not in the form of {name}: {error}") from None


def _renamed(cells: Cells, names: dict[str, str]) -> Cells:
    return {names.get(name, name): cell for name, cell in cells.items()}


def _without_null(cells: Cells, *names: str) -> Cells:
    return {name: cell for name, cell in cells.items() if name not in names or cell != NULL}


def _conversation(cells: Cells, field: str) -> Cells:
    """A field that holds messages becomes those, and the last thing that the user says."""
    given = cells.get(field)
    if given is None or given.kind != "json" or not given.text.startswith("["):
        return cells
    kept: list[str] = []
    said: Value | None = None
    for each in _objects(given.text):
        parts = {key: cell_of(raw) for key, raw in members(each).items()}
        known: Cells = {key: parts[key] for key in ("role", "content", "name", "tool_call_id") if key in parts}
        calls = parts.get("tool_calls")
        if calls is not None and calls != NULL:
            known["tool_calls"] = cell_of(f"[{','.join(_tool_call(raw) for raw in _objects(calls.text))}]")
        if known.get("name") == NULL:
            del known["name"]
        if "role" not in known:
            raise RowRefused("bad_field", f"{field} holds a message without a role")
        if known["role"] == Value("user") and "content" in known:
            said = known["content"]
        kept.append(object_of(known))
    if said is None:
        raise RowRefused("no_input", f"no message in {field} is the user's")
    return {**cells, field: said, "messages": cell_of(f"[{','.join(kept)}]")}


def _tool_call(raw: str) -> str:
    parts = {key: cell_of(each) for key, each in members(raw).items()}
    function = parts.get("function")
    if function is not None and function.kind == "text":  # inspect_ai; chat APIs have an object here
        parts = {"name": function, **{key: parts[key] for key in ("id", "arguments") if key in parts}}
    return object_of(parts)


def _objects(text: str) -> list[str]:
    found = elements(text)
    if not all(each.startswith("{") for each in found):
        raise RowRefused("bad_field", "a list of objects is needed")
    return found


def _input_of(variables: Cells) -> Value:
    if not variables:
        raise RowRefused("no_input", "vars holds nothing")
    return next(iter(variables.values())) if len(variables) == 1 else cell_of(object_of(variables))


def _answer(assertions: list[Cells]) -> Value | None:
    by_type = {each["type"].text: each["value"] for each in assertions[::-1] if "type" in each and "value" in each}
    return next((by_type[kind] for kind in _ANSWERS if kind in by_type), None)


def _promptfoo_csv(cells: Cells) -> Cells:
    variables = {name: cell for name, cell in cells.items() if not name.startswith("__")}
    made: Cells = {"input": _input_of(variables)}
    assertions: list[Cells] = []
    for name, cell in cells.items():
        if name.startswith("__expected"):
            kind, colon, value = cell.text.partition(":")
            typed = bool(colon) and kind.replace("-", "").isalpha() and " " not in kind
            assertions.append(
                {"type": Value(kind if typed else "equals"), "value": Value(value.strip() if typed else cell.text)}
            )
        elif name.startswith("__metadata:"):
            made[name.removeprefix("__metadata:").removesuffix("[]")] = cell
        elif name == "__description":
            made["description"] = cell
        elif name.startswith("__"):
            made[name.removeprefix("__")] = cell
    if assertions:
        made["assert"] = Value.of([{key: part.text for key, part in each.items()} for each in assertions])
        answer = _answer(assertions)
        if answer is not None:
            made["expected"] = answer
    return made
