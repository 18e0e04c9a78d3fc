"""Which file gives a dataset its name, and when another one may."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from evalbus_server.errors import Conflict, Reason
from evalbus_server.model.dataset import Origin
from evalbus_server.model.experiment import Experiment
from evalbus_server.runner.origin import origin_of


def experiment(folder: Path, **dataset: Any) -> Experiment:
    return Experiment.model_validate(
        {"name": "e", "dataset": {"folder": str(folder), **dataset}, "target": None, "scorers": [{"use": "includes"}]}
    )


def test_a_file_is_told_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    of = experiment(tmp_path / "link", path="../real/d.jsonl")

    assert origin_of(of, "d", "") == Origin(os.path.realpath(tmp_path / "real" / "d.jsonl"))


@pytest.mark.parametrize("named", [{"name": "d", "path": "d.jsonl"}, {"name": "d"}, {"records": [{"input": "x"}]}])
def test_a_dataset_that_somebody_named_has_no_origin(tmp_path: Path, named: dict[str, Any]) -> None:
    known = tmp_path / "other.jsonl"
    known.write_text("")

    assert origin_of(experiment(tmp_path, **named), "d", str(known)) is None


def test_another_file_is_refused_while_the_first_is_there(tmp_path: Path) -> None:
    known, of = tmp_path / "other.jsonl", experiment(tmp_path, path="d.jsonl")
    known.write_text("")

    with pytest.raises(Conflict) as caught:
        origin_of(of, "d", str(known))
    known.unlink()
    moved = origin_of(of, "d", str(known))

    assert caught.value.reason is Reason.DATASET_EXISTS
    assert moved == Origin(os.path.realpath(tmp_path / "d.jsonl"), moved_from=str(known))


def test_a_path_is_text_whatever_it_is_made_of(tmp_path: Path) -> None:
    origin = origin_of(experiment(tmp_path / "a\nb" / os.fsdecode(b"\xff"), path="d.jsonl"), "d", "")

    assert origin is not None
    assert origin.file.endswith("/a\\x0ab/\\xff/d.jsonl")
