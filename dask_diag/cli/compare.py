"""``dask-diag compare``: what changed between two recordings."""

from __future__ import annotations

import click

from dask_diag.cli.output import Failure, one_line, print_message, print_result
from dask_diag.cli.paths import FilePath, check_page

__all__ = ["compare"]


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


@click.command()
@click.argument("before", type=FilePath())
@click.argument("after", type=FilePath())
@click.option("--html", "page", type=FilePath(), help="Write a page there, too.")
@click.option("-f", "--force", is_flag=True, help="Replace the page if it is there.")
@click.option(
    "--fail-above",
    callback=share_of,
    metavar="PERCENT",
    help="End with status 1 if a function, or all together, takes longer by more than that.",
)
def compare(
    before: str, after: str, page: str | None, force: bool, fail_above: float | None
) -> None:
    """Show what takes more or less time in AFTER than in BEFORE.

    Functions are paired by name, their tasks by key. --fail-above counts only changes that are
    larger than the variation between tasks explains; functions of fewer than 5 tasks never fail.
    """
    from dask_diag.analysis.compare import compare as compare_recordings
    from dask_diag.atomic_files import write_text
    from dask_diag.storage import load
    from dask_diag.views.compare import comparison_page, comparison_summary

    check_page(page, force, before, after)
    recordings = load(before), load(after)
    comparison = compare_recordings(*recordings)
    print_result(comparison_summary(comparison, before, after))
    if page is not None:
        write_text(page, comparison_page(comparison, before, after))
    for name, recording in zip((before, after), recordings, strict=True):
        if not recording.is_complete:
            print_message(
                f"{one_line(name)} is {recording.state}: only what could be loaded is compared"
            )
        if fail_above is not None and not (recording.is_complete and len(recording.tasks)):
            what = (
                "there are no tasks in it" if recording.is_complete else f"it is {recording.state}"
            )
            raise Failure(f"cannot judge {one_line(name)}: {what}; record it again")
    slower = [] if fail_above is None else comparison.regressions(fail_above)
    if slower:
        names = ", ".join(map(one_line, slower[:5])) + (", ..." if len(slower) > 5 else "")
        print_message(f"longer by more than {100 * (fail_above or 0):g}%: {names}")
        raise SystemExit(1)
