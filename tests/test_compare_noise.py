"""compare --fail-above: how often unchanged programs fail, and how often slower ones are found.

Programs are simulated: each task has a planned size, the same in both recordings, and takes that
times a noise that is drawn for each recording.
"""

import itertools
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from dask_diag import Recording, compare
from dask_diag.columns import Categorical, PrefixStrings

from .recordings import filled_table

pytestmark = pytest.mark.once

NOTHING = Recording(0.0, 1.0, 0.0)


def normal(rng, sigma, count):
    return np.maximum(rng.normal(1.0, sigma, count), 0.01)


def lognormal(rng, sigma, count):
    return rng.lognormal(0.0, sigma, count)


def same_size(rng, count):
    return np.ones(count)


def mixed_sizes(rng, count):
    """Planned sizes of which the largest are some ten times the smallest."""
    return rng.lognormal(0.0, 0.7, count)


def same_keys(name, count, token):
    return [f"{name}-{n}" for n in range(count)]


def tokens_in_keys(name, count, token):
    return [f"('{name}-{token}', {n})" for n in range(count)]


def nothing_but_tokens(name, count, token):
    return [f"{name}-{token + n:x}" for n in range(count)]


def replaced(table, **columns):
    return type(table)({**{name: table[name] for name in table.columns}, **columns})


@lru_cache(maxsize=1)
def tables_of(counts):
    """What is the same of all programs with so many tasks in each function."""
    names = [f"f{n}" for n in range(len(counts))]
    functions = Categorical(np.repeat(np.arange(len(counts)), counts), names)
    computations = filled_table("computations", {"start": [0.0], "stop": [0.0]})
    return names, filled_table("tasks", {"function": functions}), computations


class Program:
    """Functions of so many tasks each, whose planned sizes are drawn once."""

    def __init__(self, counts, rng, sizes=same_size, keys=tokens_in_keys):
        self.names, self.tasks, self.computations = tables_of(tuple(counts))
        self.counts = counts
        self.planned = np.concatenate([sizes(rng, count) for count in counts])
        self.keys = keys

    def recording(self, rng, noise, slower=None):
        """Run it: its tasks start one after the other on two workers."""
        seconds = self.planned * noise(rng, count=len(self.planned))
        if slower is not None:
            seconds[self.tasks["function"].eq(slower)] *= 1.2
        token = int(rng.integers(2**60))
        keys = [
            key
            for name, count in zip(self.names, self.counts, strict=True)
            for key in self.keys(name, count, token)
        ]
        start = np.cumsum(seconds) / 2
        times = {"start": start, "stop": start + seconds, "thread_cpu": seconds}
        tasks = replaced(self.tasks, key=PrefixStrings.of(keys), **times)
        computations = replaced(self.computations, stop=start[-1:])
        return replace(NOTHING, computations=computations, tasks=tasks)


def failing(builds, seed, counts, noise, sigma, slower=None, **program):
    """Which of so many builds fail at 10%."""
    rng = np.random.default_rng(seed)

    def noisy(rng, count):
        return noise(rng, sigma, count)

    failed = []
    for _ in range(builds):
        one = Program(counts, rng, **program)
        before, after = one.recording(rng, noisy), one.recording(rng, noisy, slower)
        failed.append(compare(before, after).regressions(0.1))
    return failed


UNCHANGED = {
    "3 functions of 1 task": [1] * 3,
    "12 functions of 1 task": [1] * 12,
    "5 functions of 3 tasks": [3] * 5,
    "5 functions of 4 tasks": [4] * 5,
    "3 functions of 20 tasks": [20] * 3,
    "8 functions of 20 tasks": [20] * 8,
    "12 functions of 1 to 20 tasks": [1, 3, 4, 20] * 3,
}


SIGMAS = (0.05, 0.1, 0.2, 0.3)


def rate(builds):
    """The share of builds that fail."""
    return sum(map(bool, builds)) / len(builds)


