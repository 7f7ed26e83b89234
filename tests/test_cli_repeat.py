"""dask-diag run --repeat: several runs of a program, each as a single one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_diag import load
from dask_diag.cli.main import main
from dask_diag.cli.run import numbered

from .commands import COMMAND, Command, environment
from .test_cli_run import diag, script

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


def test_each_run_is_a_process_with_a_recording_of_its_own():
    name = script("""
    import os
    print(sys.argv[1:], compute(), sys.stdin.readline())
    open("pids", "a").write(f"{os.getpid()} ")
    """)
    done = diag("run", "--repeat", "3", "--no-waits", name, "-q", "ä b", input="1\n2\n3\n")
    assert done.returncode == 0
    lines = [line for line in done.stdout.splitlines() if line]
    assert [line.startswith("['-q', 'ä b'] 55") for line in lines] == [True] * 3
    assert len(set(Path("pids").read_text().split())) == 3
    assert sorted(os.listdir()) == ["pids", "script-1.diag", "script-2.diag", "script-3.diag", name]
    recordings = [load(f"script-{n}.diag") for n in (1, 2, 3)]
    assert [len(recording.tasks) for recording in recordings] == [11] * 3
    assert not any(len(recording.waits) for recording in recordings)
    assert "3 runs: wall " in done.stderr
    assert done.stderr.endswith("recordings: script-1.diag to script-3.diag\n")
    files = ["--before", "script-1.diag", "--after", "script-2.diag", "script-3.diag"]
    compared = CliRunner().invoke(main, ["compare", *files])
    assert compared.exit_code == 0
    assert compared.stdout.startswith("1 run before, 2 runs after")


def test_names_have_as_many_digits_as_the_last_and_reports_are_numbered(monkeypatch):
    started = []

    class Process:
        def __init__(self, command):
            started.append(command[command.index("run") + 1 :])

        def wait(self):
            return 0

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(sys, "argv", sys.argv)
    arguments = ["run", "-q", "--repeat=2", "-o", "a.x.diag", "--html", "p.html", "-c", "code"]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.output) == (0, "")
    options = ["--waits", "--interval=0.5", "-c", "--", "code"]
    assert started == [
        ["--quiet", "--force", f"--output=a.x-{n}.diag", f"--html=p-{n}.html", *options]
        for n in (1, 2)
    ]
    assert numbered("run.diag", 10)[0::9] == ["run-01.diag", "run-10.diag"]


def test_no_file_is_replaced_unasked_and_nothing_started(monkeypatch):
    monkeypatch.setattr(sys, "argv", sys.argv)
    name = script("open('ran', 'w')\n", with_compute=False)
    Path("script-2.diag").write_text("")
    done = CliRunner().invoke(main, ["run", "--repeat", "2", name])
    assert done.exit_code == 2
    assert "will not overwrite script-2.diag" in done.stderr
    assert not Path("ran").exists()
    assert diag("run", "--force", "--repeat", "2", name).returncode == 0


def test_a_run_that_fails_ends_the_series_with_its_status():
    name = script("""
    from pathlib import Path
    if Path("ran").exists():
        sys.exit(7)
    Path("ran").touch()
    """)
    done = diag("run", "--repeat", "4", name)
    assert done.returncode == 7
    assert "run 2 of 4 ended with status 7; the runs after it were not started" in done.stderr
    assert not Path("script-3.diag").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_and_the_series(number):
    name = script("""
    from pathlib import Path
    import time
    Path("started").write_text(str(__import__("os").getpid()))
    time.sleep(60)
    """)
    command = [*COMMAND, "run", "--repeat", "3", name]
    process = Command(
        command, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not (Path("started").exists() and Path("started").read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    child = int(Path("started").read_text())
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == -number
    assert "run 1 of 3 was ended by signal" in stderr
    assert not Path("script-2.diag").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
