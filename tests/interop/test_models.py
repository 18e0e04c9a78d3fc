"""From end to end with real models: an agent that asks one, and scorers that ask it and another."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from evalbus import Item, ScorerBench
from evalbus_server.scorer.builtin import BUILTINS
from tests.e2e.command_line import Desk
from tests.interop.conftest import interpreter

pytestmark = pytest.mark.timeout(400)

AGENT = '''
import json
import os
import urllib.request

from evalbus import Item, Output, Usage, serve, target


@target("small", version="1.0.0")
def small(item: Item) -> Output:
    """Asks a small language model."""
    body = {"model": "m", "messages": [{"role": "user", "content": item.input.text}], "temperature": 0, "seed": 1, "max_tokens": 24}
    request = urllib.request.Request(os.environ["WRITES"] + "/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as reply:
        said = json.load(reply)
    used = said["usage"]
    return Output(said["choices"][0]["message"]["content"], usage=Usage(used["prompt_tokens"], used["completion_tokens"], calls=1))


serve(small)
'''


@pytest.fixture(scope="module")
def models():
    """The addresses of both models."""
    script = Path(__file__).with_name("models.py")
    process = subprocess.Popen(
        [str(interpreter("models")), str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        yield json.loads(next(line for line in lines if line.startswith("{")))
    finally:
        process.communicate("", timeout=30)


def test_an_agent_and_its_judges_on_real_models(models, tmp_path):
    judges, ragas = interpreter("judges"), interpreter("ragas")
    desk = Desk(tmp_path)
    desk.write("agent.py", AGENT)
    asks = {"model": "gpt-4o", "base_url": models["writes"]}
    grade = {
        **asks,
        "evaluation_steps": ["Is the answer about a city?"],
        "evaluation_params": ["actual_output"],
    }
    experiment = {
        "name": "small",
        "dataset": {
            "name": "questions",
            "records": [
                {
                    "id": "capital",
                    "input": "Name the capital of France.",
                    "expected": "The capital of France is Paris.",
                },
            ],
        },
        "target": {"command": ["python", "agent.py"], "env": {"WRITES": models["writes"]}},
        "scorers": [
            {
                "use": "embedding_similarity",
                "settings": {"model": "minilm", "base_url": models["embeds"]},
                "threshold": 0.2,
            },
            {
                "use": "ragas.SemanticSimilarity",
                "python": str(ragas),
                "settings": {"embedding_model": "minilm", "base_url": models["embeds"]},
            },
            {"use": "ragas.AnswerAccuracy", "python": str(ragas), "settings": asks, "concurrency": 1},
            {"use": "deepeval.GEval", "python": str(judges), "settings": grade, "concurrency": 1},
        ],
        "limits": {"timeout": "2m", "retries": 0, "concurrency": 1},
    }
    desk.write("small.json", json.dumps(experiment))
    ended = desk.run("run", "small.json", "--json", timeout=350)
    assert ended.code in (0, 1, 3), ended.err
    summary = ended.document
    assert summary["state"] == "COMPLETED"
    assert summary["scores"]["embedding_similarity"]["n"] == 1
    assert summary["usage"]["input_tokens"] > 100
    for result in desk.run("runs", "results", "latest", "--jsonl").documents:
        scores = result["scores"]
        assert result["output"]
        # The same texts, the same model: two ways to one number.
        ours, theirs = scores["embedding_similarity"]["value"], scores["SemanticSimilarity"]["value"]
        assert ours == pytest.approx(theirs, abs=1e-6)
        # So small a model is no judge; what it says is a number in range, or an error, and never a silent zero.
        for score in scores.values():
            if score["status"] == "SCORED":
                assert 0 <= score["value"] <= 1
            else:
                assert score["failure"]["message"], score


async def test_meaning_is_nearer_than_words(models):
    settings = {"model": "minilm", "base_url": models["embeds"]}
    bench = ScorerBench(BUILTINS["embedding_similarity"], settings)

    async def nearness(left: str, right: str) -> float:
        score = await bench.score(Item("q", "", right), left)
        assert score.value is not None
        return score.value

    same = await nearness("The cat sleeps on the sofa.", "A kitten is napping on the couch.")
    other = await nearness("The cat sleeps on the sofa.", "Interest rates rose again this year.")
    assert same > 0.5 > 0.3 > other
