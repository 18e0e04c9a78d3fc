"""Reports for CI: JUnit XML that a parser reads, Markdown that stays a table, whatever the texts hold."""

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.command_line import Desk

NASTY = "a | b\n<script>&amp;</script> ]]> \x00\x1b[31m *bold* \ud83d\ude00 \N{ZERO WIDTH SPACE}"


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def suites(path: Path) -> list[ElementTree.Element]:
    root = ElementTree.parse(path).getroot()
    assert root.tag == "testsuites"
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "")) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, "")) == sum(case.find(tag) is not None for case in cases), name
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(name, "")) == sum(int(suite.get(name, "")) for suite in root)
    return list(root)


def test_a_run_that_passes_has_cases_without_complaint(desk):
    ended = desk.run("run", "sums.yaml", "--junit", "out.xml", "--markdown", "out.md", "--json")

    assert (ended.code, ended.document["verdict"]) == (0, "PASS")
    trials, verdict = suites(desk.folder / "out.xml")
    assert [case.get("name") for case in trials.findall("testcase")] == [f"i{n:03}" for n in range(20)]
    assert {case.get("classname") for case in trials.findall("testcase")} == {"sums.items"}
    assert [case.get("name") for case in verdict.findall("testcase")] == ["nearly all right", "verdict"]
    properties = {each.get("name"): each.get("value") for each in trials.iter("property")}
    assert properties["run"] == ended.document["run"]
    assert properties["mean of exact_match"] == "1.0"
    page = (desk.folder / "out.md").read_text()
    assert page.startswith("## sums: PASS\n")
    assert "did not pass" not in page
    assert os.stat(desk.folder / "out.md").st_mode == os.stat(desk.write("usual", "")).st_mode


def test_what_failed_is_told_with_its_story(desk):
    ended = desk.run(
        "run",
        "sums.yaml",
        "--set",
        "target.settings.off_by=1",
        "--epochs",
        "2",
        "--junit",
        "out.xml",
        "--markdown",
        "out.md",
    )

    assert ended.code == 1
    trials, verdict = suites(desk.folder / "out.xml")
    first = trials.find("testcase")
    assert first is not None and first.get("name") == "i000 [epoch 1]"
    failure = first.find("failure")
    assert failure is not None and failure.get("message") == "exact_match is 0, threshold 1"
    for line in ("input: 0+0", "expected: 0", "output: 1", "close: 0.5000 (off by 1)"):
        assert line in (failure.text or "")
    assert [case.find("failure") is not None for case in verdict.findall("testcase")] == [True, True]
    page = (desk.folder / "out.md").read_text()
    assert "## sums: FAIL" in page
    assert "### Trials that did not pass (the first 20 of 40)" in page
    assert "| i000 | 1 | FAILED | 0 | 0.5000 |" in page


def test_what_errored_is_an_error_with_its_reason(desk):
    ended = desk.run("run", "sums.yaml", "--set", "target.settings.broken=true", "--junit", "out.xml")

    assert ended.code == 3
    trials, verdict = suites(desk.folder / "out.xml")
    error = trials.find("testcase/error")
    assert error is not None
    assert (error.get("type"), error.get("message")) == ("REFUSED", "out of order")
    assert verdict.findall("testcase")[-1].find("error") is not None


def test_texts_of_others_break_neither_xml_nor_tables(desk):
    rows = [{"id": f"i|{n}", "input": NASTY, "expected": f"x{NASTY}"} for n in range(2)]
    desk.write("items.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    desk.write(
        "echo.py",
        "from evalbus import serve, target\n@target('echo')\ndef echo(item):\n    return item.input\nserve(echo)\n",
    )
    desk.write(
        "nasty.yaml",
        "name: nasty | <b>\ndataset: {path: items.jsonl}\ntarget: {command: [python, echo.py]}\n"
        "scorers: [{use: exact_match, threshold: 1}]\n",
    )

    ended = desk.run("run", "nasty.yaml", "--junit", "out.xml", "--markdown", "out.md")

    assert ended.code == 1
    (story,) = {failure.text for failure in suites(desk.folder / "out.xml")[0].iter("failure")}
    assert story is not None and "<script>&amp;</script> ]]> \N{REPLACEMENT CHARACTER}" in story
    page = (desk.folder / "out.md").read_text()
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert "<script>" not in page and "*bold*" not in page.replace("\\*bold\\*", "")


def test_a_run_that_was_resumed_or_watched_has_reports_too(desk):
    run = desk.run("run", "sums.yaml", "--json").document["run"]
    for words in (["watch", run], ["rescore", run, "--set", "scorers=[{use: exact_match}]"]):
        ended = desk.run("runs", *words, "--junit", "out.xml")
        assert ended.code == 0, ended.err
        assert len(suites(desk.folder / "out.xml")[0].findall("testcase")) == 20
        (desk.folder / "out.xml").unlink()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--junit", "nowhere/out.xml"], "there is no folder"),
        (["--markdown", "."], "is a folder; give a file"),
        (["--junit", "out.xml", "--dry-run"], "a dry run has no results"),
    ],
)
def test_a_report_that_cannot_be_is_refused_before_anything_runs(desk, words, complaint):
    ended = desk.run("run", "sums.yaml", *words)

    assert (ended.code, ended.out) == (2, "")
    assert complaint in ended.reason
    assert not (desk.folder / "evalbus.db").exists()


def test_a_verdict_of_pass_does_not_hide_what_errored(desk):
    rows = (desk.folder / "items.jsonl").read_text().replace('"expected": 6', '"expected": "six"')
    desk.write("items.jsonl", rows)  # `close` cannot judge this one, and no criterion looks at it
    desk.write("some.yaml", (desk.folder / "sums.yaml").read_text().replace("min: 0.9", "min: 0.9, min_coverage: 0.9"))
    ended = desk.run(
        "run", "some.yaml", "--set", "limits.retries=0", "--junit", "out.xml", "--markdown", "out.md", "--json"
    )

    note = "1 of 20 trials errored: no criterion looks at that"
    assert (ended.code, ended.document["verdict"], ended.document["notes"]) == (0, "PASS", [note])
    assert [each.text for each in suites(desk.folder / "out.xml")[1].iter("system-out")] == [note]
    assert note in (desk.folder / "out.md").read_text()


def test_a_limit_that_ended_a_run_is_what_to_set_next(desk):
    ended = desk.run("run", "sums.yaml", "--set", "limits.deadline=1ms", "--set", "target.settings.delay=1")

    assert ended.code == 4
    assert [line.split("evalbus ")[1].split()[1] for line in ended.out.splitlines() if "evalbus runs" in line][:2] == [
        "set",
        "resume",
    ]
    assert "limits.deadline=…" in ended.out
