"""The pytest plugin of dask_diag: its option and its mark.

pytest imports this in every session where dask_diag is installed. So it stands beside the package,
and imports it, and with it dask, only for a test that is recorded.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
]

_MARK = "dask_diag"
_MARK_HELP = (
    "dask_diag(max_wall=None, max_memory=None, no=()): fail the test if it takes more wall "
    "seconds, if memory grows by more (bytes or text such as '2 GB'), or if it has one of these "
    "findings (see dask_diag.findings)"
)
_RECORDING, _SECONDS = "dask_diag_recording", "dask_diag_seconds"
_SLOWEST = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--dask-diag``."""
    group = parser.getgroup("dask_diag", "dask_diag: what tests compute with Dask")
    group.addoption(
        "--dask-diag",
        action="store_true",
        help="Record what each test computes; tests that compute nothing leave no recording.",
    )
    group.addoption(
        "--dask-diag-dir",
        metavar="DIR",
        default="dask-diag",
        help="The folder of the recordings, by default dask-diag in the current folder.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and make the folder of recordings."""
    config.addinivalue_line("markers", _MARK_HELP)
    if config.getoption("dask_diag"):
        folder = _folder(config)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"--dask-diag-dir: cannot make {folder}: {error.strerror}"
            raise pytest.UsageError(why) from None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a mark with bad arguments before the test starts."""
    if item.get_closest_marker(_MARK) is not None:
        from dask_diag.pytest_limits import limits_of

        limits_of(item.iter_markers(_MARK))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record a test that is to be recorded, and judge what was recorded."""
    to_file = item.config.getoption("dask_diag")
    if not to_file and item.get_closest_marker(_MARK) is None:
        return (yield)
    from dask_diag.pytest_limits import RecordedTest

    test = RecordedTest(item, _MARK, _folder(item.config) if to_file else None)
    try:
        with test:
            result = yield
    finally:
        if test.path is not None:
            item.user_properties += [(_RECORDING, str(test.path)), (_SECONDS, test.seconds)]
    test.judge()
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the recordings of the tests that computed longest."""
    if not terminalreporter.config.getoption("dask_diag"):
        return
    recorded = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            properties = dict(getattr(report, "user_properties", ()))
            if _RECORDING in properties:
                recorded[properties[_RECORDING]] = float(properties[_SECONDS])
    terminalreporter.section("dask_diag")
    count = f"{len(recorded)} recording{'' if len(recorded) == 1 else 's'}"
    terminalreporter.line(f"{count} in {_folder(terminalreporter.config)}")
    for path, seconds in sorted(recorded.items(), key=lambda recording: -recording[1])[:_SLOWEST]:
        terminalreporter.line(f"{seconds:9.3f} s computing: {Path(path).name}")


def _folder(config: pytest.Config) -> Path:
    return Path(config.invocation_params.dir, config.getoption("dask_diag_dir")).absolute()
