"""Diagnostics for Dask, local or on a cluster: where the time of a computation went, and memory."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from dask_diag._version import __version__
from dask_diag.errors import DiagnosticError

if TYPE_CHECKING:
    from dask_diag.analysis.activities import activities
    from dask_diag.analysis.built_by import lines
    from dask_diag.analysis.call_tree import Selection, call_tree, hottest_lines
    from dask_diag.analysis.critical_path import critical_path
    from dask_diag.analysis.findings.rule import Finding, FindingLocation
    from dask_diag.analysis.memory import peak_allocations, task_memory
    from dask_diag.analysis.simulation.simulate import simulate
    from dask_diag.analysis.throughput import throughput
    from dask_diag.analysis.waits import waits
    from dask_diag.capture.log import span
    from dask_diag.capture.metrics import context_meter
    from dask_diag.model.recording import Recording, combine
    from dask_diag.profilers.attached import listen
    from dask_diag.profilers.cache import CacheProfiler
    from dask_diag.profilers.memory import MemorySampler
    from dask_diag.profilers.profiler import Profiler
    from dask_diag.profilers.progress import ProgressBar
    from dask_diag.profilers.record import performance_report, record
    from dask_diag.profilers.resources import ResourceProfiler
    from dask_diag.profilers.sampling import SamplingProfiler
    from dask_diag.storage.read import load
    from dask_diag.storage.write import save
    from dask_diag.tuning.tune import tune
    from dask_diag.views.compare import compare
    from dask_diag.views.exports.export import export
    from dask_diag.views.report.page import report
    from dask_diag.views.summary import findings, summary
    from dask_diag.views.visualize import visualize
    from dask_diag.views.what_if import what_if

__all__ = [
    "CacheProfiler",
    "DiagnosticError",
    "Finding",
    "FindingLocation",
    "MemorySampler",
    "Profiler",
    "ProgressBar",
    "Recording",
    "ResourceProfiler",
    "SamplingProfiler",
    "Selection",
    "__version__",
    "activities",
    "call_tree",
    "combine",
    "compare",
    "context_meter",
    "critical_path",
    "export",
    "findings",
    "hottest_lines",
    "lines",
    "listen",
    "load",
    "peak_allocations",
    "performance_report",
    "record",
    "report",
    "save",
    "simulate",
    "span",
    "summary",
    "task_memory",
    "throughput",
    "tune",
    "visualize",
    "waits",
    "what_if",
]

_MODULES = {
    "CacheProfiler": "dask_diag.profilers.cache",
    "Finding": "dask_diag.analysis.findings.rule",
    "MemorySampler": "dask_diag.profilers.memory",
    "Profiler": "dask_diag.profilers.profiler",
    "ProgressBar": "dask_diag.profilers.progress",
    "Recording": "dask_diag.model.recording",
    "ResourceProfiler": "dask_diag.profilers.resources",
    "SamplingProfiler": "dask_diag.profilers.sampling",
    "Selection": "dask_diag.analysis.call_tree",
    "FindingLocation": "dask_diag.analysis.findings.rule",
    "activities": "dask_diag.analysis.activities",
    "call_tree": "dask_diag.analysis.call_tree",
    "combine": "dask_diag.model.recording",
    "compare": "dask_diag.views.compare",
    "context_meter": "dask_diag.capture.metrics",
    "critical_path": "dask_diag.analysis.critical_path",
    "export": "dask_diag.views.exports.export",
    "findings": "dask_diag.views.summary",
    "hottest_lines": "dask_diag.analysis.call_tree",
    "lines": "dask_diag.analysis.built_by",
    "listen": "dask_diag.profilers.attached",
    "load": "dask_diag.storage.read",
    "task_memory": "dask_diag.analysis.memory",
    "peak_allocations": "dask_diag.analysis.memory",
    "performance_report": "dask_diag.profilers.record",
    "record": "dask_diag.profilers.record",
    "report": "dask_diag.views.report.page",
    "save": "dask_diag.storage.write",
    "simulate": "dask_diag.analysis.simulation.simulate",
    "span": "dask_diag.capture.log",
    "summary": "dask_diag.views.summary",
    "throughput": "dask_diag.analysis.throughput",
    "tune": "dask_diag.tuning.tune",
    "visualize": "dask_diag.views.visualize",
    "waits": "dask_diag.analysis.waits",
    "what_if": "dask_diag.views.what_if",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(ipython: Any) -> None:
    """Make ``%%diag`` known, when ``%load_ext dask_diag`` asks for it."""
    from dask_diag.cli.magic import DiagMagics

    ipython.register_magics(DiagMagics)


def __dir__() -> list[str]:
    return sorted(__all__)


if "dask" in sys.modules:
    # A program may look at these settings, or change some, before its first profiler.
    from dask_diag.config import load_defaults

    load_defaults()
    if sys.modules["dask"].config.get("diag.lines.capture", None) == "always":
        importlib.import_module("dask_diag.hooks.lines").start_capturing()
