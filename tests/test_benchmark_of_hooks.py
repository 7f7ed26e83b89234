"""The benchmark that has hooks on for some blocks of tasks: what they add is found in noise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.switched import BLOCK, Block, added


def blocks_of(hooks, seed):
    """Blocks of two kinds of tasks on a machine whose speed changes from run to run."""
    random = np.random.default_rng(seed)
    for run in range(20):
        slower = random.normal(0, 20e-6)
        for _ in range(50):
            short = int(random.integers(BLOCK))
            is_on = bool(random.random() < 0.5)
            task = slower + hooks * is_on + random.normal(0, 10e-6)
            seconds = short * 100e-6 + (BLOCK - short) * 300e-6 + BLOCK * task
            # Now and then the machine does something else.
            seconds += 0.5 * (random.random() < 0.01)
            yield Block(run, seconds, is_on, [short, BLOCK - short])


@pytest.mark.parametrize("hooks", [0.0, 5e-6, 20e-6])
def test_what_hooks_add_to_a_task_is_found(hooks):
    off = []
    for seed in range(20):
        seconds, error = added([*blocks_of(hooks, seed)])
        # 20 runs of 50 blocks: two standard deviations of a block over the root of all.
        assert error == pytest.approx(2 * 10e-6 / 1000**0.5, rel=0.2)
        off.append((seconds - hooks) / error)
    assert abs(np.mean(off)) < 4 / 20**0.5
    assert 0.5 < np.std(off) < 1.7
