"""Tool mocks from the dataset file to the results: a real target calls them, and a scorer looks at the report."""

import json

from tests.e2e.command_line import Desk

AGENT = '''
from evalbus import Context, Item, Output, ToolMockFailed, serve, target


@target("agent", version="1.0.0")
def agent(item: Item, ctx: Context) -> Output:
    """Asks the weather of each city that it is given."""
    found = []
    for city in item.input.text.split():
        try:
            found.append(ctx.tools.call("weather", {"city": city}))
        except ToolMockFailed as failed:
            if item.metadata.get("careless"):
                raise
            found.append(failed.kind.name)
    return Output(" ".join(found), tool_calls=ctx.tools.calls)


serve(agent)
'''

EXPERIMENT = """
name: mocked
dataset: {path: mocked.jsonl}
target: {command: [python, agent.py]}
scorers:
  - {use: exact_match, threshold: 1.0}
  - {use: exact_match, name: left, map: {output: output.tool_mocks.unused, expected: item.metadata.left}}
limits: {concurrency: 1}
"""


def weather(output, **more):
    return {"tool": "weather", "output": output, **more}


ROWS = [
    {
        "id": "strict",
        "input": "Oslo Rome Oslo",
        "expected": "snow sun EXHAUSTED",
        "left": 0,
        "tool_mocks": [weather("sun", arguments={"city": "Rome"}), weather("snow", arguments={"city": "Oslo"})],
    },
    {"id": "ignored", "input": "a b", "expected": "one two", "left": 0, "tool_mocks": [weather("one"), weather("two")]},
    {
        "id": "other",
        "input": "a",
        "expected": "NOT_DECLARED",
        "left": 1,
        "tool_mocks": [{"tool": "time", "output": "noon"}],
    },
    {"id": "none", "input": "", "expected": "", "left": 0},
    {
        "id": "fails",
        "input": "Rome",
        "careless": True,
        "tool_mocks": [weather("snow", arguments={"city": "Oslo"})],
    },
]


def test_mocks_travel_with_the_item_and_their_report_is_in_the_results(tmp_path):
    desk = Desk(tmp_path)
    desk.write("agent.py", AGENT)
    desk.write("mocked.yaml", EXPERIMENT)
    desk.write("mocked.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))

    run = desk.run("run", "mocked.yaml", "--json").document
    results = {line["item"]: line for line in desk.run("runs", "results", run["run"], "--jsonl").documents}

    assert {name: line.get("tool_mocks") for name, line in results.items()} == {
        "strict": {
            "used": 2,
            "unused": 0,
            "faults": [{"tool": "weather", "kind": "EXHAUSTED", "arguments": {"city": "Oslo"}}],
        },
        "ignored": {"used": 2, "unused": 0, "faults": []},
        "other": {
            "used": 0,
            "unused": 1,
            "faults": [{"tool": "weather", "kind": "NOT_DECLARED", "arguments": {"city": "a"}}],
        },
        "none": None,
        "fails": None,
    }
    assert {name: line["scores"]["exact_match"].get("passed") for name, line in results.items() if line["scores"]} == {
        "strict": True, "ignored": True, "other": True, "none": True,
    }  # fmt: skip
    left = {name: line["scores"].get("left") for name, line in results.items()}
    assert {name: score and score["value"] for name, score in left.items()} == {
        "strict": 1.0, "ignored": 1.0, "other": 1.0, "none": None, "fails": None,
    }  # fmt: skip
    assert "output.tool_mocks.unused" in left["none"]["failure"]["message"]
    assert results["fails"]["failure"]["reason"] == "TOOL_MOCK_MISMATCH"
    assert (results["fails"]["outcome"], results["fails"]["attempts"]) == ("ERRORED", 1)
    exported = desk.run("dataset", "export", "mocked").documents
    assert [row.get("tool_mocks") for row in exported] == [row.get("tool_mocks") for row in ROWS]
