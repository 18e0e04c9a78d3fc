"""The sets that `docs/datasets.md` names import with the commands that it shows. They are others', and lie outside."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from evalbus_server.store import open_reader

from .command_line import command, environment

ROOT = Path(__file__).parents[2]
SETS = ROOT.parent / "shared" / "data"
SECTION = (ROOT / "docs" / "datasets.md").read_text().partition("## Known sets")[2]
COMMANDS = re.findall(r"^(?!#)(\S.*evalbus dataset import .*|evalbus dataset import .*)$", SECTION, re.MULTILINE)
FOLDERS = {
    "banking77": ("banking77", 3080),
    "bbh-snarks": ("bbh", 178),
    "bfcl": ("bfcl_v4", 400),
    "clinc150-test": ("clinc150", 4500),
    "gsm8k": ("gsm8k", 1319),
    "humaneval": ("humaneval", 164),
    "pubmedqa": ("pubmedqa", 1000),
    "tau2-airline": ("tau2", 50),
}

pytestmark = pytest.mark.skipif(not SETS.is_dir(), reason="the sets are not beside the project")


def test_each_set_has_one_command() -> None:
    assert [re.findall(r"import (\S+)", line)[0] for line in COMMANDS] == list(FOLDERS)


@pytest.mark.parametrize("line", COMMANDS, ids=list(FOLDERS))
def test_a_known_set_imports_with_the_command_that_is_shown(tmp_path: Path, line: str) -> None:
    name = re.findall(r"import (\S+)", line)[0]
    folder, count = FOLDERS[name]
    words = " ".join(command(["dataset", "import"]))
    shell = line.replace("evalbus dataset import", words)

    ended = subprocess.run(
        shell,
        shell=True,
        cwd=SETS / folder,
        env=environment({"EVALBUS_DB": str(tmp_path / "sets.db"), "PATH": os.environ["PATH"]}),
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stderr
    with open_reader(tmp_path / "sets.db") as reader:
        dataset = reader.dataset(name)
        assert dataset.items == count
        first = reader.items(name, 1, limit=1)[0].item
        assert first.expected is not None
        if name == "gsm8k":
            assert first.expected.text == "18"
        if name == "pubmedqa":
            assert first.id == "21645374"
            assert set(first.input.data) == {"QUESTION", "CONTEXTS"}
