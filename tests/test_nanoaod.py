"""The analysis of events with coffea and with dask-awkward: the same pairs, and how fast."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = ("coffea", "dask_awkward", "distributed")
MISSING = [name for name in NEEDED if find_spec(name) is None]


@pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)} not installed: WITH_COFFEA=1 make test-matrix"
)
def test_both_say_the_same_of_pairs_and_events():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "nanoaod.py"],
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    totals = re.findall(r"on (\w+ ?\w*): ([\d,]+) pairs in ([\d,]+) events", done.stdout)
    assert [(pairs, events) for _, pairs, events in totals] == [("41,427", "80,000")] * 2
    rates = [
        [float(number.replace(",", "")) for number in line]
        for line in re.findall(
            r"([\d,]+) events/s in [\d.]+ s, ([\d,]+) per core, ([\d,]+) per CPU second",
            done.stdout,
        )
    ]
    efficiencies = re.findall(r"core efficiency (\d+)% of ([\d.]+) threads", done.stdout)
    assert len(rates) == len(efficiencies) == 2
    for (per_second, per_core, per_cpu_second), (efficiency, threads) in zip(
        rates, efficiencies, strict=True
    ):
        assert per_second == pytest.approx(per_core * float(threads), rel=0.05)
        # Both are printed as they are rounded.
        assert per_core == pytest.approx(per_cpu_second * int(efficiency) / 100, rel=0.15)
    # One worker, twice and four times as many as there were, and without limit.
    answers = re.findall(
        r"number of (?:workers|threads) (\w+): ([\d.]+) s, ([\d.]+) times as fast", done.stdout
    )
    assert [name for name, *_ in answers] == ["1", "4", "8", "unlimited"] * 2
    for of_one in (answers[:4], answers[4:]):
        seconds, times = ([float(row[column]) for row in of_one] for column in (1, 2))
        assert seconds[0] == max(seconds)
        assert times[0] < 1
        recorded = [took * faster for took, faster in zip(seconds, times, strict=True)]
        # Both are printed as they are rounded.
        assert recorded == pytest.approx([recorded[0]] * 4, rel=0.05)
        whole = float(re.search(r"the whole block: ([\d.]+) s", done.stdout).group(1))
        assert of_one is not answers[:4] or recorded[0] == pytest.approx(whole, rel=0.05)
    # Eight chunks on two workers may be half as many.
    for of_one in done.stdout.split("dask-awkward on threads"):
        assert re.search(r"chunks 2 times as large: [\d.]+ s, [\d.]+ times as fast", of_one)
