"""What a process printed last: of a Python traceback the error and its place, of anything else the last lines."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evalbus_server.plugin.last_words import QUOTED, quoted


def printed(folder, program: str) -> str:
    (folder / "plugin.py").write_text(program)
    return subprocess.run(
        [sys.executable, "plugin.py"], cwd=folder, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print('loading')\nimport json\njson.loads('{')\n", " (plugin.py line 3)"),
        ("def f():\n    raise RuntimeError('no licence')\nf()\n", "RuntimeError: no licence (plugin.py line 2)"),
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all' (plugin.py line 1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (plugin.py line 1)"),
        (
            "from evalbus import scorer\n\n\n@scorer\ndef sure(output):\n    return 1\n",
            'PluginInvalid: @scorer needs a name: write @scorer("sure") above sure (plugin.py line 4)',
        ),
        ("print('no licence found')\nraise SystemExit(3)\n", "no licence found"),
        ("for n in range(9):\n    print('line', n)\n", "line 4 | line 5 | line 6 | line 7 | line 8"),
        ("print('evalbus: serving echo at unix:/tmp/s')\nprint('out of memory')\n", "out of memory"),
        ("print('evalbus: serving echo at unix:/tmp/s')\n", ""),
        ("", ""),
    ],
)
def test_the_last_words_of_a_process(tmp_path, program, said):
    found = quoted(printed(tmp_path, program), str(tmp_path))
    assert found.endswith(said) if said else not found
    assert "\n" not in found and "Traceback" not in found and "^^^" not in found


def test_a_message_of_several_lines_is_quoted_as_it_stands():
    tail = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: one\ntwo: and more\n'
    assert quoted(tail).endswith("ValueError: one | two: and more")


def test_very_much_is_cut():
    assert len(quoted("x" * 5000)) == QUOTED + 1
