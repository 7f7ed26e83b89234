"""How right the findings were, as numbers and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from statistics import median

from tests.diagnosis.trials import Outcome

__all__ = ["Scores", "page", "scores"]


@dataclass(frozen=True)
class Scores:
    """Shares of what was planted, found, estimated and advised."""

    recall: float
    precision: float
    within_two: float
    slower: int
    tried: int


def scores(outcomes: Sequence[Outcome]) -> Scores:
    """Of all planted programs."""
    planted = [one for one in outcomes if one.program.code]
    true = sum(one.number_true for one in outcomes)
    false = sum(len(one.false) for one in outcomes)
    estimated = [one for one in planted if one.is_estimated]
    advice = [advice for one in outcomes for advice in one.advice]
    return Scores(
        recall=_share(sum(one.is_recalled for one in planted), len(planted)),
        precision=_share(true, true + false),
        within_two=_share(sum(one.is_within_two for one in estimated), len(estimated)),
        slower=sum(one.slower for one in advice),
        tried=len(advice),
    )


def _share(part: int, total: int) -> float:
    return part / total if total else 1.0


def page(outcomes: Sequence[Outcome]) -> str:
    """The documentation's page, as reStructuredText."""
    result = scores(outcomes)
    planted = sum(bool(one.program.code) for one in outcomes)
    estimated = sum(one.is_estimated for one in outcomes)
    return "\n".join(
        [
            "How right are the findings",
            "==========================",
            "",
            ".. This page is written by ``make truth``.",
            "",
            f"{planted} small programs with one known cause each are recorded, and the findings are",
            "compared with the cause. Then the remedy is applied, and what it gains is measured:",
            "interleaved runs without profilers, the difference of the medians of three. Settings",
            "that any advice names are tried on the unchanged program. Healthy programs, and those",
            "with the remedy, must not have the finding.",
            "",
            "========================================================  ======",
            f"Causes that were found (recall)                           {result.recall:.0%}",
            f"Findings that were true (precision)                       {result.precision:.0%}",
            f"Seconds lost within a factor of two of the gain (of {estimated:2})    "
            f"{result.within_two:.0%}",
            f"Advised settings that made a program slower (of {result.tried:2})        "
            f"{result.slower}",
            "========================================================  ======",
            "",
            "``seconds_lost`` is what the finding on the cause estimates; ``gain`` is measured. A",
            "dash: the finding does not state seconds, or the remedy is not about time.",
            "",
            *_rows(outcomes),
            "",
            "The programs are in ``tests/diagnosis``. They are short, so the seconds say little",
            f"about other programs. While they ran, other programs used {_busy(outcomes):.0%} of",
            "the machine (the median of the runs).",
            "",
        ]
    )


def _busy(outcomes: Sequence[Outcome]) -> float:
    """The share of the machine that other programs used, in a typical run."""
    shares = [
        share for one in outcomes for share in one.busy if "neighbours" not in one.program.name
    ]
    return max(0.0, median(shares)) if shares else 0.0


def _rows(outcomes: Sequence[Outcome]) -> list[str]:
    header = ("Program", "Cause", "Found", "seconds_lost", "Gain", "Other findings")
    cells = [header, *(_cells(one) for one in outcomes)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(header))]
    line = "  ".join("=" * width for width in widths)
    body = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return [line, body[0], line, *body[1:], line]


def _cells(one: Outcome) -> tuple[str, ...]:
    program = one.program
    others = [finding.code for finding in one.found if finding.code != program.code]
    false = {code for code in one.false if "(" not in code}
    named = [f"{code} (false)" if code in false else code for code in others]
    named += [code for code in one.false if "(" in code]
    named += [f"{advice.changed} is slower" for advice in one.advice if advice.slower]
    return (
        program.name,
        program.code or "\u2013",
        ("yes" if one.is_recalled else "**no**") if program.code else "\u2013",
        "\u2013" if isnan(one.lost) else f"{one.lost:.2f} s",
        "\u2013" if isnan(one.gain) else f"{one.gain:.2f} s",
        ", ".join(named) or "\u2013",
    )
