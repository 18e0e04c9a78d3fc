"""What a page does, done: its files written into an empty folder, its commands run in one shell, in order."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT, Command, File, Page

TIME_LIMIT = 150.0
"""Seconds for all of a page: ten times what it takes, for a machine that has much else to do."""
NOT_RUN = ("scripts/", "source ", "pip install ")
"""How commands begin that set a machine up; the tests run in what they would make."""

_ADDRESS = re.compile(r"127\.0\.0\.1:5\d{4}")
_BEGIN, _END = "\x02", "\x03"


@dataclass(frozen=True)
class Ran:
    """A command that has been run."""

    command: Command
    code: int
    output: str
    """stdout and stderr, as they came."""

    @property
    def missing(self) -> str:
        """The part of what the page shows that did not come; "" if all did."""
        return "" if re.search(pattern(self.command.expected), self.output, re.DOTALL) else self.command.expected


class Session:
    """The folder of a page, and what its commands did there."""

    def __init__(self, page: Page, folder: Path) -> None:
        """Do what the page does."""
        self.page = page
        self.folder = folder / "page"
        self.staged = folder / "staged"
        self.addresses: dict[str, str] = {}
        self.folder.mkdir(parents=True)
        self.staged.mkdir()
        (self.folder / "docs").symlink_to(ROOT / "docs")
        self.ran = self._run()

    def _run(self) -> list[Ran]:
        commands = self.page.commands
        script = self.staged / "script.sh"
        script.write_text("\n".join(["status=0", *self._lines()]), encoding="utf-8")
        with _shell(script, self.folder) as shell, contextlib.suppress(subprocess.TimeoutExpired):
            shell.wait(TIME_LIMIT)
        output = (self.staged / "output").read_text(encoding="utf-8", errors="replace")
        found = re.findall(rf"{_BEGIN}(\d+)\n(.*?)(?:{_END}(\d+)\n|\Z)", output, re.DOTALL)
        return [Ran(commands[int(number)], int(code or -1), text) for number, text, code in found]

    def _lines(self) -> Iterator[str]:
        number = -1
        for place, step in enumerate(self.page.steps):
            if isinstance(step, File):
                (self.staged / str(place)).write_text(self._own(step.text), encoding="utf-8")
                yield f"mkdir -p $(dirname {step.name}); cp -f {self.staged}/{place} {step.name}"
                continue
            number += 1
            if step.words.startswith(NOT_RUN):
                continue
            words = self._own(step.words)
            if words.endswith("&"):
                log = self.staged / f"{number}.log"
                words = f"{words[:-1]} >{log} 2>&1 &\nfor n in $(seq 100); do [ -s {log} ] && break; sleep 0.1; done"
            yield f"printf '{_BEGIN}{number}\\n'; (exit $status)\n{words}\nstatus=$?; printf '{_END}%s\\n' $status"

    def _own(self, text: str) -> str:
        """The text with free ports in the place of the page's, so that pages can run beside anything."""
        return _ADDRESS.sub(lambda match: self.addresses.setdefault(match[0], _free_address()), text)


@contextlib.contextmanager
def _shell(script: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("EVALBUS_", "PYTEST_"))}
    own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    with (script.parent / "output").open("wb") as output:
        shell = subprocess.Popen(
            ["bash", str(script)],
            cwd=folder,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield shell
        finally:
            with contextlib.suppress(ProcessLookupError):  # whatever the page left running
                os.killpg(shell.pid, signal.SIGTERM)
            shell.wait()


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def pattern(expected: str) -> str:
    """What the output has to hold: the words in their order, whatever the space between them, `…` for anything."""
    parts = (re.escape(word) for word in expected.split())
    text = r"\s*".join(re.sub("─+", "─+", part) for part in parts)
    return text.replace("…", ".*?")


class Sessions:
    """The sessions of many pages, two at a time; each is done once."""

    def __init__(self, pages: list[Page], folder: Path) -> None:
        """Begin with all of them."""
        self._pool = ThreadPoolExecutor(max_workers=2)
        self._found: dict[str, Future[Session]] = {
            page.name: self._pool.submit(Session, page, folder / page.name.replace("/", "-")) for page in pages
        }

    def of(self, page: Page) -> Session:
        return self._found[page.name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def last_code_is_shown(page: Page, command: Command) -> bool:
    """Whether the page looks at the exit code of a command, which then may be any."""
    place = page.commands.index(command) + 1
    return place < len(page.commands) and "$?" in shlex.split(page.commands[place].words)
