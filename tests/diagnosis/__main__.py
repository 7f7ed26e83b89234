"""Examine planted programs, print how right their findings are, and write that into the docs."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.diagnosis.programs import PROGRAMS
from tests.diagnosis.table import page, scores
from tests.diagnosis.trials import ATTEMPTS, REPEATS, examine

PAGE = Path(__file__).parent.parent.parent / "docs" / "how_right.rst"


def main() -> None:
    """Examine the programs that are named; all, and the page is written, if none is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "programs", nargs="*", help="names; by default all, and the page is written"
    )
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="on a machine that is busy")
    arguments = parser.parse_args()
    names = arguments.programs
    chosen = [program for name, program in PROGRAMS.items() if not names or name in names]
    outcomes = []
    for program in chosen:
        one = examine(program, arguments.repeats, arguments.attempts)
        outcomes.append(one)
        causes = ", ".join(
            f"{finding.code} {finding.potential_saving:.2f}" for finding in one.found
        )
        print(
            f"{program.name}: planted {program.code or 'nothing'}; found {causes or 'nothing'}; "
            f"gain {one.gain:.2f} s; false {one.false or 'none'}; "
            f"others used {max(one.busy):.0%}; "
            f"slower {[advice.changed for advice in one.advice if advice.slower] or 'none'}",
            flush=True,
        )
    if names:
        print(scores(outcomes))
        return
    text = page(outcomes)
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
