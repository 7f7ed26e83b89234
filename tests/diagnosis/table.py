"""How right the findings were, as numbers and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, isnan
from statistics import median
from textwrap import wrap

from dask_diag.model.codes import FINDINGS
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
    planted = [one for one in outcomes if one.program.code]
    estimated = [one for one in planted if one.is_estimated]
    return "\n".join(
        [
            "Accuracy of findings",
            "====================",
            "",
            ".. This page is written by ``make truth``.",
            "",
            *_filled(_of_unseen_programs()),
            "",
            *_filled(
                "On programs that the authors of the rules know, findings are right more often. "
                f"``make truth`` records {len(planted)} small programs with one known cause each "
                "and compares their findings with the cause. Then it applies the remedy and "
                "measures the gain: interleaved runs without profilers, the difference of the "
                "medians of three. It also tries each setting that a finding suggests on the "
                f"unchanged program. {len(outcomes) - len(planted)} healthy programs, and the "
                "programs with their remedy, must not have findings that are false for them."
            ),
            "",
            *_plain(
                [
                    ("Causes found (recall)", f"{result.recall:.0%}"),
                    ("Findings that are true (precision)", f"{result.precision:.0%}"),
                    (
                        f"Estimates within a factor of two of the gain (of {len(estimated)})",
                        f"{result.within_two:.0%}",
                    ),
                    (
                        f"Suggested settings that made a program slower (of {result.tried})",
                        f"{result.slower}",
                    ),
                ]
            ),
            "",
            "What these numbers do not show",
            "------------------------------",
            "",
            *_limits(planted, estimated),
            "",
            *_outside(estimated),
            *OTHERS,
            "",
            "By finding",
            "----------",
            "",
            *_by_code(planted),
            "",
            "By program",
            "----------",
            "",
            "*Estimate* is the ``potential_saving`` of the finding on the cause; *gain* is measured. A dash",
            "means that the finding does not state seconds, or that the remedy does not save time.",
            "",
            *_rows(outcomes),
            "",
            "The programs are in ``tests/diagnosis``. They are short, so their seconds do not predict",
            f"the seconds of other programs. While they ran, other programs used {_busy(outcomes):.0%} of",
            "the machine (the median of the runs).",
            "",
        ]
    )


NOTES = {
    "times of mixed formats in threads": "The estimate is of the advised processes, which saved "
    "1.8 s in a trial; the remedy is another, a format for all.",
}
"""Why an estimate is wrong, by the name of the program."""


def _limits(planted: Sequence[Outcome], estimated: Sequence[Outcome]) -> list[str]:
    """What a reader has to know before these numbers are believed, as a list."""
    counts = Counter(one.program.code for one in planted)
    missing = [f"``{code}``" for code in FINDINGS if code not in counts]
    single = sum(count == 1 for count in counts.values())
    recalled = sum(one.is_recalled for one in planted)
    within = sum(one.is_within_two for one in estimated)
    sentences = [
        "The authors of the rules also wrote these programs, and mend a rule, or what is listed as "
        "true of a program, where a run shows an error; then the program runs again. The shares "
        "above are of programs that the rules know. For others see the next section.",
        f"{len(counts)} of the {len(FINDINGS)} findings occur as a cause. "
        f"Not tried: {', '.join(missing) or 'none'}.",
        f"{single} of these findings have a single program.",
        f"The numbers are small. {recalled} of {len(planted)} causes found means a recall of at "
        f"least {_at_least(recalled, len(planted)):.0%}, and {within} of {len(estimated)} "
        f"estimates a share of at least {_at_least(within, len(estimated)):.0%}, at 95% "
        "confidence, for programs like these.",
        "A further finding in a program (*Other findings*) counts as true if the author of the "
        "program listed it as true of that program; nobody else judged it. ``busy-machine`` and "
        "``late-samples`` never count as false, because they depend on the machine.",
    ]
    return [line for text in sentences for line in _filled(text, "* ")]


def _outside(estimated: Sequence[Outcome]) -> list[str]:
    """The estimates outside of a factor of two of the gain, as a table."""
    cells = [
        (one.program.name, f"{one.lost:.2f} s", f"{one.gain:.2f} s")
        for one in estimated
        if not one.is_within_two
    ]
    if not cells:
        return []
    notes = [f"*{name}*: {NOTES[name]}" for name, _, _ in cells if name in NOTES]
    return [
        "These estimates are outside a factor of two of the gain:",
        "",
        *_table([("Program", "Estimate", "Gain"), *cells]),
        "",
        *[line for note in notes for line in (*_filled(note), "")],
    ]


def _filled(text: str, bullet: str = "") -> list[str]:
    """A paragraph in lines of at most 100 columns."""
    return wrap(bullet + text, 100, subsequent_indent=" " * len(bullet), break_on_hyphens=False)


def _at_least(part: int, total: int) -> float:
    """The lower bound of a share at 95% confidence, by the binomial distribution."""
    low, high = 0.0, part / total if total else 0.0
    for _ in range(40):
        middle = (low + high) / 2
        reached = sum(
            comb(total, n) * middle**n * (1 - middle) ** (total - n) for n in range(part, total + 1)
        )
        low, high = (middle, high) if reached < 0.05 else (low, middle)
    return low


def _by_code(planted: Sequence[Outcome]) -> list[str]:
    """For each finding: its programs, in how many it was found, and how right its seconds were."""
    cells = [("Finding", "Programs", "Found", "Within a factor of two")]
    for code in sorted({one.program.code for one in planted}):
        of_code = [one for one in planted if one.program.code == code]
        estimated = [one for one in of_code if one.is_estimated]
        within = f"{sum(one.is_within_two for one in estimated)} of {len(estimated)}"
        cells.append(
            (
                f":doc:`findings/{code}`",
                str(len(of_code)),
                str(sum(one.is_recalled for one in of_code)),
                within if estimated else "\u2013",
            )
        )
    return _table(cells)


def _busy(outcomes: Sequence[Outcome]) -> float:
    """The share of the machine that other programs used, in a typical run."""
    shares = [
        share for one in outcomes for share in one.busy if "neighbours" not in one.program.name
    ]
    return max(0.0, median(shares)) if shares else 0.0


def _rows(outcomes: Sequence[Outcome]) -> list[str]:
    header = ("Program", "Cause", "Found", "Estimate", "Gain", "Other findings")
    return _table([header, *(_cells(one) for one in outcomes)])


def _table(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as a table of reStructuredText, the first as its header."""
    line, header, *body = _plain(cells)
    return [line, header, line, *body]


