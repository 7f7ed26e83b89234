"""Findings as text, or why there are none; and the sentence about a recording that lost a part."""

from __future__ import annotations

from math import isnan

from dask_diag.analysis.findings import Finding
from dask_diag.formatting import seconds
from dask_diag.model.recording import Recording
from dask_diag.schema import STATES

__all__ = ["incomplete", "lost", "no_findings"]


def lost(finding: Finding) -> str:
    """What a finding costs; nothing if that is not known."""
    return "" if isnan(finding.seconds_lost) else f"about {seconds(finding.seconds_lost)} lost"


def incomplete(recording: Recording) -> str:
    """A warning to read before any number, if the recording is truncated or damaged."""
    if recording.is_complete:
        return ""
    return (
        f"This recording is {recording.state}: {_lower(STATES[recording.state])} The numbers cover "
        "only what could be loaded."
    )


def no_findings(recording: Recording) -> str:
    """What is said where there are no findings: nothing was wrong only if everything was seen."""
    if not len(recording.tasks):
        return "No findings: no tasks were recorded."
    if not recording.is_complete:
        return (
            f"No findings in what could be loaded; the recording is {recording.state}, and the "
            "lost part was not examined."
        )
    return "Nothing stood out."


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
