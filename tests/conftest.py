from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from functools import partial

import dask
import dask.local
import dask.threaded
import pytest
from dask.callbacks import Callback
from hypothesis import settings

from .bokeh_defaults import remember_defaults
from .collecting import pytest_collection as pytest_collection
from .collecting import pytest_ignore_collect as pytest_ignore_collect
from .opened_pages import browser as browser
from .opened_pages import open_file as open_file
from .opened_pages import opened as opened
from .opened_pages import window as window
from .programs import SEARCHED
from .recordings import Busy

# The same examples each time, however long one of them takes beside other processes;
# HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# What new worker processes have imported. They import the file of the test, too: where a function of
# it runs in them it had better not import what draws, which takes half a second.
multiprocessing.set_forkserver_preload(
    [
        *("dask.multiprocessing", "dask_diag.profilers.record", "dask_diag.views.summary"),
        *("pytest", "distributed", "hypothesis"),
    ]
)

# A sixth of the time of a page goes into bokeh's checks of it, here and in programs that tests run.
# `test_report.py` has a test of what they say.
os.environ.setdefault("BOKEH_VALIDATE_DOC", "no")
remember_defaults()

# The profiler of distributed reads frames while Python 3.11 may collect garbage, which can leave a
# program standing still: see `dask_diag/system/code.py`.
if sys.version_info[:2] == (3, 11):
    os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"
    dask.config.set({"distributed.worker.profile.enabled": False})

# Event loops of clusters measure fifty times a second how late they are, which nothing here reads.
os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL", "1s")
dask.config.set({"distributed.admin.tick.interval": "1s"})

UNDER_MUTMUT = "mutmut" in sys.modules
"""Whether `make mutate` runs the tests: it forks a process for each change."""
if UNDER_MUTMUT:

    def forget_pools():
        """The threads of dask's pools are not in a forked process: tasks would wait for ever."""
        dask.threaded.default_pool = None
        dask.threaded.pools.clear()

    os.register_at_fork(after_in_child=forget_pools)

ON_CLUSTERS = ("test_architecture", "test_cluster", "test_nanoaod", "test_side_by_side")
"""Files whose programs may import distributed."""

ATTEMPTS = 3
"""How often a truth is measured until it fails: a neighbour may spoil one measurement."""

measured_again = {}
"""Names of tests that needed more than one attempt, each with what spoilt the last of them."""


def our_files(folder):
    """What this process has open below a folder or of the package: descriptor and target."""
    files, names = "/proc/self/fd", set()
    for number in os.listdir(files) if os.path.isdir(files) else ():
        try:
            names.add(f"{number} {os.readlink(f'{files}/{number}')}")
        except OSError:
            continue
    return {name for name in names if "dask_diag" in name or str(folder) in name}


def own_threads():
    return {t for t in threading.enumerate() if t.name.startswith("dask_diag")}


@pytest.fixture(scope="session")
def empty_folder(tmp_path_factory):
    """Where tests run that want no folder, as most do: to make one takes as long as such a test."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture
def working_folder(request):
    """Where a test runs. Not by `monkeypatch`: one that undoes its changes would leave the folder."""
    wants_own = "tmp_path" in request.fixturenames or "leaves_files" in request.keywords
    folder = request.getfixturevalue("tmp_path" if wants_own else "empty_folder")
    home = os.getcwd()
    os.chdir(folder)
    yield folder
    os.chdir(home)


@pytest.fixture(autouse=True)
def nothing_left_behind(request, working_folder):
    """After every test: no thread, process, callback, file handle or stray file of own."""
    folder = working_folder
    before = set(os.listdir(folder))
    files_before = our_files(folder)
    children_before = set(multiprocessing.active_children())
    own_local_callbacks = dask.local.local_callbacks
    assert not Callback.active
    yield
    assert not Callback.active, "a callback was left active"
    assert dask.local.local_callbacks is own_local_callbacks, "dask was left patched"
    assert not own_threads(), "a thread was left running"
    assert not set(multiprocessing.active_children()) - children_before
    if "leaves_files" not in request.keywords:
        assert set(os.listdir(folder)) == before, "a file was left in the working directory"
    new_files = our_files(folder) - files_before
    if new_files:
        # What is left in a circle is closed when it is collected, which takes long to do each time.
        gc.collect()
        new_files = our_files(folder) - files_before
    assert not new_files


@pytest.fixture(autouse=True)
def variables_stay():
    """What a test leaves in the environment is gone: a cluster of processes sets some for workers.

    Commands that later tests start would have them, and none could be forked: see `commands`.
    """
    before = dict(os.environ)
    yield
    for name in (os.environ.keys() | before.keys()) - {"PYTEST_CURRENT_TEST"}:
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]


@pytest.fixture(autouse=True)
def hears_ctrl_c():
    """Tests, and what they start, hear Ctrl-C: shells have it ignored in the background."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if handler is signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


