"""The server of a live page: who is refused, what is bound, where the token is, and its end."""

import asyncio
import contextlib
import http.client
import json
import logging
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import dask
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.made_up import many_tasks
from dask_diag import load, record, save, summary
from dask_diag.cli.main import main
from dask_diag.live import background, security, server
from dask_diag.live import command as command_module
from dask_diag.live.answer import MOST_RECTANGLES, PARTS_OF_A_PIXEL, shares, stream_in_view
from dask_diag.live.model import LiveModel
from dask_diag.live.security import (
    HEADERS,
    MOST_STRANGERS,
    QUESTION,
    allowed_hosts,
    bind,
    question_of,
    refusal,
)
from dask_diag.live.server import LiveServer
from dask_diag.model.table import Table
from dask_diag.storage.follow import Follower
from dask_diag.storage.write import Writer

from .javascript import needs_node, run_javascript
from .live_chunks import Model, update
from .pages import tasks_of
from .recordings import NOTHING, chunks_of_example, example, with_columns
from .test_live_model import busy_model

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]

SECRET = "sum-"
"""How keys of the example begin: no refusal may hold it."""


class Running:
    """A server on a thread of its own."""

    def __init__(self, path="run.diag", **settings):
        self.ready = threading.Event()
        self.path, self.settings = path, settings
        self.thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    async def _main(self):
        self.server = LiveServer(self.path, bind(0), **self.settings)
        self.loop = asyncio.get_running_loop()
        # Its socket listens already.
        self.ready.set()
        await self.server.serve()

    def __enter__(self):
        self.thread.start()
        assert self.ready.wait(20)
        return self

    def __exit__(self, *args):
        self.loop.call_soon_threadsafe(self.server.stopped.set)
        self.thread.join(20)
        assert not self.thread.is_alive()

    def ask(self, path, method="GET", **headers):
        """Status, headers and body; the address of this machine unless `Host` says otherwise."""
        port = self.server.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": f"127.0.0.1:{port}", **headers}.items():
                if value is not None:
                    connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def data(self, query="w=800", **headers):
        return self.ask(f"/data?{query}", **{"X_Dask_Diag_Token": self.server.token, **headers})

    def answer(self, query="w=800"):
        status, _, body = self.data(query)
        assert status == 200
        return json.loads(body)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "run.diag"
    save(example(300), path)
    # Its clock is slow: however slow the machine is, no minute passes without a question.
    with Running(str(path), clock=lambda: time.monotonic() / 100) as running:
        yield running


def addresses(running):
    token = running.server.token
    return (f"/?token={token}", f"/report?token={token}", "/data?w=9", "/picture")


def test_who_has_the_token_gets_page_data_and_report(running):
    for path in addresses(running):
        status, _, body = running.ask(path, X_Dask_Diag_Token=running.server.token)
        assert status == 200, path
        assert len(body) > 100
    assert b"</html>" in running.ask(addresses(running)[0])[2]


@pytest.mark.parametrize(
    "path", ["/", "/report", "/data", "/data?w=9", "/nothing", "/../etc/passwd"]
)
@pytest.mark.parametrize("token", [None, "", "x" * 32, "ä"])
def test_without_the_token_nothing_is_said(running, path, token):
    given_token = {} if token is None else {"X_Dask_Diag_Token": token.encode("latin-1")}
    if token is not None and "?" not in path:
        path = f"{path}?token={token.encode().hex()}"
    status, _, body = running.ask(path, **given_token)
    assert (status, body) == (403, b"")


def test_the_token_of_data_is_in_a_header_alone(running):
    token = running.server.token
    assert running.ask(f"/data?token={token}")[0] == 403
    assert running.ask("/", X_Dask_Diag_Token=token)[0] == 403


# As when a name was made to lead to this machine (DNS rebinding).
HOSTS = [
    "evil.example:{port}",
    "evil.example",
    "127.0.0.1",
    "localhost:1",
    "127.0.0.1:{port}.x",
    "",
]
ORIGINS = ["https://evil.example", "null", "http://127.0.0.1:1", "file://"]
METHODS = ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"]


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        (name, value)
        for name, values in {"Host": HOSTS, "Origin": ORIGINS, "method": METHODS}.items()
        for value in values
    ],
)
def test_another_host_origin_or_method_is_refused_with_the_token_too(running, changed, value):
    server = running.server
    given = {"X_Dask_Diag_Token": server.token, changed: value.format(port=server.port)}
    for path in addresses(running):
        status, headers, body = running.ask(path, **given)
        assert (status in ((405, 501) if changed == "method" else (403,)), body) == (True, b"")
        assert "Access-Control-Allow-Origin" not in headers


