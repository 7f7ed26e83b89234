"""Runs planted programs: what is found in each, and what its remedy gains."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

import psutil

from dask_diag import findings, load
from dask_diag.analysis.findings.rule import Finding
from tests.diagnosis.program import Program

ROOT = Path(__file__).parent.parent.parent
REPEATS = 3
"""Runs with and without a remedy."""
ATTEMPTS = 4
"""How often one of these is run at most, while other programs use the machine."""
QUIET = 0.1
"""Largest share of the machine that other programs use in a run that is not repeated."""
TIMEOUT = 120
NOT_OF_THE_PROGRAM = frozenset({"busy-machine", "late-samples"})
"""Findings on the machine: they are true of a test machine now and then."""
_WORKERS = re.compile(r"num_workers=(\d+)")
_CHUNKSIZE = re.compile(r"(?<!also set )chunksize=(\d+)")
_SHUFFLE = re.compile(r"'(dataframe\.shuffle\.method)': '(\w+)'")
_SCHEDULER = re.compile(r"scheduler='(\w+)'(?! also)")
_VARIABLE = re.compile(r"([A-Z]+_NUM_THREADS)=(\d+)")


@dataclass(frozen=True)
class Run:
    """One run of a program in a process of its own."""

    wall: float
    result: Any
    busy: float
    """Share of the machine that other programs used."""


@dataclass(frozen=True)
class Advice:
    """What a finding's advice, taken literally, does to a program."""

    code: str
    changed: str
    gain: float
    slower: bool


@dataclass(frozen=True)
class Outcome:
    """What was found in a program, and what its remedy gained."""

    program: Program
    found: list[Finding]
    remaining: list[Finding]
    faulty: list[float] = field(default_factory=list)
    remedied: list[float] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    """The share of the machine that other programs used, run by run."""

    @property
    def is_recalled(self) -> bool:
        """Whether the cause was found."""
        return any(finding.code == self.program.code for finding in self.found)

    @property
    def false(self) -> list[str]:
        """Codes of findings that are not true of it, with and without the remedy."""
        program = self.program
        true = {program.code} | program.true | NOT_OF_THE_PROGRAM
        remaining = program.remaining | NOT_OF_THE_PROGRAM
        return [
            *(finding.code for finding in self.found if finding.code not in true),
            *(
                f"{one.code} (with the remedy)"
                for one in self.remaining
                if one.code not in remaining
            ),
        ]

    @property
    def number_true(self) -> int:
        """How many findings were true."""
        considered = [one for one in [*self.found, *self.remaining] if self._counts(one)]
        return len(considered) - len(self.false)

    def _counts(self, finding: Finding) -> bool:
        return finding.code == self.program.code or finding.code not in NOT_OF_THE_PROGRAM

    @property
    def gain(self) -> float:
        """Wall seconds that the remedy saves: the difference of the medians."""
        if not self.faulty or not self.remedied:
            return float("nan")
        return statistics.median(self.faulty) - statistics.median(self.remedied)

    @property
    def lost(self) -> float:
        """The seconds that the finding on the cause says are lost."""
        seconds = [one.potential_saving for one in self.found if one.code == self.program.code]
        return seconds[0] if seconds else float("nan")

    @property
    def is_estimated(self) -> bool:
        """Whether there are seconds to compare with the gain."""
        return self.program.gains and self.is_recalled and not isnan(self.lost)

    @property
    def is_within_two(self) -> bool:
        """Whether the estimate and the gain differ by a factor of two at most."""
        return self.gain / 2 <= self.lost <= self.gain * 2


def run(
    program: Program,
    remedied: bool = False,
    recording: Path | None = None,
    config: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Run:
    """Run a program once."""
    command = [sys.executable, "-m", "tests.diagnosis.child", program.name]
    command += ["--remedied"] * remedied + ["--config", json.dumps(dict(config or {}))]
    if recording is not None:
        command += ["--record", str(recording)]
    changed = {**(program.variables if remedied else {}), **(variables or {})}
    before = _cpu()
    process = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **changed},
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    after = _cpu()
    answer = json.loads(process.stdout.splitlines()[-1])
    total = after[0] - before[0]
    busy = ((after[1] - before[1]) - (after[2] - before[2])) / total if total else 0.0
    return Run(answer["wall"], answer["result"], busy)


