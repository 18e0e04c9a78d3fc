"""The top level is closed: a stray file there is noise for everybody who comes after."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = {".ci", "docs", "proto", "requirements", "scorer_sdk", "scripts", "server", "tests"}
FILES = {".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"}


def test_the_top_level_holds_what_is_listed_and_nothing_else() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so nothing tells the project's files from others")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = [Path(name) for name in listing.stdout.split("\0") if name]

    assert {path.parts[0] for path in tracked if len(path.parts) > 1} <= FOLDERS
    assert {path.name for path in tracked if len(path.parts) == 1} == FILES
