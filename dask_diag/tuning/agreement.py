"""Whether the runs of a program with different settings have the same result."""

from __future__ import annotations

from collections.abc import Iterable

from dask_diag.tuning.trials import Trial

__all__ = ["Agreement"]


class Agreement:
    """What the runs of the baseline say of the result that a run must have.

    Parameters
    ----------
    baseline : iterable of Trial
        Its runs, recorded ones not counted.
    subject : str
        What is compared, such as ``stdout``.

    Attributes
    ----------
    note : str
        Why results cannot be compared; empty if they can.
    """

    def __init__(self, baseline: Iterable[Trial], subject: str) -> None:
        trials = [trial for trial in baseline if not trial.failed]
        self._subject = subject
        self._outputs = {trial.output for trial in trials}
        self._is_checked = any(trial.check is not None for trial in trials)
        self.note = ""
        if self._is_checked and any(trial.check for trial in trials):
            self.note = "the --check command refuses the result of the program as it is"
        elif not self._is_checked and len(self._outputs) > 1:
            self.note = (
                f"{subject} differs from run to run without any setting: whether a setting changes "
                "the result is not known; --check COMMAND can judge it"
            )

    def objection(self, trials: Iterable[Trial]) -> str:
        """What is wrong with the results of a setting's runs; empty if nothing is."""
        results = [trial for trial in trials if not trial.failed]
        if self.note or not results:
            return ""
        if self._is_checked:
            return "--check fails" if any(trial.check for trial in results) else ""
        if {trial.output for trial in results} <= self._outputs:
            return ""
        return f"{self._subject} differs"
