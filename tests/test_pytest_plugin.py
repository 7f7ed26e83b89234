"""The pytest plugin: --dask-diag and the mark, in sessions of their own."""

import re
import sys
from pathlib import Path

import pytest

from dask_diag import load

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.leaves_files, pytest.mark.once]

TESTS = """
import time
import dask
import pytest

def compute(count=3, seconds=0.0):
    tasks = [dask.delayed(time.sleep)(seconds, dask_key_name=f"sleep-{n}") for n in range(count)]
    dask.compute(*tasks, scheduler="threads", num_workers=2)

def test_computes():
    compute()

@pytest.mark.parametrize("name", ["a/b", "ä" * 300])
def test_parameters(name):
    compute(1)

def test_computes_nothing():
    pass

def test_fails():
    compute(2)
    assert False
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """Run pytest on some tests in a process of its own."""
    # To import those of other packages takes half of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(source, *arguments):
        pytester.makepyfile(source)
        plugins = [
            "dask_diag_pytest",
            "no:cacheprovider",
            *(["xdist"] if "-n" in arguments else []),
        ]
        named = [word for plugin in plugins for word in ("-p", plugin)]
        return pytester.runpytest_subprocess(*named, "-q", *arguments)

    return run


def names(folder="dask-diag"):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_each_test_that_computes_is_recorded(session, workers):
    result = session(TESTS, "--dask-diag", *workers)
    result.assert_outcomes(passed=4, failed=1)
    files = names()
    assert len(files) == 4
    assert [name for name in files if "test_computes-" in name]
    assert sorted(len(load(f"dask-diag/{name}").tasks) for name in files) == [1, 1, 2, 3]
    assert all(len(name) < 200 for name in files)
    result.stdout.fnmatch_lines(["*4 recordings in *dask-diag", "* s computing: *test_*.diag"])


def test_the_folder_can_be_named(session):
    session(TESTS, "-k", "computes", "--dask-diag", "--dask-diag-dir", "some/where")
    assert len(names("some/where")) == 1
    Path("file").write_text("")
    result = session(TESTS, "--dask-diag", "--dask-diag-dir=file/folder")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--dask-diag-dir: cannot make *file/folder*"])


LIMITS = (
    TESTS
    + """
@pytest.mark.dask_diag(max_wall=0.05)
def test_slow():
    compute(1, 0.2)

@pytest.mark.dask_diag(max_wall=60, max_memory="20 GB", no=["failed-tasks"])
def test_within():
    compute()

def blow():
    data = bytearray(300_000_000)
    time.sleep(0.3)
    return len(data)

@pytest.mark.dask_diag(max_memory="100 MB")
def test_memory():
    dask.delayed(blow)().compute(scheduler="threads")

@pytest.mark.dask_diag(no=["failed-tasks"])
def test_findings():
    with pytest.raises(ZeroDivisionError):
        dask.delayed(divmod)(1, 0).compute(scheduler="sync")

@pytest.mark.dask_diag(max_wall=1e-9)
def test_own_failure_comes_first():
    raise KeyError("own")

@pytest.mark.dask_diag(max_wall=1e-9)
def test_skipped():
    pytest.skip("no")
"""
)


def test_limits_fail_tests_with_the_summary(session):
    result = session(LIMITS, "-k", "slow or within or memory or findings or own or skipped")
    result.assert_outcomes(passed=1, failed=4, skipped=1)
    text = result.stdout.str()
    assert "dask_diag: wall " in text
    assert "is above max_wall=0.05 s" in text
    assert "memory grew by 3" in text
    assert "above max_memory=100 MB" in text
    assert "dask_diag: it has the finding failed-tasks" in text
    assert "KeyError: 'own'" in text
    # Once each; elsewhere pytest's own summary may repeat it.
    assert len(re.findall(r"(?m)^dask_diag: ", text)) == 3
    # The summary.
    assert " in 1 computation: 1 task on 1 worker" in text
    assert not Path("dask-diag").exists()


def test_a_test_above_its_limit_names_its_recording(session):
    result = session(LIMITS, "-k", "slow", "--dask-diag", "-n", "1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["recording: *test_slow*.diag"])
    (name,) = names()
    assert len(load(f"dask-diag/{name}").tasks) == 1


WITHOUT_MEANING = {
    "3": "expected keywords max_wall, max_memory and no, found 3",
    "wall=3": "expected max_wall, max_memory or no, found 'wall'",
    "max_wall='3'": "max_wall: expected seconds, a number above 0, found '3'",
    "max_wall=-1": "max_wall: expected seconds, a number above 0, found -1",
    "max_memory='2 GX'": "max_memory: expected bytes, or text such as '2 GB'",
    "max_memory='1.2.3 GB'": "max_memory: expected bytes, or text such as '2 GB'",
    "no=['slow']": "no: there is no finding 'slow'; there are ",
    "no=3": "no: expected codes of findings, such as ['tasks-too-small'], found 3",
}


def test_marks_without_meaning_are_errors(session):
    tests = "".join(
        f"@pytest.mark.dask_diag({arguments})\ndef test_{n}():\n    open('ran', 'w')\n"
        for n, arguments in enumerate(WITHOUT_MEANING)
    )
    result = session(f"import pytest\n{tests}")
    result.assert_outcomes(errors=len(WITHOUT_MEANING))
    text = result.stdout.str()
    assert text.count("such as '2 GB'") >= 2
    for message in WITHOUT_MEANING.values():
        assert f"mark dask_diag: {message}" in text
    assert not Path("ran").exists()


def test_the_closest_mark_decides():
    from dask_diag.pytest_limits import Limits, limits_of

    marks = [
        pytest.mark.dask_diag(max_wall=2).mark,
        pytest.mark.dask_diag(max_wall=1, max_memory="1.5 GiB", no="straggler").mark,
    ]
    assert limits_of(marks) == Limits(2.0, 1.5 * 2**30, ("straggler",))


def test_without_option_and_mark_nothing_is_imported(session):
    result = session("""
import sys
def test_it():
    assert "dask_diag_pytest" in sys.modules
    assert not [name for name in sys.modules if name.split(".")[0] in ("dask", "dask_diag", "numpy")]
""")
    result.assert_outcomes(passed=1)
    assert not Path("dask-diag").exists()


def test_a_test_that_cannot_be_recorded_runs(session):
    result = session(
        """
import os, shutil
def test_it():
    shutil.rmtree("dask-diag")
def test_other():
    import dask
    assert dask.delayed(sum)([1, 2]).compute() == 3
""",
        "--dask-diag",
    )
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*dask_diag: not recorded: *"])


def test_a_recording_that_cannot_be_made_fails_no_test(session):
    result = session(
        """
def test_it(monkeypatch):
    import dask_diag
    from dask_diag import pytest_limits
    def fail(computations):
        raise RuntimeError("own")
    pytest_limits.seconds_computing = fail
    assert True
""",
        "--dask-diag",
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*dask_diag: not recorded: own*"])


@pytest.mark.skipif(sys.platform == "win32", reason="entry points are those of this environment")
def test_the_entry_point_is_registered():
    from importlib.metadata import entry_points

    plugins = {plugin.name: plugin.value for plugin in entry_points(group="pytest11")}
    assert plugins["dask_diag_pytest"] == "dask_diag_pytest"
