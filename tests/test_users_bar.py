"""ProgressBar in a bar of the user's: of tqdm, of rich, on local schedulers and on a client."""

import io
import threading
import time
from operator import add

import dask.local
import dask.threaded
import pytest
from rich.console import Console
from rich.progress import Progress

from dask_diag import ProgressBar

tqdm = pytest.importorskip("tqdm").tqdm


def steps(count, seconds=0.01):
    dsk = {("step", n): (time.sleep, seconds) for n in range(count)}
    return dsk, list(dsk)


def failing(done, after):
    """So many tasks are done, then one fails, and others come after it."""

    def fail(*done):
        raise ValueError("no such file")

    dsk = {("a", n): (add, n, 1) for n in range(done)}
    dsk["b", 0] = (fail, *dsk)
    dsk |= {("c", n): (add, n, ("b", 0)) for n in range(after)}
    return dsk, [("c", n) for n in range(after)]


def tqdm_bar(**settings):
    return tqdm(file=io.StringIO(), **settings)


def rich_bar():
    return Progress(console=Console(file=io.StringIO()), auto_refresh=False)


BARS = pytest.mark.parametrize("made", [tqdm_bar, rich_bar])


def shown(bar):
    """How many tasks are done, of how many; what stands beside the last bar."""
    if isinstance(bar, Progress):
        if not bar.tasks:
            return 0, 0, ""
        task = bar.tasks[-1]
        return task.completed, task.total, task.description
    return bar.n, bar.total, f"{bar.desc} {bar.postfix}"


def rate(bar):
    return bar.format_dict["rate"] or bar.n / bar.format_dict["elapsed"]


def test_tqdm_has_tasks_and_their_rate():
    bar = tqdm_bar()
    with ProgressBar(dt=0.01, bar=bar) as pbar:
        dask.local.get_sync(*steps(20))
    assert (bar.n, bar.total) == (20, 20)
    assert rate(bar) == pytest.approx(20 / pbar.last_duration, rel=0.3)
    assert "20/20" in bar.fp.getvalue()
    assert "CPU" in bar.postfix
    assert not bar.disable
    assert pbar.recording.notices == ()
    bar.close()


@BARS
def test_it_moves_while_tasks_run(made):
    bar = made(mininterval=0) if made is tqdm_bar else made()
    seen = []
    dsk = {("a", n): (add, n, 1) for n in range(3)}
    pause = threading.Event()

    def look(*done):
        for _ in range(500):
            if shown(bar)[0] == 3:
                break
            pause.wait(0.01)
        seen.append(shown(bar)[:2])

    dsk["look", 0] = (look, *dsk)
    with ProgressBar(dt=0.001, bar=bar):
        dask.local.get_sync(dsk, ("look", 0))
    assert seen == [(3, 4)]
    assert shown(bar)[0] == 4


def test_tqdm_starts_again_with_each_computation():
    bar = tqdm_bar(total=1000, desc="rows")
    bar.update(7)
    with ProgressBar(dt=0.01, bar=bar) as pbar:
        dask.local.get_sync(*steps(5))
        assert (bar.n, bar.total) == (5, 5)
        pause = threading.Event()
        pause.wait(0.2)
        dask.local.get_sync(*steps(10))
    assert (bar.n, bar.total) == (10, 10)
    assert rate(bar) == pytest.approx(10 / pbar.last_duration, rel=0.3)
    assert bar.desc == "rows"


def test_a_computation_without_a_redraw_has_its_own_rate():
    bar = tqdm_bar()
    with ProgressBar(dt=60, bar=bar) as pbar:
        dask.local.get_sync(*steps(10))
    assert rate(bar) == pytest.approx(10 / pbar.last_duration, rel=0.2)