def test_its_own_origin_is_answered(running):
    port = running.server.port
    for host in ("127.0.0.1", "localhost"):
        status, headers, _ = running.data(Host=f"{host}:{port}", Origin=f"http://{host}:{port}")
        assert status == 200
        assert "Access-Control-Allow-Origin" not in headers


@pytest.fixture
def quick_reports(monkeypatch):
    """Answers about reports without the seconds that a report takes."""
    real = subprocess.Popen

    def popen(command, **settings):
        return real([sys.executable, "-Sc", "print('page')"], **settings)

    monkeypatch.setattr(background.subprocess, "Popen", popen)


@pytest.mark.usefixtures("quick_reports")
def test_every_answer_has_its_headers(running):
    for path in (*addresses(running), "/", "/nothing"):
        _, headers, _ = running.ask(path, X_Dask_Diag_Token=running.server.token)
        for name, value in HEADERS.items():
            assert headers[name] == value, (path, name)
        assert "Server" not in headers
        assert "Set-Cookie" not in headers
        assert "Location" not in headers
    assert "default-src 'none'" in HEADERS["Content-Security-Policy"]
    assert "connect-src 'self'" in HEADERS["Content-Security-Policy"]


def test_only_this_machines_own_address_is_bound(running):
    (listening,) = running.server._sockets
    assert listening.getsockname()[0] == "127.0.0.1"
    other = socket.gethostbyname(socket.gethostname())
    if not other.startswith("127."):
        with pytest.raises(OSError):
            socket.create_connection((other, running.server.port), timeout=2)


@pytest.mark.parametrize(
    "query",
    [
        "w=0",
        "w=9999",
        "w=x",
        "r=x",
        "r=1e400",
        "x0=1",
        "x0=nan&x1=2",
        "x0=0&x1=inf",
        "x0=0&x1=1e30",
        "p=2",
        "p=x",
    ],
)
def test_numbers_out_of_bounds_are_refused(running, query):
    status, _, body = running.data(query)
    assert (status, body) == (400, b"")


@given(st.dictionaries(st.sampled_from(QUESTION), st.text(max_size=12)))
def test_no_question_makes_an_error(arguments):
    question_of(arguments)


def test_the_token_is_long_and_in_no_page(running):
    assert len(running.server.token) == 32
    page = running.ask(addresses(running)[0])[2]
    assert running.server.token.encode() not in page
    assert SECRET.encode() not in page


@pytest.mark.usefixtures("quick_reports")
def test_the_token_is_not_logged(running, caplog, capfd, monkeypatch):
    def fail(*args):
        raise RuntimeError("broken")

    caplog.set_level(logging.DEBUG)
    with monkeypatch.context() as patch:
        patch.setattr(server, "answer", fail)
        status, _, body = running.data()
        assert (status, body) == (500, b"")
    for path in addresses(running):
        running.ask(path)
    out, err = capfd.readouterr()
    assert running.server.token not in caplog.text + out + err


def test_a_hub_adds_its_own_name_alone():
    hub = {
        "JUPYTERHUB_SERVICE_PREFIX": "/user/ann/",
        "JUPYTERHUB_PUBLIC_URL": "https://hub.example/user/ann/",
    }
    assert "hub.example" in allowed_hosts(8, hub)
    del hub["JUPYTERHUB_SERVICE_PREFIX"]
    assert allowed_hosts(8, hub) == {"127.0.0.1:8", "localhost:8"}
    assert refusal("GET", {"Host": "hub.example"}, "t", "t", allowed_hosts(8, hub)) == 403


