"""``dask-diag compare``: what changed between two recordings, or from some runs to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dask_diag.cli.output import (
    Failure,
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
    from dask_diag.model.recording import Recording


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
        # Whether 0.1 is a tenth or a thousandth is not for us to guess: it fails builds.
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
@click.option("--html", "page", type=FilePath(), help="Write a page there, too.")
@click.option("-f", "--force", is_flag=True, help="Replace the page if it is there.")
@click.option(
    "--fail-above",
    callback=share_of,
    metavar="PERCENT",
    help="End with status 1 if a function, or all together, takes longer by more than that; of "
    "several runs: if it is slower and may take longer by that much.",
)
def compare(
    *,
    files: tuple[str, ...],
    before: tuple[str, ...],
    after: tuple[str, ...],
    page: str | None,
    force: bool,
    fail_above: float | None,
) -> None:
    """Show what takes more or less time in AFTER than in BEFORE.

    \b
    dask-diag compare before.diag after.diag
    dask-diag compare --before a*.diag --after b*.diag

    Of two recordings, functions are paired by name and their tasks by key. --fail-above counts
    only changes that are larger than the variation between tasks explains; functions of fewer than
    5 tasks never fail, nor does a program that computes in less time by that percentage.

    Of several runs on a side, as `dask-diag run --repeat` records them, the spread between runs
    decides. --fail-above then counts what is slower beyond that spread, if the confidence interval
    of the slowdown reaches that percentage.
    """  # noqa: D301 - click looks for the character itself
    sides = _sides(files, before, after)
    check_page(page, force, *sides[0], *sides[1])
    if len(sides[0]) == len(sides[1]) == 1:
        slower = _compare_tasks(sides[0][0], sides[1][0], page, fail_above)
    else:
        slower = _compare_runs(sides, page, fail_above)
    if slower:
        names = ", ".join(map(one_line, slower[:5])) + (", ..." if len(slower) > 5 else "")
        share = f"{100 * (fail_above or 0):g}%"
        is_of_runs = len(sides[0]) + len(sides[1]) > 2
        how = (
            f"slower, perhaps by {share} or more" if is_of_runs else f"longer by more than {share}"
        )
        print_message(f"{how}: {names}")
        raise SystemExit(1)


def _sides(
    files: tuple[str, ...], before: tuple[str, ...], after: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    if not before and not after:
        if len(files) != 2:
            raise click.UsageError(
                "expected two recordings, BEFORE and AFTER; several are given as --before FILE... "
                f"--after FILE...; found {len(files)}"
            )
        return [files[0]], [files[1]]
    if files:
        raise click.UsageError(
            f"{one_line(files[0])}: say on which side it is, behind --before or --after"
        )
    sides = expanded(before), expanded(after)
    for name, side in zip(("--before", "--after"), sides, strict=True):
        if not side:
            raise click.UsageError(f"name the recordings of the other side: {name} FILE...")
    twice = [path for path in sides[0] if path in sides[1]]
    if twice or any(len(set(side)) < len(side) for side in sides):
        again = twice or [path for side in sides for path in side if side.count(path) > 1]
        raise click.UsageError(f"{one_line(again[0])} is named twice; each run counts once")
    return sides


def _compare_tasks(before: str, after: str, page: str | None, above: float | None) -> list[str]:
    from dask_diag.analysis.compare import compare as compare_recordings
    from dask_diag.files import write_text
    from dask_diag.storage.read import load
    from dask_diag.views.compare import comparison_summary

    recordings = load(before), load(after)
    comparison = compare_recordings(*recordings)
    names = distinct_names(before, after)
    print_result(comparison_summary(comparison, *names))
    if page is not None:
        from dask_diag.views.comparison import comparison_page

        write_text(page, comparison_page(*recordings, names))
    _check_complete((before, after), recordings, above is not None)
    return [] if above is None else comparison.regressions(above)


def _compare_runs(
    sides: tuple[list[str], list[str]], page: str | None, above: float | None
) -> list[str]:
    from dask_diag.analysis.compare_runs import compare_runs, same_run
    from dask_diag.files import write_text
    from dask_diag.storage.read import load
    from dask_diag.views.compare import run_comparison_summary, run_comparison_title

    before, after = ([load(path) for path in side] for side in sides)
    copies = same_run([*before, *after])
    if copies:
        one, other = (one_line([*sides[0], *sides[1]][index]) for index in copies)
        raise Failure(f"{one} and {other} are recordings of the same run; leave out one of them")
    comparison = compare_runs(before, after)
    summary = run_comparison_summary(comparison)
    print_result(summary)
    if page is not None:
        from dask_diag.views.page import summary_page

        write_text(page, summary_page(summary, run_comparison_title(comparison)))
    _check_complete([*sides[0], *sides[1]], [*before, *after], above is not None)
    return [] if above is None else comparison.regressions(above)


def _check_complete(names: Sequence[str], recordings: Sequence[Recording], is_gate: bool) -> None:
    """Say which recordings are not complete; a gate does not judge by them."""
    for name, recording in zip(names, recordings, strict=True):
        if not recording.is_complete:
            print_message(
                f"{one_line(name)} is {recording.state}: only what could be loaded is compared"
            )
        if is_gate and not (recording.is_complete and len(recording.tasks)):
            what = (
                "there are no tasks in it" if recording.is_complete else f"it is {recording.state}"
            )
            raise Failure(f"cannot judge {one_line(name)}: {what}; record it again")