def test_overlapping_computations_are_added_up():
    bar = tqdm_bar()
    barrier = threading.Barrier(2)

    def meet(wait=barrier.wait):
        wait(10)

    def run(count):
        dsk = {("s", n): (add, n, 1) for n in range(count)}
        dsk["last", 0] = (lambda *results: meet(), *dsk)
        # Each has been shown before either ends.
        dsk["sleep", 0] = (lambda result: time.sleep(0.1), ("last", 0))
        dask.threaded.get(dsk, ("sleep", 0), num_workers=1)

    with ProgressBar(dt=0.005, bar=bar):
        threads = [threading.Thread(target=run, args=(count,)) for count in (3, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (bar.n, bar.total) == (3 + 5 + 4, 3 + 5 + 4)


@BARS
@pytest.mark.parametrize("done", [0, 4])
def test_it_stays_where_a_computation_failed(made, done):
    bar = made()
    with ProgressBar(bar=bar) as pbar, pytest.raises(ValueError, match="no such file"):
        dask.local.get_sync(*failing(done, 5))
    assert shown(bar)[:2] == (done, done + 6)
    assert "failed" in shown(bar)[2]
    with ProgressBar(bar=bar):
        dask.local.get_sync(*steps(2))
    assert shown(bar)[:2] == (2, 2)
    assert "failed" not in shown(bar)[2]
    if made is rich_bar:
        # The task of the failure is left.
        first, second = bar.tasks
        assert (first.completed, first.description) == (done, "Computing: failed")
        assert first.stop_time is not None
        assert second.description == "Computing"
    else:
        assert not bar.disable
    assert pbar.recording.notices == ()


@BARS
def test_a_label_is_the_description(made):
    bar = made()
    with ProgressBar(bar=bar, label="load"):
        dask.local.get_sync(*steps(1))
    assert shown(bar)[2].startswith("load")


def test_rich_has_one_task_for_computations_in_a_row():
    progress = rich_bar()
    with progress, ProgressBar(dt=0.01, bar=progress) as pbar:
        dask.local.get_sync(*steps(5))
        dask.local.get_sync(*steps(20))
        (task,) = progress.tasks
        assert (task.completed, task.total, task.finished) == (20, 20, True)
        assert task.finished_time == pytest.approx(pbar.last_duration, rel=0.3)
        assert task.speed == pytest.approx(20 / pbar.last_duration, rel=0.5)
        assert task.fields["cpu"].endswith("% CPU")
        assert progress.live.is_started
    assert pbar.recording.notices == ()


def test_a_failure_beside_a_computation_that_goes_on():
    progress = rich_bar()
    failed = threading.Event()

    def fail():
        raise ValueError("no such file")

    def run():
        dask.local.get_sync(
            {("w", 0): (failed.wait, 10), ("v", 0): (add, 1, 2)}, [("w", 0), ("v", 0)]
        )

    with ProgressBar(dt=0.001, bar=progress) as pbar:
        thread = threading.Thread(target=run)
        thread.start()
        while not progress.tasks:
            time.sleep(0.001)
        with pytest.raises(ValueError, match="no such file"):
            dask.local.get_sync({("f", 0): (fail,)}, ("f", 0))
        failed.set()
        thread.join()
    (task,) = progress.tasks
    assert (task.completed, task.total) == (2, 3)
    assert task.description.endswith("failed")
    assert pbar.recording.notices == ()


def test_a_bar_that_raises_never_reaches_the_computation():
    bar = tqdm_bar()
    bar.update = lambda n: 1 / 0
    with ProgressBar(dt=0.001, bar=bar) as pbar:
        assert dask.local.get_sync({("a", 0): (add, 1, 2)}, ("a", 0)) == 3
    assert any("division by zero" in notice for notice in pbar.recording.notices)


def test_nothing_is_shown_below_the_minimum():
    bar = tqdm_bar(total=3)
    with ProgressBar(minimum=10, bar=bar):
        dask.local.get_sync(*steps(2))
    assert (bar.n, bar.total) == (0, 3)


@pytest.mark.parametrize("wrong", [3, "tqdm", io.StringIO()])
def test_what_is_no_bar_is_reported(wrong):
    with pytest.raises(TypeError, match="bar: expected a bar of tqdm or a Progress of rich"):
        ProgressBar(bar=wrong)


@BARS
def test_on_a_client(made):
    pytest.importorskip("distributed")
    from .clusters import cluster

    bar = made()
    with cluster(workers=1), ProgressBar(bar=bar) as pbar:
        dask.delayed(sum)([dask.delayed(abs)(-n) for n in range(5)]).compute()
        with pytest.raises(ZeroDivisionError):
            dask.delayed(divmod)(dask.delayed(abs)(1), 0).compute()
    assert shown(bar)[:2] == (1, 2)
    assert "failed" in shown(bar)[2]
    assert pbar.recording.notices == ()
