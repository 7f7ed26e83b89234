"""Which files of tests are not imported at all."""

from __future__ import annotations

import pytest

from .collecting import left_out
from .conftest import measured_until_right
from .recordings import Busy

pytestmark = pytest.mark.once

ONE = "import pytest\n\npytestmark = pytest.mark.once\n"
LIST = "pytestmark = [\n    pytest.mark.leaves_files,\n    pytest.mark.once,\n]\n"
RETRIED = "def test_it(retried): ...\n"
SOME = "pytestmark = pytest.mark.leaves_files\n\n@pytest.mark.once\ndef test_it(): ...\n"


@pytest.mark.parametrize(
    ("text", "expression", "expected"),
    [
        (ONE, "not browser and not once", True),
        (LIST, "not once and not truth", True),
        (SOME, "not once", False),
        ("def test_it(): ...\n", "not once", False),
        (ONE, "not truth", False),
        (ONE, "not once or browser", False),
        (ONE, "truth and not once", True),
        (LIST, "once and leaves_files", False),
        (SOME, "once and not truth", False),
        (SOME, "browser and not truth", True),
        (RETRIED, "truth and not once", False),
        (ONE, "", False),
    ],
)
def test_a_file_is_left_out_where_the_marks_in_it_refuse_all_of_it(
    text, expression, expected, tmp_path
):
    file = tmp_path / "test_some.py"
    file.write_text(text)
    assert left_out(file, expression) is expected
    file.unlink()


def test_only_a_truth_that_was_busy_each_time_is_skipped():
    def measured(*errors):
        remaining, notes = list(errors), []

        def measure():
            if remaining:
                raise remaining.pop(0)
            return len(notes)

        return measured_until_right(measure, notes.append, pause=0)

    assert measured() == 0
    assert measured(Busy("b"), AssertionError("a")) == 2
    with pytest.raises(pytest.skip.Exception, match="b3"):
        measured(Busy("b1"), Busy("b2"), Busy("b3"))
    with pytest.raises(AssertionError, match="a2"):
        measured(AssertionError("a1"), AssertionError("a2"), Busy("b"))
