"""A command that is forked is what it is in a process of its own: a program sees no difference."""

import json
import os
import subprocess

import pytest

from .commands import COMMAND, Command, environment

pytestmark = [
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux"),
]

FACTS = """
import atexit, json, os, resource, signal, sys, threading
STREAM = ("encoding", "errors", "line_buffering", "write_through", "newlines", "mode", "closed")
def facts_of(stream):
    return {name: getattr(stream, name) for name in STREAM} | {"number": stream.fileno()}
streams = [sys.stdin, sys.stdout, sys.stderr]
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": list(sys.flags),
    "main": [__name__, sys.modules["__main__"].__dict__ is globals(), __import__("__main__").__spec__],
    "streams": [facts_of(stream) for stream in streams],
    "the first ones": [sys.__stdin__ is sys.stdin, sys.__stdout__ is sys.stdout],
    "folder": os.getcwd(), "variables": dict(os.environ), "mask": os.umask(0o22),
    "open": sorted(int(number) for number in os.listdir("/proc/self/fd"))[:3],
    "signals": [str(signal.getsignal(number)) for number in (2, 13, 15)],
    "threads": threading.active_count(), "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    "leads": os.getsid(0) == os.getpid(), "read": sys.stdin.read(),
    "parent": os.getppid(), "pid": os.getpid(),
}), flush=True)
os.write(2, b"raw\\n")
sys.exit(5)
"""


def facts(start, **settings):
    """What a program sees in a process that a class starts; the process, too."""
    words = [*COMMAND, "run", "-qf", "-c", FACTS, "ä", "-x"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with start(words, **pipes, text=True, **settings) as process:
        stdout, stderr = process.communicate("given", timeout=60)
    assert (process.returncode, stderr) == (5, "raw\n")
    return json.loads(stdout), process


@pytest.mark.parametrize("new_session", [False, True])
def test_a_program_sees_no_difference(new_session, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    settings = {
        "env": environment(COLUMNS="91"),
        "cwd": "elsewhere",
        "start_new_session": new_session,
    }
    forked, process = facts(Command, **settings)
    own, _ = facts(subprocess.Popen, **settings)
    assert forked.pop("pid") == process.pid != own.pop("pid")
    # One is a child of this process, the other of the process that was forked.
    assert own.pop("parent") == os.getpid() != forked.pop("parent")
    assert forked == own
    assert forked["read"] == "given"
    assert forked["leads"] == new_session
