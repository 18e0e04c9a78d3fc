"""The page of the command line says what the program has: every command, argument and option, and no other."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from evalbus_server import logs, settings
from evalbus_server.cli.exits import ExitCode
from evalbus_server.cli.main import app
from tests.docs.pages import PAGES, ROOT

PAGE = PAGES["docs/command-line.md"]
SAID_ONCE = {"--help"}


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its whole name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, each in inner.items():
        yield from commands(each, f"{name} {word}")


COMMANDS = dict(commands(typer.main.get_command(app), "evalbus"))
every_command = pytest.mark.parametrize("name", COMMANDS)


def parameters(name: str) -> tuple[set[str], set[str]]:
    """The options of a command, and the arguments as usage shows them."""
    options: set[str] = set()
    arguments: set[str] = set()
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option":
            options.update(option for option in parameter.opts if option.startswith("--"))
        else:
            arguments.add(parameter.metavar or parameter.name.upper())
    return options - SAID_ONCE, arguments


def test_every_command_has_a_section_and_there_is_no_other() -> None:
    told = set(re.findall(r"^## (evalbus .+)$", PAGE.text, re.MULTILINE))
    assert told == COMMANDS.keys(), f"{PAGE.name} has a section `## evalbus …` for each command"


@every_command
def test_every_option_and_argument_is_in_the_table_of_its_command_and_there_is_no_other(name: str) -> None:
    section = PAGE.section(name)
    first = [row.split("|")[1].strip(" `").split()[0] for row in re.findall(r"^\| `.*$", section, re.MULTILINE)]
    options, arguments = parameters(name)
    assert sorted(first) == sorted(options | arguments), f"{PAGE.name}, {name}: one row for each"


@every_command
def test_options_that_pages_use_are_there(name: str) -> None:
    options, _ = parameters(name)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for line in page.read_text().splitlines():
            for call in re.findall(rf"(?:\$ |`){re.escape(name)} ([^`|]*)", line):
                used = set(re.findall(r"(?<![\w-])--[a-z-]+", re.sub(r"'[^']*'", "", call)))
                assert used <= options | SAID_ONCE, f"{page.name}: {line}"


def test_every_exit_code_is_told() -> None:
    told = {int(row.split("|")[1]) for row in re.findall(r"^\| \d+ .*$", PAGE.section("Exit codes"), re.MULTILINE)}
    assert told == set(map(int, ExitCode))


def test_every_variable_of_the_environment_is_told() -> None:
    section = PAGE.section("Environment")
    for variable in (settings.DATABASE_VARIABLE, settings.TOKEN_VARIABLE, logs.VARIABLE):
        assert f"| `{variable}` |" in section
    for level in logs.LEVELS:
        assert f"`{level}`" in section
