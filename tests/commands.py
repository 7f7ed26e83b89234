"""``dask-diag`` in processes that tests start: forked, where that can be, from one with its imports.

They are two thirds of half a second of CPU that such a process takes, three quarters of two seconds
where it writes a page. How the process ends, its streams, signals and files are those of any other.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import json
import os
import select
import socket
import subprocess
import sys

from .programs import ROOT, SEARCHED

COMMAND = [sys.executable, "-m", "dask_diag"]

SERVER = (
    "from tests.fork_server import serve; serve({connection}); del serve\n"
    "import runpy; runpy._run_module_as_main('dask_diag')"
)
"""What is forked goes on behind `serve`, as python itself does with -m."""

MAY_DIFFER = {
    *("COLUMNS", "NO_COLOR", "PYTEST_CURRENT_TEST", "PYTHONDONTWRITEBYTECODE"),
    # threadpoolctl sets it as it is imported.
    "KMP_DUPLICATE_LIB_OK",
}
"""Variables that may be others than those of the server: what reads them does so after a fork."""


def environment(**others):
    """The variables of this process without those that change what Python does."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**own, "PYTHONPATH": SEARCHED, "PYTHONDONTWRITEBYTECODE": "1", **others}


VARIABLES = environment(OPENBLAS_NUM_THREADS="1")
"""Those of most commands that tests start, as the fixture `programs_start_quickly` has it."""


def number_read(pipe):
    """A number that the server wrote."""
    content = os.read(pipe, 4)
    assert len(content) == 4, "the process that is forked has ended"
    return int.from_bytes(content, "little")


class Server:
    """The process that is forked; it ends with this one."""

    def __init__(self):
        self.owner = os.getpid()
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER.format(connection=other.fileno())],
            stdin=subprocess.DEVNULL,
            env=VARIABLES,
            cwd=ROOT,
            pass_fds=[other.fileno()],
        )
        other.close()
        self.connection = own
        atexit.register(self.close)

    def close(self):
        """Have the process end, unless it is that of the process that forked this one."""
        self.connection.close()
        if self.owner == os.getpid():
            self.process.wait()

    def fork(self, streams, **request):
        """Start a process; its number, and where its exit status can be read."""
        status, written = os.pipe()
        try:
            content = json.dumps(request).encode()
            socket.send_fds(self.connection, [content], [*streams, written])
        finally:
            os.close(written)
        return number_read(status), status


@functools.cache
def server_of(process):
    """That of this process, and not of one from which it was forked."""
    return Server()


def is_same(variables, others):
    """Whether what starts with one of two environments is as if it had the other."""
    return all(
        variables.get(name) == others.get(name)
        for name in (variables.keys() | others.keys()) - MAY_DIFFER
    )


class Command(subprocess.Popen):
    """A process as `subprocess.Popen` starts it, or a fork where no difference can be seen.

    One that has other variables, closes streams or runs something before has a process of its own.
    """

    _status = None

    def _execute_child(self, *args):
        names = inspect.signature(subprocess.Popen._execute_child).parameters
        given = dict(zip(list(names)[1:], args, strict=True))
        variables = dict(os.environ) if given["env"] is None else given["env"]
        if not self._can_fork(given, variables):
            super()._execute_child(*args)
            return
        pipes = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        self.pid, self._status = server_of(os.getpid()).fork(
            [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)],
            arguments=[str(word) for word in given["args"][len(COMMAND) :]],
            folder=os.path.abspath(given["cwd"] or os.getcwd()),
            variables=variables,
            new_session=given["start_new_session"],
        )
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in ends))

    def _can_fork(self, given, variables):
        return (
            hasattr(os, "pidfd_open")
            and list(given["args"][: len(COMMAND)]) == COMMAND
            and not given["preexec_fn"]
            and not given["pass_fds"]
            and is_same(variables, VARIABLES)
        )

    def _try_wait(self, wait_flags):
        if self._status is None:
            return super()._try_wait(wait_flags)
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        ended = number_read(self._status)
        os.close(self._status)
        return self.pid, ended

    def _wait_pidfd(self, timeout):
        """From Python 3.15 on: a process that has ended may not have been reported yet."""
        return False if self._status is not None else super()._wait_pidfd(timeout)

    def _internal_poll(self, *args, **kwargs):
        if self._status is None:
            return super()._internal_poll(*args, **kwargs)
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, ended = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(ended)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def run(*arguments, **settings):
    """The text that a command wrote, and how it ended."""
    timeout = settings.pop("timeout", 120)
    given = settings.pop("input", None)
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    if given is not None:
        pipes["stdin"] = subprocess.PIPE
    settings = {**pipes, "env": environment(), **settings}
    with Command([*COMMAND, *arguments], **settings) as child:
        try:
            stdout, stderr = child.communicate(given, timeout=timeout)
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(child.args, child.returncode, stdout, stderr)
