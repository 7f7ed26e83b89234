"""``dask-diag compare``: what changed between two recordings, or from some runs to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from dask_diag.cli.output import (
    CommandFailure,
    FilePath,
    ManyValues,
    check_page,
    distinct_names,
    expanded,
    one_line,
    print_message,
    print_result,
)

if TYPE_CHECKING:
    from dask_diag.analysis.compare import Comparison
    from dask_diag.analysis.compare_runs import RunComparison
    from dask_diag.model.recording import Recording
    from dask_diag.views.text import Summary

CANNOT_TELL = 3
"""Status of a gate whose runs could not have shown the slowdown for which it is to fail."""
Sides = tuple[list[str], list[str]]
"""Paths of the recordings before and after a change."""


def share_of(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """The share as a number: 0.1 of ``10%``."""
    if value is None:
        return None
    try:
        number = float(value.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise click.BadParameter(f"expected a share such as 10%, found {value!r}")
    if not value.endswith("%"):
        # 0.1 may mean a tenth or a thousandth; a wrong guess would fail builds.
        raise click.BadParameter(
            f"expected a share with its sign, such as 10%, found {value!r}; write "
            + (f"{100 * number:g}% or {number:g}%" if 0 < number <= 1 else f"{number:g}%")
        )
    return number / 100


@click.command(cls=ManyValues)
@click.argument("files", nargs=-1, type=FilePath(), metavar="[BEFORE AFTER]")
@click.option(
    "--before", multiple=True, type=FilePath(), metavar="FILE...", help="Runs before the change."
)
@click.option(
    "--after", multiple=True, type=FilePath(), metavar="FILE...", help="Runs after the change."
)
@click.option(
    "--of",
    type=click.Choice(["time", "cpu"]),
    default="time",
    show_default=True,
    help="Compare times, or only the CPU time of tasks, which other processes change less.",
)
@click.option("--html", "page", type=FilePath(), help="Also write an HTML page.")
@click.option(
    "-f", "--force", is_flag=True, help="Overwrite any file, not only pages of dask-diag."
)
@click.option(
    "--fail-above",
    callback=share_of,
    metavar="PERCENT",
    help="End with status 1 if something is slower by more than this percentage, see above; with 3 "
    "if these runs could not show it.",
)
def compare(
    *,
    files: tuple[str, ...],
    before: tuple[str, ...],
    after: tuple[str, ...],
    of: str,
    page: str | None,
    force: bool,
    fail_above: float | None,
) -> None:
    """Compare recordings before and after a change, function by function.

    \b
    dask-diag compare before.diag after.diag
    dask-diag compare --before a*.diag --after b*.diag

    With one recording per side, functions are paired by name and tasks by key. --fail-above counts
    only changes that exceed the variation between tasks. Functions with fewer than 5 tasks never
    fail, and neither does a program whose time in computations fell by that percentage.

    With several runs per side, as `dask-diag run --repeat` records them, --fail-above counts
    quantities that are slower by more than the spread between runs, if the confidence interval of
    the slowdown reaches that percentage.
    """  # noqa: D301 - click looks for the character itself
    from dask_diag.files import write_text
    from dask_diag.storage.read import load

    sides = _sides(files, before, after)
    names = [*sides[0], *sides[1]]
    check_page(page, force, *names)
    recordings = [load(path) for path in names]
    is_of_runs = len(names) > 2
    comparison, summary, make_page = (_of_runs if is_of_runs else _of_tasks)(sides, recordings, of)
    print_result(summary)
    if page is not None:
        write_text(page, make_page())
        print_message(f"page: {one_line(page)}")
    _check_complete(names, recordings, fail_above is not None)
    slower = [] if fail_above is None else comparison.regressions(fail_above)
    if slower:
        functions = ", ".join(map(one_line, slower[:5])) + (", ..." if len(slower) > 5 else "")
        share = f"{100 * (fail_above or 0):g}%"
        how = (
            f"slower, perhaps by {share} or more" if is_of_runs else f"longer by more than {share}"
        )
        print_message(f"{how}: {functions}")
        raise SystemExit(1)
    if fail_above:
        _check_sight(comparison, fail_above)


def _check_sight(comparison: Comparison | RunComparison, share: float) -> None:
    """End with a status of its own if runs differ too much to show a slowdown by a share."""
    from dask_diag.analysis.compare_runs import RunComparison
    from dask_diag.formatting import percent
    from dask_diag.views.compare import what_would_show

    if isinstance(comparison, RunComparison) and (smallest := comparison.smallest()) > share:
        print_message(
            f"CANNOT TELL: these runs differ so much that a slowdown by less than "
            f"{percent(smallest)} looks like chance; {what_would_show(comparison, share)}"
        )
        raise SystemExit(CANNOT_TELL)


def _sides(files: tuple[str, ...], before: tuple[str, ...], after: tuple[str, ...]) -> Sides:
    if not before and not after:
        if len(files) != 2:
            raise click.UsageError(
                "expected two recordings, BEFORE and AFTER; several are given as --before FILE... "
                f"--after FILE...; found {len(files)}"
            )
        return [files[0]], [files[1]]
    if files:
        raise click.UsageError(
            f"{one_line(files[0])}: is it a --before or an --after recording? name the option in "
            "front of it"
        )
    sides = expanded(before), expanded(after)
    for name, side in zip(("--before", "--after"), sides, strict=True):
        if not side:
            raise click.UsageError(f"missing {name} FILE...")
    twice = [path for path in sides[0] if path in sides[1]]
    if twice or any(len(set(side)) < len(side) for side in sides):
        again = twice or [path for side in sides for path in side if side.count(path) > 1]
        raise click.UsageError(f"{one_line(again[0])} is named twice; each run counts once")
    return sides


def _of_tasks(
    sides: Sides, recordings: list[Recording], of: str
) -> tuple[Comparison, Summary, Callable[[], str]]:
    """Comparison of two recordings, its summary, and a function that makes its page."""
    from dask_diag.analysis.compare import compare_recordings
    from dask_diag.views.compare import comparison_summary

    before, after = recordings
    comparison = compare_recordings(before, after, of)
    names = distinct_names(sides[0][0], sides[1][0])

    def page() -> str:
        from dask_diag.views.comparison import comparison_page

        return comparison_page(before, after, names)

    return comparison, comparison_summary(comparison, *names), page


def _of_runs(
    sides: Sides, recordings: list[Recording], of: str
) -> tuple[RunComparison, Summary, Callable[[], str]]:
    """Comparison of several runs on a side, its summary, and a function that makes its page."""
    from dask_diag.analysis.compare_runs import same_run
    from dask_diag.views.compare import compare as compare_runs
    from dask_diag.views.compare import run_comparison_summary, run_comparison_title

    copies = same_run(recordings)
    if copies:
        one, other = (one_line([*sides[0], *sides[1]][index]) for index in copies)
        raise CommandFailure(
            f"{one} and {other} are recordings of the same run; leave out one of them"
        )
    count = len(sides[0])
    comparison = compare_runs(recordings[:count], recordings[count:], of=of)
    summary = run_comparison_summary(comparison)

    def page() -> str:
        from dask_diag.views.page import summary_page

        return summary_page(summary, run_comparison_title(comparison))

    return comparison, summary, page


def _check_complete(names: Sequence[str], recordings: Sequence[Recording], is_gate: bool) -> None:
    """Report incomplete recordings; a gate does not judge by them."""
    for name, recording in zip(names, recordings, strict=True):
        if not recording.is_complete:
            print_message(
                f"{one_line(name)} is {recording.state}: only what could be loaded is compared"
            )
        if is_gate and not (recording.is_complete and len(recording.tasks)):
            what = (
                "there are no tasks in it" if recording.is_complete else f"it is {recording.state}"
            )
            raise CommandFailure(f"cannot judge {one_line(name)}: {what}; record it again")
