"""A tiny process between the server and a plugin: when the server is gone, so is the plugin and all its children.

It is started with `python -I -S guard.py PROGRAM ARGS…` in a session of its own, with a pipe from the server as its
standard input. It starts the program in a new process group and waits for one of two things: the program ends, or the
pipe closes because the server closed it or died, be it by kill -9. Then it asks the group to end, kills what is left
after three seconds, and kills descendants that had left the group. It exits as the program did; 128 + n for signal n.
Should the guard itself be killed, the program goes with it, at least. It imports the standard library alone, since it
has to start fast.
"""

import contextlib
import os
import select
import signal
import sys
import time

GRACE = 3.0
GRACE_OF_ORPHANS = 0.5
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> int:
    """Start the program, guard it, and return its exit code."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphaned descendants become children of this process, so that none is lost
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _become(argv, guard)
    code: int | None = None
    while code is None:
        ready, _, _ = select.select([0, wake_read], [], [])
        code = _reap(child)
        if wake_read in ready and os.read(wake_read, 512).count(bytes([signal.SIGTERM])):
            break
        if 0 in ready and not os.read(0, 512):
            break
    code = _end(child, code)
    _remove_private_folder()
    return code


def _remove_private_folder() -> None:
    """Remove the folder of the plugin's socket: a server that was killed cannot."""
    folder = os.path.dirname(os.environ.get("EVALBUS_SOCKET", ""))
    if os.path.basename(folder).startswith("evalbus-"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, "s"))
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _become(argv: list[str], guard: int) -> None:
    """In the child of *guard*: a group of its own, no standard input, default signals, then the program."""
    os.setpgid(0, 0)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the guard has one thread, so its death is meant
    if os.getppid() != guard:
        os._exit(137)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
        os._exit(126)


def _end(child: int, code: int | None) -> int:
    """End the group and all descendants; the child's exit code."""
    _signal_group(child, signal.SIGTERM)
    _signal_group(child, signal.SIGCONT)  # who has been stopped would not hear it
    deadline = time.monotonic() + GRACE
    asked = False
    while time.monotonic() < deadline:
        code = _reap(child) if code is None else code
        left = _descendants()
        if code is not None and not left:
            return code
        if code is not None and not asked:  # what is left had gone out of the group
            asked = True
            deadline = time.monotonic() + GRACE_OF_ORPHANS
            _signal(left, signal.SIGTERM)
        time.sleep(0.02)
    _signal_group(child, signal.SIGKILL)
    for _ in range(100):
        _signal(_descendants(), signal.SIGKILL)
        code = _reap(child) if code is None else code
        if code is not None and not _descendants():
            break
        time.sleep(0.02)
    return 137 if code is None else code


def _reap(child: int) -> int | None:
    """Collect every ended child; the exit code of *child* if it was among them."""
    code: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            code = 128 - code if code < 0 else code


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _descendants() -> list[int]:
    """Children of this process that have not ended; orphans among its descendants become its children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            pids = [int(pid) for pid in children.read().split()]
    except OSError:
        return []
    alive = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] != "Z":
                    alive.append(pid)
        except OSError:
            continue
    return alive


def _prctl(option: int, value: int) -> None:
    """Ask something of Linux; elsewhere nothing happens."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # here, since not every Python has it

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
