"""Nobody is called but the plugins: a run and a server open no connection that they were not told of (SE-04)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.command_line import Desk, serving

HOOK = """
import os
import sys


def note(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        with open(os.environ["CALLS"], "a") as calls:
            calls.write(f"{event} {args[-1] if event == 'socket.connect' else args[0]!r}\\n")


sys.addaudithook(note)
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A folder whose Python processes write down whom they call; what gRPC's core does has to be seen from outside."""
    made = Desk(tmp_path, items=5)
    (tmp_path / "hook").mkdir()
    made.write("hook/sitecustomize.py", HOOK)
    made.write("calls", "")
    return made


def environment(desk: Desk) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(desk.folder / "hook"), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "CALLS": str(desk.folder / "calls")}


def called(desk: Desk) -> set[str]:
    """Whom Python called on other machines."""
    lines = (desk.folder / "calls").read_text().splitlines()
    return {line for line in lines if "127.0.0.1" not in line and "localhost" not in line and "'/" not in line}


def peers(process: psutil.Process) -> set[tuple[int, str]]:
    """(own port, the other's address) of the connections of a process."""
    try:
        open_now = process.net_connections(kind="inet")
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return set()
    return {(each.laddr.port, each.raddr.ip) for each in open_now if getattr(each, "raddr", None)}


def test_the_hook_sees_a_call(desk: Desk):
    """Otherwise the tests below could not fail."""
    script = "import socket; s = socket.socket(); s.setblocking(False); s.connect_ex(('192.0.2.1', 9))"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **environment(desk)}, check=True, timeout=100)

    assert called(desk) == {"socket.connect ('192.0.2.1', 9)"}


def test_a_run_calls_nobody_but_its_plugins(desk: Desk):
    process = desk.start("run", "sums.yaml", "--db", "runs.db", *desk.gated(2), env=environment(desk))
    seen: set[tuple[int, str]] = set()
    watched = psutil.Process(process.pid)
    until = time.monotonic() + 100
    while process.poll() is None and time.monotonic() < until:
        seen |= peers(watched)
        if not (desk.folder / "gate").exists() and (desk.folder / "runs.db").exists():
            desk.open_gate()
        time.sleep(0.005)
    process.communicate(timeout=100)

    assert process.returncode == 0
    assert seen == set()
    assert called(desk) == set()


def test_a_server_calls_nobody_who_does_not_call_it(desk: Desk):
    with serving(desk, "--db", "served.db", env=environment(desk)) as (process, address):
        desk.run("dataset", "import", "d", "items.jsonl", "--server", address)
        seen = peers(psutil.Process(process.pid))
        assert desk.run("dataset", "list", "--server", address).code == 0

    assert {port for port, _ in seen} <= {int(address.rpartition(":")[2])}
    assert called(desk) == set()