def test_the_last_state_has_the_numbers_of_the_summary():
    graph = [dask.delayed(sum)([n, 1]) for n in range(30)]
    graph = dask.delayed(max)([dask.delayed(abs)(task) for task in graph])
    with record("run.diag"):
        graph.compute(scheduler="threads", num_workers=2)
    with Running() as running:
        when(lambda: running.answer()["over"])
        functions = running.answer()["functions"]
    rows = summary(load("run.diag")).splitlines()
    assert sorted(row[0] for row in functions) == ["abs", "max", "sum"]
    for name, _, tasks, planned, seconds, cpu in functions:
        (line,) = [line for line in rows if line.split()[:1] == [name]]
        assert line.split()[1] == tasks == planned
        assert f" {seconds} " in line
        assert f" {cpu} " in line


def test_of_many_functions_forty_are_shown_and_the_others_counted():
    recording = with_columns(example(60), "tasks", function=[f"f{n}" for n in range(60)])
    with Writer("run.diag") as writer, Running() as running:
        writer.append(recording)
        when(lambda: running.answer()["functions"])
        answer = running.answer()
        assert len(answer["functions"]) == 40
        assert answer["functions_left_out"] == 20


def test_an_empty_recording_is_an_answer():
    with Writer("run.diag") as writer, Running() as running:
        writer.append(replace(example(0), stop=0.5))
        answer = running.answer()
        json.dumps(answer, allow_nan=False)
        assert answer["stream"]["tasks"] == 0
        assert running.data("x0=5&x1=3")[0] == 200


def test_a_question_waits_for_news():
    with Writer("run.diag") as writer, Running() as running:
        chunks = list(chunks_of_example())
        writer.append(chunks[0])
        deadline = time.monotonic() + 20
        while not (before := running.answer())["functions"] and time.monotonic() < deadline:
            time.sleep(0.05)
        timer = threading.Timer(0.3, writer.append, [chunks[1]])
        timer.start()
        began = time.monotonic()
        after = running.answer(f"w=800&r={before['revision']}")
        timer.join()
        assert 0.25 < time.monotonic() - began < 8
        assert after["revision"] != before["revision"]


def answers_of(question, count):
    """What threads that ask at the same time get."""
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(question())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_reports_are_made_by_other_processes_one_at_a_time(running, monkeypatch):
    started, most = [], []
    real = subprocess.Popen

    def popen(*args, **kwargs):
        started.append(real([sys.executable, "-Sc", "print('page')"], **kwargs))
        most.append(sum(process.poll() is None for process in started))
        return started[-1]

    monkeypatch.setattr(background.subprocess, "Popen", popen)
    answers = answers_of(lambda: running.ask(addresses(running)[1]), 3)
    assert [status for status, _, _ in answers] == [200] * 3
    assert max(most) == 1
    assert len(started) == 3
    assert {body for _, _, body in answers} == {b"page\n"}


SLEEP = [sys.executable, "-Sc", "import time; time.sleep(100)"]


@pytest.fixture
def slow_reports(monkeypatch):
    """The processes that are started for reports, which take long."""
    real, started = subprocess.Popen, []

    def popen(command, **settings):
        started.append(real(SLEEP, **settings))
        return started[-1]

    monkeypatch.setattr(background.subprocess, "Popen", popen)
    return started


