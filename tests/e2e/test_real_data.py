"""Runs over data that other people made: every number is what an independent count of the same data gives.

The data lies beside the project and is none of its own; where it is not there, these tests are skipped.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command_line import Ended, command, environment
from tests.plugins.banking77_target import Settings, fit
from tests.plugins.gsm8k_target import solve

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "plugins"
DATA = ROOT.parent / "shared" / "data"


def needs(name: str) -> Any:
    """A test over a data set that may not be there."""
    return pytest.mark.skipif(
        not (DATA / name).is_dir(), reason=f"there is no {name} beside the project (../shared/data)"
    )


class Desk:
    """A folder with an experiment, and `evalbus` as a process."""

    def __init__(self, folder: Path, experiment: Mapping[str, Any]) -> None:
        self.folder = folder
        (folder / "experiment.json").write_text(json.dumps(experiment))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(words), cwd=self.folder, env=environment(None), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> Ended:
        return ended(self.start(*words))

    def results(self, run: str) -> list[Any]:
        return self.run("runs", "results", run, "--jsonl").documents


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=150)
    return Ended(process.returncode, out, err)


def numbers(document: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs of one experiment must agree on, to the last digit."""
    keys = ("counts", "pass_rate", "coverage", "weighted", "scores", "criteria", "verdict", "dataset", "digest")
    return {key: document[key] for key in keys}


def counted(rows: Sequence[bool]) -> dict[str, int]:
    """The counts of a run in which each trial passes or fails."""
    return {
        "planned": len(rows),
        "passed": sum(rows),
        "failed": len(rows) - sum(rows),
        "errored": 0,
        "skipped": 0,
        "pending": 0,
    }


@needs("banking77")
def test_questions_to_a_bank_are_sorted_as_the_classifier_alone_sorts_them(tmp_path: Path):
    """3,080 questions from a CSV file: every output, every score and every mean, in two runs that agree."""
    train, test = DATA / "banking77" / "train.csv", DATA / "banking77" / "test.csv"
    desk = Desk(
        tmp_path,
        {
            "name": "banking77",
            "dataset": {"path": str(test), "name": "banking77", "fields": {"input": "text", "expected": "category"}},
            "target": {"command": ["python", str(PLUGINS / "banking77_target.py")], "settings": {"train": str(train)}},
            "scorers": [{"use": "exact_match", "threshold": 1.0}],
            "limits": {"concurrency": 64},
            "criteria": [{"metric": "mean", "scorer": "exact_match", "min": 0.6}],
        },
    )
    with test.open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    assert len(rows) == 3080

    running = desk.start("run", "experiment.json", "--json")
    classifier = fit(Settings(str(train)))  # meanwhile, for itself
    guesses = [classifier.classify(text).intent for text, _ in rows]
    right = [guess == category for guess, (_, category) in zip(guesses, rows, strict=True)]
    first = ended(running)
    second = desk.run("run", "experiment.json", "--json")

    assert (first.code, first.err) == (0, "")
    document = first.document
    accuracy = float(Fraction(sum(right), len(right)))
    assert accuracy > 0.6
    assert document["counts"] == counted(right)
    assert document["pass_rate"] == document["weighted"] == document["scores"]["exact_match"]["mean"] == accuracy
    assert document["coverage"] == 1.0
    assert document["scores"]["exact_match"]["n"] == len(rows)
    assert document["verdict"] == "PASS"
    results = desk.results(document["run"])
    assert [(result["input"], result["expected"]) for result in results] == rows
    assert [result["output"] for result in results] == guesses
    assert [result["outcome"] == "PASSED" for result in results] == right
    assert len({result["item"] for result in results}) == len(rows)
    assert numbers(second.document) == numbers(document)
    assert second.document["run"] != document["run"]


@needs("gsm8k")
def test_school_arithmetic_is_scored_as_counted_by_hand(tmp_path: Path):
    """1,319 questions that a command prints; the solver is seldom right, and the run says exactly how seldom."""
    questions = DATA / "gsm8k" / "test.jsonl"
    desk = Desk(
        tmp_path,
        {
            "name": "gsm8k",
            "dataset": {"command": ["python", str(PLUGINS / "gsm8k_items.py"), str(questions)], "name": "gsm8k"},
            "target": {"command": ["python", str(PLUGINS / "gsm8k_target.py")]},
            "scorers": [{"use": "exact_match", "threshold": 1.0}, {"use": "numeric_diff"}],
            "limits": {"concurrency": 32},
        },
    )
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    expected = [re.findall(r"#### (-?[\d,]+)$", row["answer"])[0].replace(",", "") for row in rows]

    ran = desk.run("run", "experiment.json", "--json")

    assert ran.code in (0, 1), ran.err  # FAIL: there are no criteria, and trials that failed
    document = ran.document
    results = desk.results(document["run"])
    assert [(result["input"], result["expected"]) for result in results] == list(
        zip((row["question"] for row in rows), expected, strict=True)
    )
    answers = [result["answer"] for result in results]
    assert answers == [shown(solve(row["question"])) for row in rows]
    right = [answer == wanted for answer, wanted in zip(answers, expected, strict=True)]
    close = [closeness(Fraction(answer), Fraction(wanted)) for answer, wanted in zip(answers, expected, strict=True)]
    assert 0 < sum(right) < len(right)
    assert document["counts"] == counted(right)
    assert document["scores"]["exact_match"]["mean"] == float(Fraction(sum(right), len(right)))
    assert [result["scores"]["numeric_diff"]["value"] for result in results] == close
    mean = sum(map(Fraction, close)) / len(close)
    assert document["scores"]["numeric_diff"]["mean"] == pytest.approx(float(mean), rel=1e-15)
    assert document["scores"]["numeric_diff"]["n"] == len(rows)
    assert all(result["output"] == f"I make it {result['answer']}." for result in results)


def closeness(left: Fraction, right: Fraction) -> float:
    """1 - |a - b| / (|a| + |b|), rounded once."""
    return 1.0 if left == right else float(1 - abs(left - right) / (abs(left) + abs(right)))


def shown(number: Fraction) -> str:
    """A number with two decimals at most."""
    if number.denominator == 1:
        return str(int(number))
    return f"{float(number):.2f}".rstrip("0").rstrip(".")