def _cpu() -> tuple[float, float, float]:
    """CPU seconds that there were, that anyone used, and that our children used."""
    times, children = psutil.cpu_times(), os.times()
    used = times.user + times.system + times.nice
    return used + times.idle + times.iowait, used, children.children_user + children.children_system


def quietest(program: Program, count: int, attempts: int) -> tuple[list[Run], list[Run]]:
    """Runs without and with the remedy in turn; those beside which least else ran."""
    faulty, remedied = [], []
    for _ in range(count * attempts):
        faulty.append(run(program))
        remedied.append(run(program, remedied=True))
        quiet = [sum(one.busy < QUIET for one in runs) for runs in (faulty, remedied)]
        # Neighbours are part of some programs.
        if min(quiet) >= count or (len(faulty) >= count and "neighbours" in program.name):
            break
    return tuple(sorted(runs, key=lambda one: one.busy)[:count] for runs in (faulty, remedied))


def examine(program: Program, repeats: int = REPEATS, attempts: int = ATTEMPTS) -> Outcome:
    """Record a program, take its findings, apply the remedy and what else is advised."""
    with tempfile.TemporaryDirectory() as folder:
        planted, busy = _findings_of(program, Path(folder, "faulty.diag"), False, attempts)
        remaining: list[Finding] = []
        if program.code:
            remaining, beside_remedied = _findings_of(
                program, Path(folder, "remedied.diag"), True, attempts
            )
            busy += beside_remedied
    if not repeats or not (program.code and program.gains):
        return Outcome(program, planted, remaining, busy=busy)
    faulty, remedied = quietest(program, repeats, attempts)
    results = {repr(one.result) for one in (*faulty, *remedied)}
    assert len(results) == 1, f"{program.name}: the remedy changes the result: {results}"
    walls = [one.wall for one in faulty]
    return Outcome(
        program,
        planted,
        remaining,
        walls,
        [one.wall for one in remedied],
        list(_advised(program, planted, statistics.median(walls), repeats)),
        [*busy, *(one.busy for one in (*faulty, *remedied))],
    )


def _findings_of(
    program: Program, path: Path, remedied: bool, attempts: int
) -> tuple[list[Finding], list[float]]:
    """The findings of a run beside which little else ran, and what else did."""
    for _ in range(attempts):
        path.unlink(missing_ok=True)
        busy = run(program, remedied, path).busy
        if busy < QUIET or "neighbours" in program.name:
            break
    return findings(load(path)), [busy]


def _advised(
    program: Program, before: list[Finding], wall: float, repeats: int
) -> Iterator[Advice]:
    """Try each setting of dask or of the environment that an advice names."""
    for finding in before:
        config, variables = settings_in(finding.advice)
        if not config and not variables:
            continue
        walls = [run(program, config=config, variables=variables).wall for _ in range(repeats)]
        median = statistics.median(walls)
        changed = ", ".join(f"{name}={value}" for name, value in (config | variables).items())
        # A tenth is within the spread of these runs.
        yield Advice(finding.code, changed, wall - median, median > 1.1 * wall)


def settings_in(advice: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What an advice says to set: of dask, and of the environment."""
    config: dict[str, Any] = {}
    if match := _SCHEDULER.search(advice):
        config["scheduler"] = match[1]
    if match := _WORKERS.search(advice):
        config["num_workers"] = int(match[1])
    if match := _CHUNKSIZE.search(advice):
        config["chunksize"] = int(match[1])
    config |= dict(_SHUFFLE.findall(advice))
    return config, dict(_VARIABLE.findall(advice))