def when(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ask_and_leave(running, path):
    """A page that is closed before the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", running.server.port)
    connection.request("GET", path)
    return connection


def test_a_report_that_nobody_waits_for_is_given_up_and_until_then_the_viewer_stays(slow_reports):
    save(example(3), "run.diag")
    clock = Clock()
    with Running(clock=clock) as running:
        for is_closed in (True, False):
            connection = ask_and_leave(running, addresses(running)[1])
            when(lambda: slow_reports)
            clock.now += 1000
            assert not running.server.is_idle()
            process = slow_reports.pop()
            if is_closed:
                connection.close()
            else:
                process.kill()
                # It could not be made.
                assert connection.getresponse().status == 404
                connection.close()
            when(lambda process=process: process.poll() is not None)
            assert running.data()[0] == 200
        clock.now += 61
        when(running.server.is_idle)


def test_a_viewer_that_ends_leaves_no_report_and_no_message(slow_reports, caplog, capfd):
    save(example(3), "run.diag")
    with Running() as running:
        security = [
            ask_and_leave(running, addresses(running)[1]),
            ask_and_leave(running, addresses(running)[0]),
        ]
        when(lambda: slow_reports)
    assert slow_reports[0].poll() is not None
    for connection in security:
        connection.close()
    assert "Traceback" not in caplog.text + capfd.readouterr().err


def test_there_is_no_report_of_a_file_that_was_replaced_by_something_else():
    save(example(3), "run.diag")
    with Running() as running:
        when(lambda: running.server.model.is_over)
        Path("run.diag").write_text("something else")
        status, _, body = running.ask(addresses(running)[1])
        assert (status, body) == (404, b"")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_it_ends_when_nobody_has_asked_and_nothing_more_is_to_come():
    async def main():
        clock = Clock()
        live = LiveServer("run.diag", bind(0), clock=clock)
        child = LiveServer("run.diag", bind(0), clock=clock, waits=False)

        async def idle_after(seconds):
            clock.now += seconds
            for viewer in (live, child):
                viewer.look()
            return live.is_idle(), child.is_idle()

        try:
            # The user waits for a run that is to begin; a child of a run is of no use without it.
            assert await idle_after(59) == (False, False)
            assert await idle_after(2) == (False, True)
            with Writer("run.diag") as writer:
                writer.append(example(3))
                assert await idle_after(1000) == (False, False)
            for viewer in (live, child):
                viewer.note_question()
            assert await idle_after(59) == (False, False)
            assert await idle_after(2) == (True, True)
        finally:
            for viewer in (live, child):
                viewer._sockets[0].close()

    asyncio.run(main())


def test_it_reads_when_a_page_asks_and_else_now_and_then():
    clock = Clock()
    with Writer("run.diag") as writer, Running(clock=clock) as running:

        def recorded():
            return running.server.model.recorded

        writer.append(example(3))
        clock.now += 1
        assert recorded_in(running.answer()) == recorded() == 3
        # What was read just now is new enough for another page.
        writer.append(example(4))
        assert recorded_in(running.answer()) == 3
        clock.now += 1
        assert recorded_in(running.answer()) == 7
        writer.append(example(5))
        clock.now += server.UNASKED - 0.1
        time.sleep(2.5 * server.PERIOD)
        assert recorded() == 7
        clock.now += 0.2
        when(lambda: recorded() == 12)


def recorded_in(answer):
    return sum(int(row[2]) for row in answer["functions"])


@pytest.mark.parametrize("sees_locks", [True, False])
def test_it_ends_where_locks_are_not_seen_though_the_file_is_never_over(sees_locks):
    async def main():
        clock = Clock()
        with Writer("run.diag") as writer:
            writer.append(example(3))
            child = LiveServer("run.diag", bind(0), clock=clock, waits=False)
            if not sees_locks:
                child.model = LiveModel(
                    "run.diag",
                    clock=clock,
                    follower=Follower("run.diag", clock=clock, is_locked=lambda file: None),
                )
            try:
                child.look()
                for seconds, is_idle in ((500, False), (99, False), (2, True)):
                    clock.now += seconds
                    child.look()
                    assert child.model.is_growing
                    assert child.is_idle() is is_idle
                # A page is open.
                child.note_question()
                assert not child.is_idle()
            finally:
                child._sockets[0].close()

    asyncio.run(main())


def is_open(connection):
    connection.settimeout(0.01)
    try:
        return connection.recv(1) != b""
    except ConnectionError:
        return False
    except OSError:
        return True


def test_who_has_no_token_takes_no_connection_from_those_who_have(caplog, capfd):
    save(example(3), "run.diag")
    with Running() as running, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", running.server.port)
        page = http.client.HTTPConnection(*address, timeout=20)
        stack.callback(page.close)
        headers = {"X-Dask-Diag-Token": running.server.token}
        page.request("GET", "/data?w=9", headers=headers)
        page.getresponse().read()
        connected = page.sock
        idle = []
        for _ in range(300):
            idle.append(stack.enter_context(socket.create_connection(address, 5)))
        # Another page is opened meanwhile.
        assert running.data()[0] == 200
        when(lambda: sum(map(is_open, idle)) <= MOST_STRANGERS)
        assert sum(map(is_open, idle)) > MOST_STRANGERS // 2
        page.request("GET", "/data?w=9", headers=headers)
        assert page.getresponse().status == 200
        assert page.sock is connected
        running.loop.call_soon_threadsafe(lambda: 1 / 0)
        assert running.data()[0] == 200
    assert "Error" not in caplog.text + capfd.readouterr().err


def test_connections_that_ask_nothing_are_closed(monkeypatch):
    monkeypatch.setattr(security, "_LONGEST_SILENCE", 0.3)
    save(example(3), "run.diag")
    with Running() as running:
        with socket.create_connection(("127.0.0.1", running.server.port), 20) as idle:
            assert idle.recv(1) == b""


def test_a_port_that_is_taken_is_one_line_and_status_2():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        result = CliRunner().invoke(main, ["live", "run.diag", "--port", str(port), "--no-browser"])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert str(port) in result.stderr


def test_addresses_from_elsewhere(running, monkeypatch):
    port = running.server.port
    (line,) = command_module.addresses(running.server, {})
    assert line == f"live: http://127.0.0.1:{port}/?token={running.server.token}"
    lines = command_module.addresses(running.server, {"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"})
    assert f"ssh -L {port}:127.0.0.1:{port} 10.0.0.2" in lines[1]
    monkeypatch.setattr(command_module, "_has_proxy", lambda: True)
    hub = {"JUPYTERHUB_SERVICE_PREFIX": "/user/ann/", "JUPYTERHUB_HOST": "https://Hub.example"}
    page = f"https://hub.example/user/ann/proxy/{port}/?token={running.server.token}"
    assert command_module.addresses(running.server, hub)[1] == f"through the hub: {page}"


def test_an_address_through_a_hub_is_one_that_is_answered(running, monkeypatch):
    """A hub sets no name unless it was configured with one, and its proxy hands the name on."""
    monkeypatch.setattr(command_module, "_has_proxy", lambda: True)
    default = {
        "JUPYTERHUB_SERVICE_PREFIX": "/user/ann/",
        "JUPYTERHUB_HOST": "",
        "JUPYTERHUB_API_URL": "http://hub:8081/hub/api",
    }
    (_, line) = command_module.addresses(running.server, default)
    assert line == f"through the hub: {command_module.UNKNOWN_HUB}"
    assert "JUPYTERHUB_PUBLIC_URL" in line
    named = {**default, "JUPYTERHUB_PUBLIC_URL": "https://hub.example/user/ann/"}
    (_, line) = command_module.addresses(running.server, named)
    host = re.search(r"https://([^/]+)/", line)[1]
    assert refusal("GET", {"Host": host}, "t", "t", allowed_hosts(8, named)) == 0


@pytest.mark.parametrize("name", ["firefox", "geany"])
def test_a_browser_with_a_tmp_of_its_own_is_given_a_file_in_the_home(name, monkeypatch, tmp_path):
    snaps, home = tmp_path / "snaps", tmp_path / "home"
    for folder in (snaps, home):
        folder.mkdir()
    (snaps / name).touch()
    monkeypatch.setattr(command_module, "_SNAPS", snaps)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(home))
    with command_module._redirect("http://127.0.0.1:1/?token=secret") as file:
        in_home = file.parent.parent == home
        assert in_home is (name == "firefox")
        # A snap cannot read what is hidden.
        assert not file.parent.name.startswith(".")
        if sys.platform != "win32":
            assert file.parent.stat().st_mode & 0o777 == 0o700
            assert file.stat().st_mode & 0o777 == 0o600
    assert not list(home.iterdir())


def brute_force(left, right, functions, weights, count, columns):
    cover = np.zeros((count, columns))
    for a, b, function, weight in zip(left, right, functions, weights, strict=True):
        for pixel in range(columns):
            cover[function, pixel] += weight * max(0.0, min(b, pixel + 1) - max(a, pixel))
    return cover


@given(
    st.lists(
        st.tuples(st.floats(-5, 15), st.floats(0, 6), st.integers(0, 2), st.floats(0, 1, width=16)),
        min_size=1,
        max_size=12,
    )
)
def test_a_pixel_has_the_time_of_each_function_there_and_of_its_cpu(tasks):
    left, lasted, functions, cpu = (np.array(column) for column in zip(*tasks, strict=True))
    right = left + lasted
    tasks = table_of(left, right, functions, cpu * lasted)
    busy, computing = shares(tasks, 3, 10, 10.0)
    expected = brute_force(left, right, functions, np.ones(len(left)), 3, 10)
    share = np.where(lasted > 0, cpu, 1.0)
    assert busy == pytest.approx(expected, abs=1e-6)
    assert computing == pytest.approx(brute_force(left, right, functions, share, 3, 10), abs=1e-6)


def table_of(start, stop, function, cpu):
    return Table({"start": start, "stop": stop, "function": function, "cpu": cpu})


def ended_in(stream):
    """Tasks of an answer that ended, as a page has them."""
    return tasks_of({"packed_tasks": stream["ended"], "tick": stream["tick"]})


@needs_node
@pytest.mark.parametrize("view", [(0.0, 1.5), (0.4, 1.1), (0.0, 60.0)])
def test_lanes_are_drawn_as_the_saved_page_draws_them(view):
    width, (start, stop) = 300, view
    tasks = many_tasks(10_000, workers=4).tasks
    model = Model()
    model.apply(update(replace(NOTHING, tasks=tasks)))
    stream = stream_in_view(model, start, stop, width, most_rectangles=-1)
    names, colors = zip(*stream["functions"], strict=True)
    # Only what is in the page for each pixel, and in place of it all tasks.
    free = {"start": 0, "length": 1, "units": 1}
    free |= {name: [] for name in ("colors", "names", "hatches", "shares")}
    looks = {"colors": colors, "off_cpu_color": "#e5b93c", "free": free}
    parts = ended_in(stream)
    ticks = {name: np.rint(parts[name] / stream["tick"]) for name in ("start", "stop", "cpu")}
    for lane, worker in enumerate(stream["lanes"]):
        own = tasks.filter(np.flatnonzero(tasks.worker.eq(worker)))
        columns = {"start": own.start, "stop": own.stop, "cpu": own.thread_cpu}
        codes = [names.index(name) if name in names else 0 for name in own.function.tolist()]
        in_lane = parts["lane"] == lane
        of_lane = {name: values[in_lane] for name, values in ticks.items()}
        of_lane["function"] = parts["function"][in_lane]
        both = [
            ({**of_lane, "unit": 1}, 0, PARTS_OF_A_PIXEL),
            ({**columns, "function": codes, "unit": 1}, start, (stop - start) / width),
        ]
        seen, expected = (
            np.array(image, np.int64)
            for ((image,),) in (
                run_javascript(
                    "plots/tasks/binned.js",
                    "images_of",
                    [rows, [[0, len(rows["start"])]], begin, pixel, [width, 16], looks],
                )
                for rows, begin, pixel in both
            )
        )
        # Each part is rounded to half a row at most.
        assert np.count_nonzero(seen != expected) < 0.08 * seen.size
        assert len(np.unique(seen)) > 2


def test_few_tasks_are_rectangles_and_many_are_pixels():
    few = Model()
    few.apply(update(replace(NOTHING, tasks=example(200).tasks)))
    stream = stream_in_view(few, 1000.0, 1002.0, 800)
    drawn = ended_in(stream)
    assert len(drawn["start"]) == stream["tasks"] == len(few.tasks)
    assert stream["columns"] == 0
    assert sorted(drawn["start"]) == pytest.approx(np.sort(few.tasks["start"] - 1000.0), abs=1e-6)
    many = Model()
    many.apply(update(replace(NOTHING, tasks=example(2 * MOST_RECTANGLES).tasks)))
    stream = stream_in_view(many, 1000.0, 1002.0, 800)
    assert stream["columns"] == 800
    time = sum(many.tasks["stop"] - many.tasks["start"])
    drawn = ended_in(stream)
    assert sum(drawn["stop"] - drawn["start"]) == pytest.approx(time, rel=0.02)


def test_of_many_tasks_those_that_run_are_rectangles():
    model = busy_model(stop=20.0)
    stream = stream_in_view(model, 0.0, 20.0, 200, most_rectangles=3)
    assert running_in(stream) == pytest.approx([20.0] * 9)
    assert stream["columns"]


def test_running_tasks_are_in_the_stream_until_now():
    assert running_in(stream_in_view(busy_model(stop=20.0), 0.0, 20.0, 200)) == [20.0] * 9


def running_in(stream):
    """Stops of tasks that run, whose CPU time is not known."""
    running = tasks_of({"packed_tasks": stream["running"], "tick": stream["tick"]})
    assert np.isnan(running["cpu"]).all()
    return running["stop"].tolist()
