"""What a finding is."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass
from math import isnan

from dask_diag import schema
from dask_diag.analysis.findings.where import NOWHERE, Where
from dask_diag.errors import DiagnosticError

__all__ = [
    "ABOUT",
    "AT_MOST",
    "HIGH",
    "KINDS",
    "MEASURED",
    "MEDIUM",
    "SEVERITIES",
    "Finding",
    "severity_of_guess",
    "severity_of_share",
]

SEVERITIES = ("high", "medium", "low")
KINDS = AT_MOST, ABOUT, MEASURED = "at most", "about", "measured"
"""What sort of number `Finding.seconds_lost` is."""
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
        The wall seconds that the program would have been shorter; NaN if it costs no time or that
        is not known.
    evidence : str
        What was measured.
    advice : str
        What to do.
    kind : str
        What sort of number `seconds_lost` is. ``about``: the simulator predicts the program with
        the cause and without it, and this is the difference. ``at most``: no more than this can be
        gained; how much is not known. ``measured``: so many seconds of wall time were measured.
    where : Where
        When, on which workers and in which functions.
    """

    code: str
    severity: str
    seconds_lost: float
    evidence: str
    advice: str
    _: KW_ONLY
    kind: str
    where: Where = NOWHERE

    def __post_init__(self) -> None:
        for name, value, expected in (
            ("code", self.code, tuple(schema.FINDINGS)),
            ("severity", self.severity, SEVERITIES),
            ("kind", self.kind, KINDS),
        ):
            if value not in expected:
                raise DiagnosticError(
                    f"{name}: expected one of {', '.join(expected)}, found {value!r}"
                )

    def to_dict(self) -> dict[str, object]:
        """Plain data, as JSON takes it: an unknown `seconds_lost` is None."""
        seconds_lost = None if isnan(self.seconds_lost) else float(self.seconds_lost)
        return {**asdict(self), "seconds_lost": seconds_lost}

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
