"""A process that has imported what commands import, and becomes one in a fork for each request.

It is run in ``__main__`` by `tests.commands`, of which this is the other end.
"""

from __future__ import annotations

import functools
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys

IMPORTED = (
    *("dask.delayed", "dask.threaded", "dask.multiprocessing", "psutil", "numpy.ma"),
    *("dask_diag.cli.run", "dask_diag.cli.run", "dask_diag.profilers.record"),
    *("dask_diag.views.summary", "rich._emoji_codes"),
)
WRITE_PAGES = {"report", "--html", "live", "--live"}
"""Words of commands that need more, which takes longer than all else."""
IMPORTED_FOR_PAGES = ("dask_diag.views.report.page", "bokeh.embed", "bokeh.layouts", "http.server")


def import_all(names):
    """Import modules, whose objects are no garbage of the processes that are forked."""
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


@functools.cache
def import_for_pages():
    """Import what makes pages, once."""
    import_all(IMPORTED_FOR_PAGES)
    importlib.import_module("tests.bokeh_defaults").remember_defaults()


def serve(connection):
    """Fork at each request, and say how each process ended; returns in what was forked."""
    import_all(IMPORTED)
    connection = socket.socket(fileno=connection)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not connection:
                    selector.unregister(key.fileobj)
                    _report(key.fileobj, *key.data)
                    continue
                content, streams, _, _ = socket.recv_fds(connection, 1_000_000, 4)
                if not content:
                    os._exit(0)
                *streams, status = streams
                request = json.loads(content)
                if not WRITE_PAGES.isdisjoint(request["arguments"]):
                    import_for_pages()
                child = os.fork()
                if not child:
                    os.close(status)
                    connection.close()
                    _become(streams, **request)
                    return
                for stream in streams:
                    os.close(stream)
                os.write(status, child.to_bytes(4, "little"))
                selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, status))


def _report(handle, child, status):
    """Write the exit status of a process that has ended, where its starter reads."""
    os.close(handle)
    ended = os.waitpid(child, 0)[1]
    try:
        os.write(status, ended.to_bytes(4, "little"))
    except BrokenPipeError:
        # Nobody wants to know any more.
        pass
    os.close(status)


def _become(streams, arguments, folder, variables, new_session):
    """Be what ``python -m dask_diag`` with these arguments is before its first line."""
    if new_session:
        os.setsid()
    os.chdir(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv[:] = ["-m", *arguments]
    sys.orig_argv[:] = [sys.executable, "-m", "dask_diag", *arguments]
    sys.path[0] = folder
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode = "r" if name == "stdin" else "w"
        stream = io.TextIOWrapper(
            open(number, mode + "b", closefd=False),
            encoding=getattr(sys, name).encoding,
            errors=getattr(sys, name).errors,
            newline=None if name == "stdin" else "\n",
            line_buffering=name == "stderr" or os.isatty(number),
        )
        stream.mode = mode
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
