"""Which files of tests are not imported at all."""

from __future__ import annotations

import pytest

from .collecting import left_out

pytestmark = pytest.mark.once

ONE = "import pytest\n\npytestmark = pytest.mark.once\n"
LIST = "pytestmark = [\n    pytest.mark.leaves_files,\n    pytest.mark.once,\n]\n"
SOME = "pytestmark = pytest.mark.leaves_files\n\n@pytest.mark.once\ndef test_it(): ...\n"


@pytest.mark.parametrize(
    ("text", "expression", "expected"),
    [
        (ONE, "not once", True),
        (ONE, "not browser and not once", True),
        (LIST, "not once and not truth", True),
        (SOME, "not once", False),
        ("def test_it(): ...\n", "not once", False),
        (ONE, "not truth", False),
        (ONE, "once", False),
        (ONE, "not once or browser", False),
        (ONE, "truth and not once", False),
        (ONE, "", False),
    ],
)
def test_a_file_is_left_out_where_its_own_mark_refuses_all_of_it(
    text, expression, expected, tmp_path
):
    file = tmp_path / "test_some.py"
    file.write_text(text)
    assert left_out(file, expression) is expected
    file.unlink()
