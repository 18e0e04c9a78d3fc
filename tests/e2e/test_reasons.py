"""Nothing that was said of a trial gets lost on the way to whoever asks why: over the API, and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from evalbus import Output, Score, ScoreTask, Trial, scorer, start_server, target
from tests.e2e.command_line import Desk
from tests.e2e.service import serving

PLUGINS = """
from evalbus import Output, Score, ScoreStep, ScoreTask, Span, Timing, Trial, Usage, Value, scorer, serve, target


@target("wavering", version="1.0.0")
def wavering(trial: Trial) -> Output:
    return Output(
        Value(f"said {trial.epoch}"), spans=[Span("1", "plan")], metadata={"seed": trial.epoch}, timing=Timing(0.5)
    )


@scorer("judge", version="1.0.0")
def judge(task: ScoreTask) -> Score:
    steps = [ScoreStep("read", Value.of({"epoch": task.epoch}))]
    usage = Usage(task.epoch, calls=1)
    told = {"metadata": {"epoch": task.epoch}, "steps": steps, "usage": usage, "trace_ids": [f"t{task.epoch}"]}
    return Score.scored(task.epoch / 4, f"reason {task.epoch}", **told)


serve(wavering, judge)
"""


ROWS = [{"id": "a", "input": "x"}, {"id": "b", "input": "y"}]


async def test_case_ag_17_each_epoch_keeps_its_output_its_reason_and_its_metadata(tmp_path):
    @target("wavering")
    def wavering(trial: Trial) -> Output:
        return Output(f"said {trial.epoch}", metadata={"seed": trial.epoch})

    @scorer("judge")
    def judge(task: ScoreTask) -> Score:
        return Score.scored(task.epoch / 4, f"reason {task.epoch}", metadata={"epoch": task.epoch})

    plugins = await start_server(wavering, judge)
    try:
        async with serving(tmp_path) as served:
            at = {"address": plugins.address}
            asked = {"name": "x", "dataset": {"records": ROWS}, "target": at, "scorers": [at]}
            run = await served.client.start({**asked, "epochs": {"count": 3, "reducer": "median"}})
            await run.wait()
            results = [result async for result in run.results()]
            summary = await run.summary()
    finally:
        await plugins.stop()

    for item in ("a", "b"):
        found = [result for result in results if result.item.id == item]
        assert [result.epoch for result in found] == [1, 2, 3]
        for epoch, result in enumerate(found, 1):
            assert result.output is not None
            assert (result.output.text, result.output.metadata) == (f"said {epoch}", {"seed": epoch})
            (score,) = [each.score for each in result.scores]
            assert (score.value, score.explanation) == (epoch / 4, f"reason {epoch}")
            assert score.metadata == {"epoch": epoch}
    (number,) = summary.scores
    assert (number.n, number.n_trials, number.mean) == (2, 6, 0.5)


def test_case_ag_17_the_lines_of_results_have_it_all_and_can_be_judged_anew(tmp_path: Path) -> None:
    desk = Desk(tmp_path, items=1)
    desk.write("told.py", PLUGINS)
    rows = [{"id": "a", "input": "x", "metadata": {"topic": "tea"}, "tags": ["small"]}]
    asked = {
        "name": "told",
        "dataset": {"records": rows},
        "target": {"command": ["python", "told.py"]},
        "scorers": [{"command": ["python", "told.py"]}],
        "epochs": 3,
    }
    desk.write("told.json", json.dumps(asked))
    assert desk.run("run", "told.json").code == 0

    lines = desk.run("runs", "results", "latest", "--jsonl").out
    found = [json.loads(line) for line in lines.splitlines()]

    assert [line["epoch"] for line in found] == [1, 2, 3]
    for epoch, line in enumerate(found, 1):
        assert (line["output"], line["output_metadata"]) == (f"said {epoch}", {"seed": epoch})
        assert (line["metadata"], line["tags"]) == ({"topic": "tea"}, ["small"])
        assert (line["spans"], line["timing"]) == ([{"id": "1", "name": "plan"}], {"total": 0.5})
        score = line["scores"]["judge"]
        assert (score["explanation"], score["metadata"]) == (f"reason {epoch}", {"epoch": epoch})
        assert score["steps"] == [{"name": "read", "result": {"epoch": epoch}}]
        assert (score["usage"]["input_tokens"], score["trace_ids"]) == (epoch, [f"t{epoch}"])

    desk.write("lines.jsonl", lines)
    assert desk.run("dataset", "import", "again", "lines.jsonl", "--from", "results").code == 0
    item = desk.run("dataset", "show", "again", "a#2", "--json").document
    assert item["output"] == {
        "content": "said 2",
        "spans": [{"id": "1", "name": "plan"}],
        "metadata": {"seed": 2},
        "timing": {"total": 0.5},
    }
    assert (item["metadata"]["topic"], item["tags"]) == ("tea", ["small"])
