"""The line that built a failing task, as a note of its exception where a setting allows that."""

from __future__ import annotations

import sys
from collections.abc import Hashable

import dask

from dask_diag.capture.failures import traceback_of
from dask_diag.capture.keys import function_of_key
from dask_diag.capture.lines.names import Now, plain_name
from dask_diag.capture.lines.sites import NOWHERE, Site
from dask_diag.capture.lines.steps import EndedKinds
from dask_diag.hooks.stack import keys_of_calls
from dask_diag.model.graph import name_of_key

_MOST_LINES = 10
"""Lines that are named, where it is not known which step of a fused task failed."""


def note_lines(error: BaseException | None, key: Hashable, kinds: EndedKinds) -> None:
    """Add a note on the lines that built a failing task; type and message of the error stay.

    Nothing is raised. Before Python 3.11 an exception has no notes.
    """
    is_asked_for = sys.version_info >= (3, 11) and dask.config.get("diag.lines.notes", False)
    if not is_asked_for or not isinstance(error, Exception):
        return
    try:
        number = kinds.number_of(key)
        steps = kinds.kinds[number] if number >= 0 else ()
        calls = [plain_name(name_of_key(call)) for call in keys_of_calls(traceback_of(error))]
        functions = {function_of_key(name) for name in calls[-1:]}
        failed = [step for step in steps if step.function in functions] or steps
        sites = dict.fromkeys(step.origin.site for step in failed if step.origin.site is not None)
        known = [site for site in sites if site is not NOWHERE]
        note = _note(known) if known else ""
        # An object that several tasks raise has it already.
        if note and note not in getattr(error, "__notes__", ()):
            BaseException.add_note(error, note)
    except Exception as fault:
        if Now.capture is not None:
            Now.capture.fault(fault)


def _note(sites: list[Site]) -> str:
    from dask_diag.capture.lines.tables import Sources

    sources = Sources()
    # Several are named without their callers.
    stacks = [site.places() if len(sites) == 1 else site.places()[-1:] for site in sites]
    texts = dict.fromkeys(
        "".join(
            f'\n  File "{place.file}", line {place.line}, in {place.function}'
            f"\n    {sources.text(place)[0].strip()}"
            for place in places
        )
        for places in stacks
    )
    shown = [*texts][:_MOST_LINES]
    more = [f" one of {len(texts) - len(shown)} more"] * (len(texts) > len(shown))
    which = "This line" if len(texts) == 1 else "One of these lines"
    return f"{which} built the failing task (dask_diag):" + "\n  or".join(shown + more)
