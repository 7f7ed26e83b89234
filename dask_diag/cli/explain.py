"""``dask-diag explain``: the documentation of a finding, without a network."""

from __future__ import annotations

import difflib
import pkgutil

import click

from dask_diag.cli.output import CommandFailure, one_line, print_result


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Print what a finding means and how to fix it; without CODE, list all findings."""
    from dask_diag.model.codes import FINDINGS

    if code is None:
        width = max(map(len, FINDINGS))
        lines = [f"{name:{width}}  {meaning}" for name, meaning in sorted(FINDINGS.items())]
        print_result("\n".join(lines))
        return
    if code not in FINDINGS:
        parts = [name for name in FINDINGS if code in name] if code else []
        close = " or ".join(parts or difflib.get_close_matches(code, FINDINGS))
        meant = f"; did you mean {close}?" if close else ";"
        raise CommandFailure(
            f"no finding {one_line(repr(code))}{meant} dask-diag explain lists all findings"
        )
    page = pkgutil.get_data("dask_diag.cli", f"explanations/{code}.txt")
    print_result((page or b"").decode().rstrip())
