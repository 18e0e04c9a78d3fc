"""Datasets that a command prints."""

from __future__ import annotations

import os
import sys
import time

import pytest

from evalbus_server.dataset import command
from evalbus_server.dataset.read import read_batches
from evalbus_server.dataset.refusal import DatasetInvalid
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset_use import DatasetUse


def printed(tmp_path, script: str, *arguments: str) -> list[str]:
    (tmp_path / "make.py").write_text(script)
    use = DatasetUse(command=("python", "make.py", *arguments), folder=str(tmp_path))
    return [item.id for batch in read_batches(use) for item in batch]


def test_a_command_prints_items_from_its_own_folder(tmp_path):
    (tmp_path / "ids").write_text("a b")
    script = "import json, sys\nfor i in open('ids').read().split(): print(json.dumps({'id': i, 'input': sys.argv[1]}))"

    assert printed(tmp_path, script, "x y") == ["a", "b"]


def test_python_is_the_interpreter_of_the_server(tmp_path):
    script = 'import sys\nprint(\'{"id": "%s", "input": 1}\' % sys.executable)'

    assert printed(tmp_path, script) == [sys.executable]


def test_a_command_that_fails_is_refused_with_the_end_of_its_stderr(tmp_path):
    script = "import sys\nprint('{\"input\": 1}')\nfor n in range(5000): print('row', n, file=sys.stderr)\nsys.exit(3)"

    with pytest.raises(Invalid) as caught:
        printed(tmp_path, script)

    assert caught.value.reason is Reason.DATASET_INVALID
    assert str(caught.value).startswith("python make.py: ended with exit code 3: row 4990 | ")
    assert str(caught.value).endswith("row 4999")
    assert "\n" not in str(caught.value)


def test_a_key_of_the_environment_is_hidden_in_what_a_command_says(tmp_path, monkeypatch):
    """Also where a long line is cut within it (SE-03)."""
    monkeypatch.setenv("STORE_PASSWORD", "MARK-8-of-a-store")
    script = "import os, sys\nkey = os.environ['STORE_PASSWORD']\nsys.exit(f'no {key}\\n' + f'{key} ' * 100)"

    with pytest.raises(Invalid, match=r"exit code 1: no \(hidden\) \| \(hidden\) ") as caught:
        printed(tmp_path, script)

    assert "ARK-" not in str(caught.value)


def test_a_command_that_was_killed_says_by_which_signal(tmp_path):
    with pytest.raises(Invalid, match=r"python make\.py: ended with signal SIGABRT"):
        printed(tmp_path, "import os\nos.abort()")


def test_a_command_that_is_not_there_is_one_line(tmp_path):
    use = DatasetUse(command=("no-such-program", "x"), folder=str(tmp_path))
    with pytest.raises(Invalid, match="no-such-program x: cannot be started: No such file or directory"):
        list(read_batches(use))


def test_bad_rows_of_a_command_are_refused_by_line(tmp_path):
    with pytest.raises(DatasetInvalid, match=r"^python make\.py line 2: no input"):
        printed(tmp_path, "print('{\"input\": 1}')\nprint('{\"id\": 1}')")


def test_a_command_that_does_not_end_is_ended(tmp_path):
    with (
        pytest.raises(Invalid, match=r"did not end within 0\.5 s"),
        command.command_output((sys.executable, "-c", "import time; time.sleep(60)"), str(tmp_path), 0.5) as output,
    ):
        assert output.file.read() == b""
        output.finish()


def test_what_a_command_leaves_behind_is_ended_with_it(tmp_path):
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        'print(\'{"id": %d, "input": 1}\' % child.pid)\n'
    )

    (pid,) = printed(tmp_path, script)

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _alive(int(pid)):
        time.sleep(0.01)
    assert not _alive(int(pid))


def test_reading_can_be_given_up_while_a_command_goes_on(tmp_path):
    (tmp_path / "make.py").write_text('n = 0\nwhile True:\n    print(\'{"id": %d, "input": 1}\' % n)\n    n += 1')
    batches = read_batches(DatasetUse(command=("python", "make.py"), folder=str(tmp_path)))
    assert len(next(batches)) == 256

    started = time.monotonic()
    batches.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 60


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
