"""The pages of the documentation as data: code blocks, headings, tables, links. How blocks are marked:

* A fenced block after a line that ends with a file name in backticks and a colon (`scorer.py`:) is that file.
* A ```console block holds commands behind `$ ` and, below each, what it prints; `…` stands for anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`(?P<name>[\w./-]+\.\w+)`:$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<to>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(?P<text>.+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    language: str
    body: str
    line: int
    """Of its fence, from 1."""
    file: str
    """The file that it shows; "" if it is none."""


@dataclass(frozen=True)
class Command:
    """A command of a console block."""

    words: str
    expected: str
    """What it prints; "" if the page does not say."""
    line: int


@dataclass(frozen=True)
class File:
    """A file that a page shows."""

    name: str
    text: str


Step: TypeAlias = Command | File


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        """Its path from the root."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        found = []
        for match in _FENCE.finditer(self.text):
            before = self.text[: match.start()].rstrip().rpartition("\n")[2]
            named = _FILE.search(before)
            line = self.text.count("\n", 0, match.start()) + 1
            language = match["info"].strip()
            file = named["name"] if named and language != "console" else ""
            found.append(Block(language, match["body"], line, file))
        return found

    @cached_property
    def steps(self) -> list[Step]:
        """What the page does, in order: writes files, runs commands."""
        found: list[Step] = []
        for block in self.blocks:
            if block.file:
                found.append(File(block.file, block.body))
            elif block.language == "console":
                found.extend(_commands(block))
        return found

    @property
    def commands(self) -> list[Command]:
        """The commands among its steps."""
        return [step for step in self.steps if isinstance(step, Command)]

    @cached_property
    def links(self) -> list[str]:
        return [match["to"] for match in _LINK.finditer(self.prose)]

    @cached_property
    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub makes them."""
        return {_anchor(match["text"]) for match in _HEADING.finditer(self.prose)}

    @cached_property
    def code(self) -> set[str]:
        """Everything in backticks outside of blocks."""
        return set(_CODE.findall(self.prose))

    def section(self, heading: str) -> str:
        """The text below a heading, up to the next one of its level or above."""
        match = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        assert match, f"{self.name} has no heading {heading!r}"
        rest = self.text[match.end() :]
        end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
        return rest if end is None else rest[: end.start()]

    def table(self, mark: str) -> list[list[str]]:
        """The cells of the table below `<!-- mark -->`, without its head."""
        _, found, rest = self.text.partition(f"<!-- {mark} -->\n")
        assert found, f"{self.name} has no table marked {mark!r}"
        rows = rest.split("\n\n")[0].splitlines()
        return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[2:]]


def _commands(block: Block) -> list[Command]:
    found: list[Command] = []
    words, expected, line = "", [""], 0

    def end() -> None:
        if words:
            found.append(Command(words, "\n".join(expected[1:]), line))

    for number, text in enumerate(block.body.splitlines(), block.line + 1):
        if text.startswith("$ "):
            end()
            words, expected, line = text[2:], [""], number
        elif words.endswith("\\") and len(expected) == 1:
            words += "\n" + text
        else:
            assert words, f"line {number}: a console block begins with a command"
            expected.append(text)
    end()
    return found


def _anchor(heading: str) -> str:
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def plain(cell: str) -> str:
    """A cell without backticks."""
    return cell.strip("`")


DOCS = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/scorers").glob("*.md")])
PAGES = {page.name: page for page in map(Page, [ROOT / "README.md", *DOCS, ROOT / "proto/README.md"])}
