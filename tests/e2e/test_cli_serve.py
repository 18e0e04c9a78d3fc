"""`evalbus serve`: it says where it listens, ends in order, and refuses what would be unsafe or taken."""

import json
import signal

import pytest

from tests.e2e.command_line import Desk, serving


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path, items=3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(desk, number):
    with serving(desk) as (process, _):
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert [json.loads(line)["level"] for line in err.splitlines()] == ["info"] * len(err.splitlines())


def test_a_port_that_is_taken_is_refused(desk):
    with serving(desk) as (_, address):
        ended = desk.run("serve", "--listen", address, "--db", "other.db")
    assert ended.code == 2
    assert ended.reason == f"evalbus: cannot listen on {address}: another program does already; take another port"
    assert not (desk.folder / "other.db").exists()


def test_a_database_that_is_served_has_one_writer(desk):
    with serving(desk) as (process, _):
        ended = desk.run("serve", "--listen", "127.0.0.1:0")
        assert ended.code == 4
        assert f"process {process.pid}" in ended.reason
        assert desk.run("runs", "list", "--json").document == {"runs": []}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "0.0.0.0:0"], "can be reached from other machines; give the server a token or TLS"),
        (["--listen", "nowhere"], "is no address to listen on"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
        (["--config", "server.yaml"], "server.yaml: line 1, column 1: lisen: unknown key; did you mean listen?"),
    ],
)
def test_what_it_cannot_do_is_one_line(desk, words, said):
    desk.write("server.yaml", "lisen: 127.0.0.1:0\n")
    ended = desk.run("serve", *words)
    assert ended.code == 2
    assert said in ended.reason
    assert not (desk.folder / "evalbus.db").exists()


def test_options_come_before_the_configuration(desk):
    desk.write("server.yaml", "listen: 127.0.0.1:1\ndb: configured.db\n")
    with serving(desk, "--config", "server.yaml"):
        assert (desk.folder / "configured.db").exists()