@pytest.fixture(autouse=True)
def workers_start_quickly(request):
    """Worker processes of tests are forked from one that has imported dask, which takes a second.

    So are those of clusters.

    Where the start itself is tested, and in the programs that tests run, they start as they do for
    users.
    """
    if "spawned" in request.keywords or sys.platform == "win32" or UNDER_MUTMUT:
        yield
        return
    forked = ("multiprocessing.context", "distributed.worker.multiprocessing-method")
    with dask.config.set(dict.fromkeys(forked, "forkserver")):
        yield


@pytest.fixture(autouse=True)
def programs_start_quickly(request):
    """What tests start does not import distributed, but where it is on a cluster.

    Nor do the threads of numpy's BLAS spin as it is imported, a quarter of what a program takes.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "truth" not in request.keywords:
            patch.setenv("OPENBLAS_NUM_THREADS", "1")
        if not request.path.stem.startswith(ON_CLUSTERS):
            patch.setenv("PYTHONPATH", SEARCHED)
        yield


def pytest_configure():
    """Keep mutmut out of the processes that tests start, in directories without its settings."""
    if UNDER_MUTMUT:
        # They would run its script again.
        vars(sys.modules["__main__"]).pop("__file__", None)
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        # While it notes which test runs which function, only this process can.
        del os.environ["MUTANT_UNDER_TEST"]


def pytest_collection_modifyitems(items):
    """What may be measured again is a truth; it is run alone. Browsers come last: see `browser`.

    Of both parts what is long comes last, so that the others have run if the gate is late.
    """
    for item in items:
        if "retried" in item.fixturenames:
            item.add_marker("truth")
    items.sort(key=lambda item: ("browser" in item.keywords, "long" in item.keywords))


def pytest_runtest_setup(item):
    """After ``LATE_AFTER``, in seconds since 1970, what is long is left out: see ``.ci/run``."""
    if "long" in item.keywords and time.time() > float(os.environ.get("LATE_AFTER", "inf")):
        pytest.skip("it takes long, and the gate is late")


def pytest_collection_finish():
    """What was imported and collected stays: a tenth of the time went into looking through it.

    Nor is it worth to look so often for what tests leave in circles: 5% of the time.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture
def without_plots():
    """Reports have no plots, which take most of their time: for tests of what else is in them."""
    from dask_diag.views import page

    def in_words(template, title, figures, *args, html_of=page.html_of, **variables):
        return html_of(template, title, **variables)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "html_of", in_words)
        yield


@pytest.fixture
def retried(request):
    """Run a measurement again where the machine, not the code, may have spoilt it.

    One that is `Busy` each time is skipped: then there is no known truth.
    """

    def note(error):
        measured_again[request.node.name] = str(error).partition("\n")[0]

    return partial(measured_until_right, note=note)


@pytest.fixture
def slowness():
    """How many times as long as where the bars in seconds were set does Python take here, now.

    One where it takes less counts as one where it takes as long.
    """

    def now():
        took = []
        for _ in range(20):
            started = time.thread_time()
            _some_python()
            took.append(time.thread_time() - started)
        return max(1.0, min(took) / _SOME_PYTHON)

    return now


_SOME_PYTHON = 200e-6


def _some_python():
    kept = {}
    for n in range(1000):
        kept[str(n)] = (n, [n])
    return sorted(kept, key=kept.get)


def measured_until_right(measure, note, pause=0.2):
    """What is measured, at the attempt that did not fail."""
    errors = []
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return measure()
        except (AssertionError, KeyError) as error:
            # What was not sampled once is in no mapping.
            errors.append(error)
        if attempt < ATTEMPTS:
            note(errors[-1])
            time.sleep(pause * attempt)
    failed = [error for error in errors if not isinstance(error, Busy)]
    if failed:
        raise failed[-1]
    pytest.skip(str(errors[-1]))


def pytest_terminal_summary(terminalreporter):
    if measured_again:
        terminalreporter.section(f"measured again ({len(measured_again)})")
        for name, reason in measured_again.items():
            terminalreporter.line(f"{name}: {reason}")
