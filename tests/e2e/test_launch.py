"""Plugins as processes: started, refused with a reason, and never left behind."""

import asyncio
import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from evalbus import Failure, FailureOrigin, Item, Output, start_server, target
from evalbus._plugin import Open
from evalbus_server.errors import Reason, Unfit, Unreachable
from evalbus_server.model.trial import OpenTrial
from evalbus_server.plugin import remote
from evalbus_server.plugin.codec import ScorerCodec, TargetCodec
from evalbus_server.plugin.exchange import Exchange
from evalbus_server.plugin.launch import FixedAddress, LaunchedProcess
from evalbus_server.plugin.port import Flight
from evalbus_server.plugin.remote import RemotePlugin
from evalbus_server.plugin.rules import Rules

PLUGINS = Path(__file__).parent.parent / "plugins"


def odd(way: str, *more: str, limit: float = 100.0) -> RemotePlugin:
    """The odd target, misbehaving in one way."""
    return RemotePlugin(
        LaunchedProcess(["python", "odd.py", way, *more], str(PLUGINS), {}, limit=limit), TargetCodec(), ""
    )


@target("shout", mode="inline")
def shout(item: Item) -> str:
    """Answer in capitals."""
    return item.input.text.upper()


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(pids: list[int], within: float = 60.0) -> bool:
    """Whether all processes end in time."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        await asyncio.sleep(0.05)
    return False


async def ask(plugin: RemotePlugin, *inputs: str, **rules) -> dict[int, Flight]:
    """Ask a trial for each input."""
    done: dict[int, Flight] = {}
    exchange = Exchange(
        plugin,
        Open(plugin=plugin.info.name),
        Rules(**rules),
        lambda flights: done.update({flight.trial.trial_id: flight for flight in flights}),
        origin=FailureOrigin.TARGET,
    )
    await exchange.open()
    exchange.offer([Flight(OpenTrial(place, Item(f"i{place}", text))) for place, text in enumerate(inputs)])
    exchange.finish()
    await exchange.run()
    await exchange.close()
    return done


async def test_a_command_is_started_and_answers():
    """The socket is in a private folder, and gone afterwards."""
    plugin = odd("serve")
    info = await plugin.reach()
    folder = plugin._place._private  # type: ignore[attr-defined]
    assert Path(folder).stat().st_mode & 0o077 == 0

    done = await ask(plugin, "a", "b")
    await plugin.close()

    assert info.name == "odd"
    assert [isinstance(done[place].result, Output) for place in (0, 1)] == [True, True]
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("way", "limit", "reason", "says"),
    [
        ("exit", 100.0, Reason.PLUGIN_START_FAILED, "exit code 3.*no licence found"),
        ("sleep", 1.0, Reason.PLUGIN_UNREACHABLE, "did not answer Describe within 1 s"),
        ("lie", 1.0, Reason.PLUGIN_UNREACHABLE, "did not answer Describe within 1 s"),
    ],
)
async def test_a_process_that_does_not_come_up_says_why(way: str, limit: float, reason: Reason, says: str):
    """Each within its time, with its own reason, and nothing is left (PL-08)."""
    plugin = odd(way, limit=limit)
    began = time.monotonic()

    with pytest.raises(Unreachable, match=says) as caught:
        await plugin.reach()
    await plugin.close()

    assert caught.value.reason is reason
    assert time.monotonic() - began < limit + 60


async def test_a_process_that_dies_without_a_word_to_open_is_not_waited_for(tmp_path: Path, monkeypatch):
    """It has taken the connection and said nothing, so only its end tells; the limit for `open` is far away (PL-08)."""
    monkeypatch.setattr(remote, "OPEN_LIMIT", 600.0)
    mark = tmp_path / "deaf"
    plugin = odd("deaf", str(mark))
    try:
        await plugin.reach()
        async with asyncio.timeout(60):
            while not mark.exists():
                await asyncio.sleep(0.02)
        with pytest.raises(Unreachable, match=r"'deaf' broke at `open`: .*exit code 6.*no ears") as caught:
            async with asyncio.timeout(60):
                await plugin.converse(Open(plugin="deaf"))
    finally:
        await plugin.close()

    assert caught.value.reason is Reason.PLUGIN_UNREACHABLE


async def test_a_program_that_is_missing_or_not_executable_is_named(tmp_path: Path):
    """Without a try, since the guard could only say an exit code."""
    script = tmp_path / "target.sh"
    script.write_text("echo hello")
    for argv, folder, says in (
        (["no-such-program"], str(tmp_path), "no such program"),
        (["./target.sh"], str(tmp_path), "permission denied"),
        (["python"], str(tmp_path / "nowhere"), "no folder"),
    ):
        with pytest.raises(Unreachable, match=says) as caught:
            await RemotePlugin(LaunchedProcess(argv, folder, {}), TargetCodec(), "").reach()
        assert caught.value.reason is Reason.PLUGIN_START_FAILED


async def test_what_a_plugin_prints_is_only_ever_a_log():
    """Megabytes of garbage on stdout neither block nor confuse it."""
    plugin = odd("garbage")
    await plugin.reach()

    done = await ask(plugin, "a")
    await plugin.close()

    assert isinstance(done[0].result, Output)


async def test_a_plugin_that_dies_is_started_again_and_its_killer_is_errored():
    """The failure holds the exit code and the last lines of stderr (PL-06)."""
    plugin = odd("serve")
    await plugin.reach()

    done = await ask(plugin, "a", "die", "b", "c")
    await plugin.close()

    killer = done[1].result
    assert isinstance(killer, Failure)
    assert killer.reason == "PLUGIN_DIED"
    assert "exit code 137" in killer.message
    assert "it hurts" in killer.message
    assert all(isinstance(done[place].result, Output) for place in (0, 2, 3))
    assert len({str(done[place].result) for place in (0, 2, 3)}) >= 2


async def test_closing_ends_the_whole_family(tmp_path: Path):
    """Also a grandchild that has left the process group (PL-09)."""
    plugin = odd("child", str(tmp_path / "pids"))
    await plugin.reach()
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert all(alive(pid) for pid in pids)

    await plugin.close()

    assert await gone(pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_no_orphan_is_left_when_the_server_is_killed(tmp_path: Path, how: signal.Signals):
    """Kill -9 of the server ends plugin and grandchildren, by the guard's pipe."""
    script = textwrap.dedent(
        f"""
        import asyncio
        from evalbus_server.plugin.codec import TargetCodec
        from evalbus_server.plugin.launch import LaunchedProcess
        from evalbus_server.plugin.remote import RemotePlugin

        async def main():
            place = LaunchedProcess(["python", "odd.py", "child", {str(tmp_path / "pids")!r}], {str(PLUGINS)!r}, {{}})
            await RemotePlugin(place, TargetCodec(), "").reach()
            print(place._private, flush=True)
            print("up", flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
        """
    )
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    folder = b""
    while (line := await server.stdout.readline()) != b"up\n":
        folder = line.strip()
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]

    server.send_signal(how)
    await server.wait()

    assert await gone(pids)
    async with asyncio.timeout(60):
        while Path(folder.decode()).exists():  # the guard takes it away when all have gone
            await asyncio.sleep(0.02)


