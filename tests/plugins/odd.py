"""A target that misbehaves in the way its argument says; a raw program where the SDK would not let it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from evalbus import Item, serve, target
from evalbus.v1 import plugin_pb2, target_pb2, target_pb2_grpc


@target("odd", version="1.0.0", mode="inline")
def odd(item: Item) -> str:
    """Die, or answer, as the item says."""
    if item.input.text == "die":
        print("Traceback: it hurts", file=sys.stderr, flush=True)
        os._exit(137)
    return f"pid {os.getpid()}"


class Described(target_pb2_grpc.TargetServicer):
    """Knows what it is, and nothing more."""

    async def Describe(self, request: plugin_pb2.DescribeRequest, context: Any) -> plugin_pb2.DescribeResponse:
        info = plugin_pb2.PluginInfo(name="deaf", version="1.0.0", lowest_revision=1, highest_revision=1)
        info.target.isolation = plugin_pb2.ISOLATION_FRESH
        context.add_done_callback(lambda _: DESCRIBED.set())
        return plugin_pb2.DescribeResponse(plugins=[info])

    async def Answer(self, requests: Any, context: Any) -> AsyncIterator[target_pb2.AnswerResponse]:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "too early")
        yield target_pb2.AnswerResponse()


DESCRIBED = asyncio.Event()


async def deaf(mark: str) -> None:
    """Describe itself, then take connections without a word (a file says from when on), and die of the first."""
    path = os.environ["EVALBUS_SOCKET"]
    server = grpc.aio.server()
    target_pb2_grpc.add_TargetServicer_to_server(Described(), server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    await DESCRIBED.wait()
    await server.stop(0)
    connected = asyncio.Event()
    Path(path).unlink(missing_ok=True)
    silent = await asyncio.start_unix_server(lambda reader, writer: connected.set(), path)
    Path(mark).touch()
    await connected.wait()
    await asyncio.sleep(0.3)
    print("Traceback: no ears", file=sys.stderr, flush=True)
    silent.close()
    os._exit(6)


def main(way: str) -> None:
    """Misbehave."""
    if way == "sleep":
        time.sleep(600)
    elif way == "exit":
        print("no licence found", file=sys.stderr)
        sys.exit(3)
    elif way == "lie":
        print("1|1|tcp|127.0.0.1:1|grpc", flush=True)
        time.sleep(600)
    elif way == "garbage":
        sys.stdout.write("\x00garbage\n" * 200_000)
        serve(odd)
    elif way == "forgetful":
        os.environ["EVALBUS_TOKEN"] = "another"
        serve(odd)
    elif way == "deaf":
        asyncio.run(deaf(sys.argv[2]))
    elif way == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        own_group = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        with open(sys.argv[2], "w") as pids:
            pids.write(f"{os.getpid()} {child.pid} {own_group.pid}")
        serve(odd)
    else:
        serve(odd)


if __name__ == "__main__":
    main(sys.argv[1])
