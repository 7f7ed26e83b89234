"""What the documentation has a reader type runs as it stands, in order, in an empty folder."""

import re
import runpy
import shlex
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

import dask_diag
from dask_diag.cli.main import main

from .test_cli_run import diag
from .test_code_in_docs import HOW_TO

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

ROOT = Path(__file__).parents[1]

PROGRAM = """
import time

import dask


def load(number):
    time.sleep(0.01)
    return number


if __name__ == "__main__":
    print(sum(dask.compute(*[dask.delayed(load)(n) for n in range(20)], scheduler="threads")))
"""

NOT_RUN = {
    "docs/live.rst: dask-diag run --live": "it opens a browser: tests/test_live_process.py",
    "docs/live.rst: dask-diag live": "it lasts until the page is closed: tests/test_live_process.py",
    "docs/tune.rst: dask-diag tune": "it takes minutes: tests/test_tune.py",
    "docs/command_line.rst: dask-diag tune": "it takes minutes: tests/test_tune.py",
    "docs/command_line.rst: dask-diag live": "it lasts until the page is closed",
    "docs/command_line.rst: dask-diag attach": "it needs a program that runs: tests/test_attach.py",
    "docs/command_line.rst: dask-diag run -m package.module": "the reader's module",
    'docs/command_line.rst: dask-diag run -c "code"': "the reader's code",
    "docs/cluster.rst: dask-diag": "tests/test_cluster_docs.py runs them",
    "docs/hot_lines.rst: sprof.summary(key=": "a key that only the reader has",
    "docs/profilers.rst: from tqdm.auto": "tests/test_users_bar.py has both bars",
}
"""Where a command or a block of code starts like this, and why it is left out."""

QUICKER = {
    "--repeat 5": "--repeat 2",
    "--format perfetto|speedscope|collapsed|csv|parquet|json": "--format csv",
    "(10_000, 1_000)": "(1_000, 100)",
    "chunks=(1_000, 1_000)": "chunks=(100, 100)",
    "(1_000, 1_000)": "(100, 100)",
    "(4_000, 4_000)": "(400, 400)",
    "chunks=(500, 500)": "chunks=(50, 50)",
}
"""What is smaller here than in the documentation, and one of the choices that it names."""

READY = {
    "docs/command_line.rst": ["before.diag", "after.diag", "a1.diag", "b1.diag"],
    "docs/what_if.rst": ["run.diag"],
    "docs/live.rst": ["run.diag"],
}
"""Recordings that a page takes to be there: it shows what is done with them."""


def is_run(name, text):
    return not any(f"{name}: {text}".startswith(left_out) for left_out in NOT_RUN)


def quicker(text):
    for large, small in QUICKER.items():
        text = text.replace(large, small)
    return text


def commands(name):
    """Lines of literal blocks that call this package, with what is optional, without comments."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = re.findall(r"^ {4}(dask-diag [^\n]*)", text, re.MULTILINE)
    lines = [re.sub(r" +# .*| \[args\.\.\.\]|[][]", "", line).strip() for line in lines]
    return [quicker(line) for line in lines if is_run(name, line)]


def blocks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    code_blocks = re.findall(r"^\.\. code-block:: python\n\n((?: .*\n|\n)+)", text, re.MULTILINE)
    code_blocks = [textwrap.dedent(block) for block in code_blocks]
    return [
        quicker("\n".join(line for line in block.splitlines() if is_run(name, line)))
        for block in code_blocks
        if is_run(name, block)
    ]


def outputs(words):
    pairs = zip(words, words[1:])
    return [name for option, name in pairs if option in ("-o", "--html")]


def call(*words):
    """The status of a command. A program has a process; what is done with its recording has none."""
    if words[0] == "run":
        done = diag(*words)
        return done.returncode, done.stderr
    done = CliRunner().invoke(main, words)
    return done.exit_code, done.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(PROGRAM)
    # A quicker server.
    Path("examples/stories").mkdir(parents=True)
    example = (ROOT / "examples/stories/download.py").read_text(encoding="utf-8")
    Path("examples/stories/download.py").write_text(example.replace("sleep(0.1)", "sleep(0.01)"))
    monkeypatch.setattr("dask_diag.views.visualize.view", lambda address: None)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "docs/index.rst",
        "docs/quickstart.rst",
        "docs/why_slow.rst",
        "docs/record.rst",
        "docs/compare.rst",
        "docs/command_line.rst",
        "docs/what_if.rst",
        "docs/live.rst",
    ],
)
def test_its_commands_run_in_their_order(name, folder):
    for ready in READY.get(name, ()):
        with dask_diag.record(ready):
            runpy.run_path("script.py", run_name="__main__")
    lines = commands(name)
    assert lines
    for line in lines:
        words = [
            name
            for word in shlex.split(line)[1:]
            for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
        ]
        # Several commands of a page have the same example of a file that they write.
        for written in outputs(words):
            Path(written).unlink(missing_ok=True)
        status, reported = call(*words)
        # What is compared may differ by chance.
        assert status in ((0, 1) if "--fail-above" in words else (0,)), (line, reported)


@pytest.mark.parametrize("name", HOW_TO)
def test_the_code_of_a_page_runs_in_its_order(name, folder, capsys, without_plots):
    pytest.importorskip("pandas")
    names = {"__name__": "__main__"}
    for block in blocks(name):
        exec(compile(block, name, "exec"), names)
    assert capsys.readouterr().out
    for written in re.findall(r'"([\w.-]+\.(?:html|diag|json))"', "\n".join(blocks(name))):
        assert (folder / written).stat().st_size > 100


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_page_of_commands_has_each_option(name):
    text = (ROOT / "docs/command_line.rst").read_text(encoding="utf-8")
    parts = re.split(r"^([\w, -]+)\n-+\n", text, flags=re.MULTILINE)
    (section,) = [
        text
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
        if name in title.split(", ")
    ]
    options = [
        option
        for parameter in main.commands[name].params
        for option in [*parameter.opts, *parameter.secondary_opts]
        if option.startswith("-") and not getattr(parameter, "hidden", False)
    ]
    assert [option for option in options if option not in re.findall(r"-[\w-]+", section)] == []


def test_what_compare_prints_is_as_it_is_shown():
    stories = ROOT / "docs" / "stories"
    both = [str(stories / f"download{name}.diag") for name in ("", "_after")]
    text = (ROOT / "docs/quickstart.rst").read_text(encoding="utf-8")
    *_, shown = re.findall(r"code-block:: text\n\n((?: .*\n|\n)+)", text)
    printed = CliRunner().invoke(main, ["compare", *both]).stdout
    assert textwrap.dedent(shown).strip() == printed.strip()


@pytest.mark.parametrize("name", ["Makefile", "tests/wheel.sh"])
def test_the_options_of_its_commands_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    calls = re.findall(r'/dask-diag"? ([a-z][a-z-]*)(.*)', text)
    assert calls
    for command, rest in calls:
        parameters = main.commands[command].params
        known = {option for each in parameters for option in (*each.opts, *each.secondary_opts)}
        of_the_command = rest.partition(".py")[0]
        assert set(re.findall(r" (--[a-z-]+)", of_the_command)) <= known, (command, rest)
