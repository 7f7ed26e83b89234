"""What is said of recordings that are kept is what was said of them before."""

import json

import pytest

from .golden_portraits import FOLDER, portrait, sources


@pytest.mark.once
@pytest.mark.parametrize("name", sources())
def test_a_recording_is_described_as_before(name):
    kept = json.loads((FOLDER / f"{name}.json").read_text())
    made = portrait(sources()[name])
    assert made.keys() == kept.keys()
    for part, expected in kept.items():
        assert made[part] == expected, part
