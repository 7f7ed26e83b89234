"""What a finding is."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

from dask_diag import schema
from dask_diag.errors import DiagnosticError

__all__ = ["HIGH", "MEDIUM", "SEVERITIES", "Finding", "severity_of_guess", "severity_of_share"]

SEVERITIES = ("high", "medium", "low")
HIGH = 0.3
"""The share of the time from which on a loss is high."""
MEDIUM = 0.1
"""The share from which on it is medium; less is low."""


@dataclass(frozen=True)
class Finding:
    """Something that cost time or may mislead, and what to do about it.

    Attributes
    ----------
    code : str
        What it is; each code has a page in the documentation.
    severity : str
        ``high``, ``medium`` or ``low``.
    seconds_lost : float
        An estimate of the wall seconds that the computations would have been shorter; NaN if it
        costs no time or that is not known.
    evidence : str
        What was measured.
    advice : str
        What to do.
    """

    code: str
    severity: str
    seconds_lost: float
    evidence: str
    advice: str

    def __post_init__(self) -> None:
        if self.code not in schema.FINDINGS:
            raise DiagnosticError(
                f"code: expected one of {', '.join(schema.FINDINGS)}, found {self.code!r}"
            )

    @property
    def rank(self) -> tuple[bool, int, float]:
        """What findings are sorted by: the worst is the smallest.

        Without a result no other finding matters.
        """
        lost = 0.0 if isnan(self.seconds_lost) else self.seconds_lost
        return self.code != "failed-tasks", SEVERITIES.index(self.severity), -lost


def severity_of_share(share: float) -> str:
    """How severe it is to lose this share of the time."""
    return "high" if share >= HIGH else "medium" if share >= MEDIUM else "low"


def severity_of_guess(share: float) -> str:
    """The same if the reason is not known: never high."""
    return "low" if severity_of_share(share) == "low" else "medium"
