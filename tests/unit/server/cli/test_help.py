"""Help is quick, plain, and fits a screen."""

import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from evalbus import __version__
from evalbus_server.cli.main import app

HEAVY = ("grpc", "pydantic", "rich", "rich.progress", "sqlite_utils", "sqlite3", "structlog", "ruamel.yaml", "asyncio")


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group, with its words."""
    yield words, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, word))


COMMANDS = dict(commands(typer.main.get_command(app)))


def evalbus(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "evalbus_server", *words], capture_output=True, text=True, timeout=100)


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from evalbus_server.cli import main\n"
        "try:\n    main(['--help'])\n"
        f"finally:\n    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert ended.stderr.strip() == "[]"


def test_help_takes_less_than_0_4_seconds_of_cpu():
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'evalbus_server', '--help'], stdout=subprocess.DEVNULL, check=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_utime + used.ru_stime)\n"
    )
    taken = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(taken) < 0.4


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_screen(words):
    ended = CliRunner().invoke(app, [*words, "--help"], prog_name="evalbus", terminal_width=80)
    assert ended.exit_code == 0
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines[1:] if line.endswith("...")]  # a sentence cut in two


@pytest.mark.parametrize(
    "words", [words for words, each in COMMANDS.items() if not hasattr(each, "commands")], ids=" ".join
)
def test_every_command_has_an_example_that_it_takes(words):
    command = COMMANDS[words]
    told = str(command.epilog).removeprefix("Example: ")
    program, *typed = shlex.split(told.partition(" > ")[0])
    assert (program, tuple(typed[: len(words)])) == ("evalbus", words)
    with contextlib.closing(command.make_context(" ".join(words), typed[len(words) :])) as context:
        assert not context.args


def test_without_a_word_there_is_help():
    assert evalbus().stdout == evalbus("--help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu"], "no such command 'rnu'; did you mean 'run'; see evalbus --help"),
        (["run"], "missing argument 'FILE'; see evalbus run --help"),
        (["run", "x.yaml", "--limitt", "3"], "no such option: --limitt (Possible options: --limit"),
        (["run", "x.yaml", "--limit", "0"], "--limit: must be at least 1, not '0'; see evalbus run --help"),
        (["run", "x.yaml", "--detach"], "it needs --server"),
        (["runs"], "missing command; see evalbus runs --help"),
        (["plugins", "describe"], "say where the plugin is: --command 'python target.py', --address A, or --use NAME"),
        (["scorers", "show", "exact"], "there is no builtin scorer 'exact'; did you mean exact_match?"),
    ],
)
def test_wrong_usage_is_one_line_and_ends_with_2(words, said):
    ended = evalbus(*words)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert said in ended.stderr
    assert ended.stderr.startswith("evalbus: ") and ended.stderr.count("\n") == 1


def test_the_version_is_that_of_the_package():
    assert evalbus("--version").stdout == f"evalbus {__version__}\n"


def test_the_contract_is_exported_whole(tmp_path):
    ended = evalbus("proto", "export", str(tmp_path / "out"))
    files = {path.name for path in (tmp_path / "out" / "evalbus" / "v1").iterdir()}
    assert {"run.proto", "target.proto", "scorer.proto", "value.proto"} <= files
    assert ended.stdout.count("\n") == len(files)


def test_the_schema_of_experiments_is_json():
    schema = json.loads(evalbus("experiment", "schema").stdout)
    assert schema["properties"].keys() >= {"dataset", "target", "scorers", "criteria"}


def test_the_builtin_scorers_are_listed():
    assert "levenshtein" in evalbus("scorers", "list").stdout
    assert "inputs" in evalbus("scorers", "show", "exact_match").stdout
