"""What the recording of the baseline lets expect of a setting, before it is tried."""

from __future__ import annotations

from collections.abc import Sequence

from dask_diag.analysis.findings import Finding
from dask_diag.model.recording import Recording
from dask_diag.tuning.settings import Setting

__all__ = ["predicted_gain"]


def predicted_gain(recording: Recording, findings: Sequence[Finding], setting: Setting) -> float:
    """How many times as fast the program is to be; NaN if the recording says nothing.

    It is what the finding that advised the setting says is lost.
    """
    wall = recording.stop - recording.start
    for finding in findings:
        if finding.code == setting.reason and finding.seconds_lost < wall:
            return wall / (wall - finding.seconds_lost)
    return float("nan")
