"""A target that misbehaves in the way its argument says; a raw program where the SDK would not let it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from evalbus import Item, serve, target


@target("odd", version="1.0.0", mode="inline")
def odd(item: Item) -> str:
    """Die, or answer, as the item says."""
    if item.input.text == "die":
        print("Traceback: it hurts", file=sys.stderr, flush=True)
        os._exit(137)
    return f"pid {os.getpid()}"


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