async def test_a_killed_guard_leaves_no_folder_though_nobody_asks_the_plugin_any_more():
    """Else nobody would remove it who is killed before he has closed the plugin, as a server may be."""
    place = LaunchedProcess(["python", "odd.py", "serve"], str(PLUGINS), {})
    plugin = RemotePlugin(place, TargetCodec(), "")
    await plugin.reach()
    assert place._private is not None
    assert place._process is not None
    folder = Path(place._private)
    assert folder.exists()

    os.kill(place._process.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while folder.exists():
            await asyncio.sleep(0.01)
    await plugin.close()


async def test_restarts_leave_no_zombie_and_no_descriptor():
    """Processes, tasks and file descriptors are back to the start."""
    own = Path(f"/proc/{os.getpid()}")

    def zombies() -> set[str]:
        children = (own / "task" / str(os.getpid()) / "children").read_text().split()
        return {pid for pid in children if not alive(int(pid))}

    others = zombies()
    plugin = odd("serve")
    await plugin.reach()
    before = len(list((own / "fd").iterdir()))
    for _ in range(10):
        await plugin.restart()
        await plugin.reach()
    left = zombies() - others
    after = len(list((own / "fd").iterdir()))
    await plugin.close()

    assert not left
    assert after <= before + 5


async def test_an_address_where_nobody_listens_is_named():
    """One line with what was tried."""
    plugin = RemotePlugin(FixedAddress("127.0.0.1:1", limit=1.0), TargetCodec(), "")

    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await plugin.reach()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", r"wants a token; give it beside the address, as in token: \$\{env:NAME\}: "),
        ("of yesterday", "does not know the token that `token` gives: "),
    ],
)
async def test_a_plugin_that_lets_nobody_in_without_its_token_says_what_to_set(given: str, says: str):
    """The key of the experiment file, and whether it is missing or wrong; the token itself is not said."""
    server = await start_server(shout, token="s3cret")
    try:
        with pytest.raises(Unreachable, match=f"^the plugin at {server.address} {says}") as caught:
            await RemotePlugin(FixedAddress(server.address, given), TargetCodec(), "").reach()
    finally:
        await server.stop(0)

    assert caught.value.reason is Reason.PLUGIN_UNREACHABLE
    assert "\n" not in str(caught.value)
    assert given not in str(caught.value) or not given


async def test_a_process_that_refuses_the_token_it_was_started_with_is_told_apart():
    """It was given one, so nothing is to be set in the experiment."""
    plugin = odd("forgetful")
    try:
        with pytest.raises(Unreachable, match="refuses the token that it was started with in EVALBUS_TOKEN"):
            await plugin.reach()
    finally:
        await plugin.close()


async def test_a_wrong_kind_or_name_is_refused_with_what_there_is():
    """The message lists the names that are served."""
    place = LaunchedProcess(["python", "odd.py", "serve"], str(PLUGINS), {})
    try:
        with pytest.raises(Unfit, match="there is: odd"):
            await RemotePlugin(place, TargetCodec(), "even").reach()
        with pytest.raises(Unfit, match="scorer"):
            await RemotePlugin(place, ScorerCodec(), "").reach()
    finally:
        await place.end()
