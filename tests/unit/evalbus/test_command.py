"""The console command without, and with, what it hands over to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalbus import _command


@pytest.fixture
def server_that(tmp_path: Path):
    """Put a stand-in for the server's command line in front of the real one."""

    def write(source: str) -> dict[str, str]:
        package = tmp_path / "evalbus_server"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "cli.py").write_text(source)
        return os.environ | {"PYTHONPATH": str(tmp_path)}

    return write


def evalbus(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from evalbus import _command; _command.main()"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_without_the_server_extra_it_says_in_one_line_what_to_install(server_that) -> None:
    done = evalbus(server_that("import a_package_of_the_extra"))

    assert (done.returncode, done.stdout, done.stderr) == (2, "", _command.INSTALL_HINT + "\n")


def test_a_module_of_ours_that_is_missing_is_a_fault_and_not_an_extra(server_that) -> None:
    done = evalbus(server_that("import evalbus_server.forgotten"))

    assert done.returncode == 1
    assert "No module named 'evalbus_server.forgotten'" in done.stderr


def test_it_hands_over_to_the_command_line_of_the_server(server_that) -> None:
    done = evalbus(server_that("def main() -> None:\n    raise SystemExit(7)"))

    assert done.returncode == 7
