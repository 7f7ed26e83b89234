"""The plugins sent as source text, to a scheduler without dask_diag or with another Python."""

from __future__ import annotations

import marshal
import re
from functools import lru_cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path

SHIPPED = ("model/graph", "cluster/wire", "capture/repeated", "cluster/plugin")
"""Modules of the scheduler's side, in the order of their imports; they share a namespace."""
_OWN_IMPORT = re.compile(
    r"^from (?:__future__|dask_diag\.[\w.]+) import (?:\([^)]*\)|.*)$", re.MULTILINE
)
"""Found in the text, as `ast.parse` fails up to Python 3.11.7 if garbage collection runs code that
parses, too, such as the logging of a traceback."""

_REBUILD = (
    "[exec(__import__('marshal').loads(code) "
    "if __import__('importlib.util').util.MAGIC_NUMBER == magic else compile(source, name, 'exec'),"
    " globals()), globals()[made](*arguments)][1]"
)
"""Compilation is the longest step of joining: code for this version of Python is sent compiled."""


class Shipped:
    """Pickles to a call of a function or class that source text defines.

    Parameters
    ----------
    source : str
        May import only modules of the other process.
    made : str
        Name of the function or class.
    *arguments : object
        Plain values for the call.
    """

    def __init__(self, source: str, made: str, *arguments: object) -> None:
        self._names = {
            "__name__": f"<dask_diag {made}>",
            "name": f"<dask_diag {made}>",
            "source": source,
            "code": _compiled(source, f"<dask_diag {made}>"),
            "magic": MAGIC_NUMBER,
            "made": made,
            "arguments": arguments,
        }

    def __reduce__(self) -> tuple[object, ...]:
        return eval, (_REBUILD, self._names)


@lru_cache(maxsize=4)
def _compiled(source: str, name: str) -> bytes:
    # Docstrings are left out: nobody reads them there.
    return marshal.dumps(compile(source, name, "exec", optimize=2))


@lru_cache(maxsize=1)
def source_of_scheduler_plugin() -> str:
    """The text of the modules `SHIPPED`, one after the other."""
    package = Path(__file__).parents[1]
    texts = [(package / f"{name}.py").read_text(encoding="utf-8") for name in SHIPPED]
    return "\n".join(["from __future__ import annotations", *map(_without_own_imports, texts)])


def _without_own_imports(text: str) -> str:
    """The text of a module without its imports of this package, whose names are defined before."""
    return _OWN_IMPORT.sub(lambda match: "\n" * match.group().count("\n"), text)


BOOTSTRAP = """
from distributed.diagnostics.plugin import WorkerPlugin

class DaskDiagWorkerPlugin(WorkerPlugin):
    name = "dask_diag"
    idempotent = True
    measuring = None

    def __init__(self, version):
        self.version = version

    async def setup(self, worker):
        self.drop_preload()
        try:
            from dask_diag._version import __version__ as version
            reason = "" if version == self.version else "dask_diag %s is installed there" % version
        except Exception as error:
            version, reason = "", "dask_diag cannot be imported there (%s)" % type(error).__name__
        if not reason:
            try:
                from dask_diag.cluster.worker import WorkerSide
                self.measuring = WorkerSide(worker)
                await self.measuring.start(version)
                # What is called several times for each task takes no detour.
                self.transition = self.measuring.transition
                return
            except Exception as error:
                self.measuring, reason = None, "%s: %s" % (type(error).__name__, error)
        import os
        facts = dict(version=version, reason=reason, measured=0, pid=os.getpid(), clock=[])
        try:
            await worker.scheduler.dask_diag_worker(address=worker.address, facts=facts)
        except Exception:
            pass

    def drop_preload(self):
        # A nanny hands its client's configuration on: clients of tasks need not load this, and
        # could not everywhere. Where this process records, its own clients do.
        import sys

        import dask.config

        recorder = sys.modules.get("dask_diag.cluster.recorder")
        if recorder is not None and recorder.active_recorders():
            return
        modules = dask.config.get("distributed.client.preload", [])
        if "dask_diag.cluster.preload" in modules:
            modules = [name for name in modules if not name.startswith("dask_diag.")]
            dask.config.set({"distributed.client.preload": modules})

    def teardown(self, worker):
        if self.measuring is not None:
            vars(self).pop("transition", None)
            self.measuring.stop()
            self.measuring = None

    def transition(self, key, start, finish, **kwargs):
        pass
"""
"""The workers' plugin, which measures on workers that have this version of the package."""