def _plain(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as a table of reStructuredText without a header."""
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
    line = "  ".join("=" * width for width in widths)
    body = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return [line, *body, line]


SETS = {
    # Of each set: slow programs, right, half right, missed, wrong; all programs, and those with a
    # false finding.
    "1": (36, 21, 10, 5, 0, 48, 5),
    "2": (49, 32, 12, 1, 4, 65, 12),
    "3": (24, 14, 9, 1, 0, 32, 5),
    "4": (22, 14, 7, 0, 1, 30, 6),
    "5": (24, 21, 1, 2, 0, 32, 2),
    "6": (24, 13, 7, 3, 1, 33, 5),
    "7": (16, 13, 1, 1, 1, 34, 3),
    "8": (12, 10, 0, 1, 1, 24, 3),
    "9": (12, 10, 0, 1, 1, 28, 3),
}
"""Sets of programs that were judged when they were looked at for the first time."""


def _of_unseen_programs() -> str:
    last = [*SETS.values()][-3:]
    slow, right, half, *_, all_programs, false = (
        sum(numbers) for numbers in zip(*last, strict=True)
    )
    return (
        f"Of the last {slow} slow programs that the authors of the rules had not seen, findings "
        f"named {right} causes with a fix that helps, and {half} in part. {false} of "
        f"{all_programs} programs, with the healthy ones, had a false finding. The section "
        "`Programs written without knowledge of the rules`_ has all sets."
    )


OTHERS = (
    "Programs written without knowledge of the rules",
    "-----------------------------------------------",
    "",
    "In November 2026, nine sets of programs were written after public reports of slow Dask programs",
    "whose cause had become known, and healthy ones beside them, without knowledge of the rules. A third",
    "party compared the first findings with the causes. Each column is a set, in the order of time, when",
    "it was looked at for the first time:",
    "",
    *_table(
        [
            ("Set", *SETS),
            *(
                (name, *(str(numbers[row]) for numbers in SETS.values()))
                for row, name in enumerate(
                    (
                        "Slow programs",
                        "Right: the cause, with a fix that helps",
                        "Half right, such as the place without the fix",
                        "Missed",
                        "Wrong: something else, with a fix that does not help",
                        "All programs, with the healthy ones",
                        "Programs with a false finding",
                    )
                )
            ),
        ]
    ),
    "",
    "After each set the rules were changed for what it showed: for files that are loaded again in each",
    "task, computations in tasks, a commit for each row, workers that an adaptive cluster removes,",
    "``async`` functions that block a worker, and after the third set for calls for which there is a",
    "faster one. With the rules as changed, 38 of the second set were right, and 4 of 65 had a false",
    "finding.",
    "",
    "Of the fifth set, a level of compression that is too high, in threads of zarr, and a resource of a",
    "cluster that tasks hold which do not need it were missed. The resource, and the two false findings,",
    "of low and medium severity beside the right ones, were mended afterwards. If a server serves as many",
    "requests at once as there are threads, its limit is not seen: the seconds of such a finding are an",
    "upper bound.",
    "",
    "The sixth set was written with rarer causes. Mended afterwards: callbacks that keep the scheduler's",
    "thread, cells of a workbook one by one, a queue of a cluster that is given one item at a time, a bag",
    "shuffled between workers, and tasks that end well when they are run again (all half right); the lock",
    "of ``store``, whose advice lost data (wrong); and two of the false findings. Not seen: a query",
    "without an index, which each task runs once; a model that predicts one sample at a time; code at the",
    "top level of a file, which each worker process runs again. Half right remain arrays of Python",
    "objects, and small packets that wait for each other.",
    "",
    *_filled(
        "The last three sets were asked for common causes. Mended after the seventh: limits of rate, "
        "and workers with a resource that others lack; after the eighth: xarray that compares the "
        "coordinates of files (wrong), functions of groups that return several numbers (missed), and "
        "more threads for slow calls (false); after the ninth: a small table of a merge in many "
        "partitions (wrong), overlapping borders (missed), and batches that gain little (false). Not "
        "seen remain columns of a file that an opaque function does not need, and an array that is "
        "computed before a part of it is taken. A lock for a single device, and a server that serves "
        "as many as there are threads, look like ones that could be avoided: such findings say so, "
        "and did not count as false. Of 14 more healthy programs, which nobody judged, 4 had a "
        "finding."
    ),
)
"""What is known of programs that the rules were not made for."""


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