@pytest.mark.parametrize("counts", UNCHANGED.values(), ids=UNCHANGED)
def test_unchanged_programs_fail_in_2_of_100_builds_at_most(counts):
    all_builds = []
    for noise, sizes in itertools.product((normal, lognormal), (same_size, mixed_sizes)):
        builds = []
        for sigma in SIGMAS:
            builds += failing(25, 1, counts, noise, sigma, sizes=sizes)
        # Of 100, more than 2 of 100 may fail by chance.
        assert rate(builds) <= 0.05, (noise, sizes)
        all_builds += builds
    assert rate(all_builds) <= 0.02


@pytest.mark.parametrize(
    "builds, counts, noise, sigma, program",
    [
        # Where it is most frequent: 1 of 100 is expected. More builds, since of few some have more
        # by chance.
        *((400, counts, normal, 0.2, {}) for counts in ([4] * 5, [20], [20] * 8)),
        # Whatever their keys are.
        *(
            (300, [1, 3, 4, 20] * 3, lognormal, 0.3, {"sizes": mixed_sizes, "keys": keys})
            for keys in (same_keys, nothing_but_tokens)
        ),
    ],
)
def test_they_do_so_where_it_is_most_frequent(builds, counts, noise, sigma, program):
    assert rate(failing(builds, 4, counts, noise, sigma, **program)) <= 0.02


# With a noise of 30% in each of two runs no test finds 20% in 50 tasks as often: by the lemma of
# Neyman and Pearson it is 84 of 100 builds at best if 2 of 100 unchanged ones may fail.
@pytest.mark.parametrize(
    "tasks, sigma, share",
    [(50, 0.05, 0.99), (50, 0.1, 0.99), (50, 0.2, 0.95), (100, 0.3, 0.95), (50, 0.3, 0.65)],
)
@pytest.mark.parametrize("noise", [normal, lognormal])
def test_a_function_that_takes_a_fifth_longer_is_found(tasks, sigma, share, noise):
    failed = failing(200, 5, [tasks], noise, sigma, slower="f0")
    assert sum("f0" in names for names in failed) >= share * 200


def test_it_is_found_beside_others_and_they_are_not():
    failed = failing(200, 6, [50, 1, 3, 4, 20], lognormal, 0.15, slower="f0")
    assert sum("f0" in names for names in failed) >= 0.95 * 200
    assert sum(bool({*names} - {"f0", "total"}) for names in failed) <= 0.02 * 200


def vary_by_30_percent(rng, count):
    return rng.normal(1.0, 0.3, count).clip(0.1)


@pytest.mark.parametrize("keys", [same_keys, tokens_in_keys])
@pytest.mark.parametrize("sizes, sigma", [(vary_by_30_percent, 0.15), (mixed_sizes, 0.1)])
def test_it_is_found_where_tasks_are_of_different_sizes(keys, sizes, sigma):
    failed = failing(200, 7, [50], normal, sigma, slower="f0", sizes=sizes, keys=keys)
    assert sum("f0" in names for names in failed) >= 0.95 * 200


def test_a_slowdown_of_all_functions_of_few_tasks_is_found_in_the_total():
    def slower(rng, count):
        return 1.2 * normal(rng, 0.1, count)

    rng = np.random.default_rng(8)
    reported = 0
    for _ in range(100):
        program = Program([1, 3, 4] * 5, rng)
        before = program.recording(rng, lambda rng, count: normal(rng, 0.1, count))
        reported += compare(before, program.recording(rng, slower)).regressions(0.1) == ["total"]
    assert reported >= 95


@pytest.mark.parametrize("counts", [[1, 20, 20], [3, 1, 40], [4, 20, 20]])
def test_one_function_of_few_tasks_never_fails_whatever_it_does(counts):
    def slower_at_first(rng, count):
        return np.where(np.arange(count) < counts[0], 50.0, 1.0) * normal(rng, 0.05, count)

    rng = np.random.default_rng(9)
    program = Program(counts, rng)
    before = program.recording(rng, lambda rng, count: normal(rng, 0.05, count))
    comparison = compare(before, program.recording(rng, slower_at_first))
    first = comparison.functions.to_dicts()[0]
    assert (first["function"], first["verdict"]) == ("f0", "too few tasks")
    assert comparison.regressions(0.1) == []
