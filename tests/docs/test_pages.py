"""What the pages show works: files, commands and what they print, fragments of code, links."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import evalbus
from evalbus_server.model.experiment import Experiment
from evalbus_server.runner.documents import read_yaml
from evalbus_server.runner.experiment_file import from_mapping
from evalbus_server.settings import Settings
from tests.docs.pages import PAGES, ROOT, Page
from tests.docs.sessions import NOT_RUN, Sessions, last_code_is_shown

LANGUAGES = {"python", "yaml", "jsonl", "json", "csv", "toml", "console", "proto", ""}

every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
pages_with_commands = [page for page in PAGES.values() if page.commands]


@pytest.mark.parametrize("page", pages_with_commands, ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_it_shows(page: Page, sessions: Sessions) -> None:
    ran = sessions.of(page).ran
    wanted = [command for command in page.commands if not command.words.startswith(NOT_RUN)]
    faults = [
        f"{page.name}:{each.command.line}: $ {each.command.words} ended with {each.code}:\n{each.output}"
        for each in ran
        if each.missing or (each.code and not last_code_is_shown(page, each.command))
    ]
    assert not faults, "\n".join(faults)
    assert [each.command for each in ran] == wanted, "the page took too long"


@every_page
def test_python_compiles_and_what_is_no_file_runs_after_what_stands_above(page: Page) -> None:
    names = {name: getattr(evalbus, name) for name in evalbus.__all__} | {"dataclass": dataclass, "field": field}
    for block in page.blocks:
        if block.language == "python":
            code = compile("\n" * block.line + block.body, page.name, "exec")
            if not block.file and page.path.parent != ROOT / "proto":
                exec(code, names)


@every_page
def test_yaml_is_an_experiment_or_a_part_of_one_or_a_configuration(page: Page) -> None:
    for block in page.blocks:
        if block.language == "yaml":
            data = read_yaml(block.body).data
            if not data.keys() <= Experiment.model_fields.keys():
                Settings.parse(data)
                continue
            from_mapping({"name": "part", "dataset": {"name": "some"}, "target": "none", **data}, "/")


@every_page
def test_json_is_json(page: Page) -> None:
    for block in page.blocks:
        if block.language == "json":
            json.loads(block.body)
        if block.language == "jsonl":
            for line in block.body.splitlines():
                json.loads(line)


@every_page
def test_every_block_says_its_language(page: Page) -> None:
    assert {block.language for block in page.blocks} <= LANGUAGES


@every_page
def test_every_link_to_a_file_leads_somewhere(page: Page) -> None:
    for link in page.links:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.path.parent / path).resolve() if path else page.path
        assert target.exists(), f"{page.name}: {link}"
        assert target.is_relative_to(ROOT), f"{page.name}: {link}"
        if anchor:
            assert anchor in Page(target).anchors, f"{page.name}: {link}"


def test_every_page_is_in_the_index() -> None:
    index = PAGES["docs/README.md"]
    linked = {(index.path.parent / link).resolve() for link in index.links if "://" not in link}
    assert {page.path for page in PAGES.values()} - {index.path, ROOT / "README.md"} <= linked


def test_the_scripts_that_pages_name_are_there() -> None:
    named = {
        command.words.split()[0]
        for page in pages_with_commands
        for command in page.commands
        if command.words.startswith("scripts/")
    }
    assert named
    for script in named:
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_no_page_speaks_of_somebody_s_machine() -> None:
    for page in PAGES.values():
        for word in (
            "/home/",
            "/root/",
            "/tmp/",
            "/Users/",
            str(Path.home()) if len(str(Path.home())) > 4 else "/home/",
        ):
            assert word not in page.text, f"{page.name}: {word}"
