"""Secrets in code, configuration and text are masked, and nothing else is."""

from __future__ import annotations

import ast
import io
import runpy
import sys
import tokenize
import zipfile
import zlib
from dataclasses import fields
from pathlib import Path

import dask
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import load, performance_report, record, report, save
from dask_diag.model.table import Table
from dask_diag.profilers.record import ProfilerGroup
from dask_diag.system import secrets
from dask_diag.system.environment import calling_code, environment
from dask_diag.system.secrets import is_secret_name, redacted_source, redacted_text

from .commands import run as run_command
from .secrets_in_code import HIDDEN, INNOCENT, SECRET, SHAPES

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]

MASK = "'…'"


def parses(text):
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def without_texts(text):
    """The tree of a program, its strings and formatted strings all alike."""

    class Alike(ast.NodeTransformer):
        def visit_Constant(self, node):
            return ast.Constant("x" if isinstance(node.value, (str, bytes)) else node.value)

        def visit_JoinedStr(self, node):
            return ast.Constant("x")

        visit_TemplateStr = visit_JoinedStr

    return ast.dump(Alike().visit(ast.parse(text)))


@pytest.mark.parametrize("code", HIDDEN.values(), ids=HIDDEN)
def test_a_secret_in_code_is_masked(code):
    assert SECRET in code
    masked = redacted_source(code)
    assert SECRET not in masked
    assert "…" in masked
    assert masked.count("\n") == code.count("\n")
    if parses(code):
        assert without_texts(masked) == without_texts(code)
    if parses(code) and "\\\n" not in code:
        # Within more code, too, of which the lines keep their numbers.
        before = ["def run(x):", "    marker = 'visible'", "    with x:"]
        body = [f"        {line}" for line in code.split("\n")]
        program = [*before, *body, "        pass", "    return 'seen'"]
        masked = redacted_source("\n".join(program)).split("\n")
        assert SECRET not in "\n".join(masked)
        assert (masked[:3], masked[-1]) == (before, "    return 'seen'")


@pytest.mark.parametrize("code", INNOCENT)
def test_innocent_code_is_unharmed(code):
    assert redacted_source(code) == code
    indented = "def f():\n" + "".join(f"    {line}\n" for line in code.split("\n"))
    assert redacted_source(indented) == indented


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_tokens_are_known_by_their_shape(text):
    comment = "" if "\n" in text else text
    code = f"x = {text!r}\n# {comment}\ny = [b{text!r}]\nz = f'''{{x}} {text}'''\n"
    masked = redacted_source(code)
    assert not [line for line in text.split("\n") if line in masked]
    assert not [line for line in text.split("\n") if line in redacted_source(f"{code} !")]
    assert masked.split("\n")[0] == f"x = {MASK}"
    assert without_texts(masked) == without_texts(code)
    assert text not in redacted_text(f"the value is {text} here")


def test_what_is_masked_reads_as_code():
    code = '''\
def read(path, token="abc"):
    """Read it."""
    return dd.read_parquet(  # all of it
        path,
        storage_options={
            "key": "abc",  # password: abc
            "secret": """a
b""",
            "anon": False,
        },
    )
'''
    masked = redacted_source(code)
    for secret, mask in (
        *(('"abc",  # password: abc', f"{MASK},  # password: …"), ('"abc"', MASK)),
        ('"""a\nb"""', "'''…\n'''"),
    ):
        code = code.replace(secret, mask)
    assert masked == code
    masked = redacted_source('%env TOKEN=abc\nx = "seen"\n!tool -p "a"\ny = !ls\n')
    assert masked == "%env TOKEN=…\nx = \"seen\"\n!tool -p '…'\ny = !ls\n"
    assert redacted_source('if True print("a", 3)  # no\n') == "if True print('…', 3)  # no\n"


FILES = sorted(
    path
    for folder in (Path(ast.__file__).parent, Path(dask.__file__).parent)
    for path in (*folder.glob("*.py"), *folder.glob("dataframe/*.py"), *folder.glob("array/*.py"))
)


@pytest.mark.once
def test_programs_stay_the_same_beside_what_is_masked():
    literals = masked_literals = 0
    for path in FILES[::24]:
        try:
            code = path.read_text(encoding="utf-8")
            tree = without_texts(code)
        except (SyntaxError, UnicodeDecodeError):
            continue
        masked = redacted_source(code)
        assert masked.count("\n") == code.count("\n"), path
        assert without_texts(masked) == tree, path
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
        literals += sum(token.type == tokenize.STRING for token in tokens)
        masked_literals += masked.count(MASK) + masked.count("'''…")
    # Of code that has no secrets: what is masked in it is masked for nothing.
    assert 0 < masked_literals < 0.06 * literals


def test_long_chains_and_deep_code_are_masked_too():
    chain = "x = " + " + ".join(["'a'"] * 8_000) + "\npassword = 'hunter2'\n"
    deep = "x = " + "(" * 150 + "'a'" + ")" * 150 + "\npassword = 'hunter2'\n"
    nested = "[" * 3_000 + "'hunter2'" + "]" * 3_000
    for code in (chain, deep, nested, "password = 'hunter2'\0", "password = 'hunter2\udc80'"):
        assert SECRET not in redacted_source(code)


PIECES = [
    *"password key x hunter2 :// AKIA storage_options -- lambda: in".split(),
    *"=:'\"{}()@#\\%!?,1b \n\r\0ä\x0c\ud800\t",
    *('"""', "f'", "Bearer ", "def f():", "if x:", "\n    "),
]


@settings(max_examples=150)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_text_can_be_masked_and_keeps_its_lines(pieces):
    text = "".join(pieces)
    masked = redacted_source(text)
    assert masked.count("\n") == text.replace("\r\n", "\n").replace("\r", "\n").count("\n")
    if parses(text):
        assert parses(masked)
    again = redacted_text(redacted_text(text))
    assert again == redacted_text(text)


@pytest.mark.parametrize("later", [AttributeError, TypeError])
def test_code_that_is_not_understood_is_masked_as_text(later, monkeypatch):
    def fails(tree):
        raise later

    monkeypatch.setattr(secrets, "_secret_literals", fails)
    masked = redacted_source.__wrapped__("x = 'seen'\npassword = 'hunter2'\n")
    assert masked == f"x = {MASK}\npassword = {MASK}\n"


def test_the_configuration_and_variables_are_shown_without_secrets(monkeypatch):
    settings = {
        "plugins": [{"password": SECRET}],
        "address": f"tcp://me:{SECRET}@host:1",
        "other-address": f"https://host/x?token={SECRET}",
        "storage_options": {"account": SECRET},
        "command": f"tool --token {SECRET}",
        "header": f"Bearer {SECRET}",
        "text": f"user: me\ncredentials:\n  - a\npassword: |\n  b\n  {SECRET}\n",
    }
    monkeypatch.setenv("OMP_NUM_THREADS", f"2 token={SECRET}")
    with dask.config.set(settings):
        rows = environment()
    assert SECRET not in str(rows)
    shown = {name: value for section, name, value in rows if section == "configuration"}
    assert shown["plugins"] == "[{'password': '…'}]"
    assert shown["address"] == "'tcp://…@host:1'"
    assert "storage_options.account" in shown["(left out)"]
    assert ("machine", "OMP_NUM_THREADS", "2 token=…") in rows


def test_names_that_look_like_secrets():
    for name in (
        *("password", "DB_PASSWORD", "dbPasswd", "pwd", "user_pass", "passphrase", "API-Key"),
        *("apikey", "accessKeyId", "aws_secret_access_key", "x-amz-signature", "sig", "oauth2"),
        *("Authorization", "bearer", "session_cookie", "jwt", "creds", "tls.client.key", "KEY"),
        *("storage_options", "storage-options", "dataframe.storage_options.x", "refreshToken"),
    ):
        assert is_secret_name(name), name
    for name in (
        *("author", "keys", "keyword", "monkey", "tokenize", "tokenizer", "compass", "passes"),
        *("pass_through", "assign", "design", "keyboard", "n_passes", "", "ä", "bypass", "signal"),
    ):
        assert not is_secret_name(name), name


# What is in files and pages.


def texts_of(recording):
    """Every text that a recording has."""
    for field in fields(recording):
        value = getattr(recording, field.name)
        if isinstance(value, Table):
            for column in value.columns:
                yield from map(str, value[column].tolist())
        else:
            yield str(value)


def contents_of(path):
    """The bytes of a file: as they are, of each entry, and whatever in these is deflated."""
    yield Path(path).read_bytes()
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = memoryview(archive.read(name))
            yield bytes(data)
            for start in range(len(data)):
                for wbits in (-15, 15):
                    try:
                        yield zlib.decompressobj(wbits).decompress(data[start:])
                    except zlib.error:
                        continue


def write_program(path):
    """Secrets in a function that is noted as it calls."""
    lines = "\n".join(HIDDEN[name] for name in IN_FILES).split("\n")
    body = "\n".join(f"        {line}" for line in lines)
    path.write_text(
        "import dask\nfrom operator import add\n\n"
        "def run(recorder):\n"
        "    with recorder:\n"
        "        dask.get({'x': (add, 1, 2)}, 'x')\n"
        "        visible_marker = 'seen in the page'\n"
        "    if recorder is None:\n"
        f"{body}\n"
        "    return recorder\n"
    )
    return runpy.run_path(path)["run"]


IN_FILES = [
    *("keyword", "dict", "subscript", "default", "comparison", "positional after a name", "URL"),
    *("storage options below", "storage options before", "triple-quoted", "f-string", "bytes"),
    *("implicitly joined", "comment", "bearer", "URL with a token", "behind what is no ASCII"),
]


def test_no_secret_is_in_a_file_or_in_its_page(tmp_path):
    path = tmp_path / "run.diag"
    run = write_program(tmp_path / "program.py")
    run(record(path))
    loaded = load(path)
    assert any("visible_marker" in text for text in texts_of(loaded))
    assert not [text for text in texts_of(loaded) if SECRET in text]
    # What it saves and shows itself is the same.
    save(loaded, tmp_path / "again.diag")
    report(loaded, tmp_path / "page.html")
    run(performance_report(tmp_path / "other.html"))
    for name in ("run.diag", "again.diag"):
        contents = list(contents_of(tmp_path / name))
        assert any(b"visible_marker" in data for data in contents)
        assert not [data for data in contents if SECRET.encode() in data]
    for name in ("page.html", "other.html"):
        assert "visible_marker" in (page := (tmp_path / name).read_text())
        assert SECRET not in page


def test_code_that_is_not_to_be_noted_is_not(tmp_path, monkeypatch):
    def facts(recording):
        return {row["section"] for row in recording.environment.to_dicts()}

    run = write_program(tmp_path / "program.py")
    path, page = tmp_path / "run.diag", tmp_path / "page.html"
    for recorder in (record(path, code=False), performance_report(page, code=False)):
        assert facts(run(recorder).recording) == {"versions", "machine", "configuration"}
    assert not any("visible_marker" in text for text in texts_of(load(path)))
    assert not [data for data in contents_of(path) if b"visible_marker" in data]
    assert "visible_marker" not in page.read_text()
    assert "was not recorded" in page.read_text()
    # Code that is given is noted in place of what calls.
    recorder = run(ProfilerGroup(code="visible = 1\npassword = 'hunter2'\n"))
    rows = recorder.recording.environment.to_dicts()
    (code,) = (row["value"] for row in rows if row["section"] == "calling code")
    assert code == f"visible = 1\npassword = {MASK}"
    # It is parsed once, however many recordings a program makes.
    frame = sys._getframe()
    first = calling_code(frame)
    monkeypatch.setattr(ast, "parse", None)
    assert calling_code(frame) == first != []


@pytest.mark.once
def test_the_command_line_masks_the_program_and_can_leave_it_out():
    Path("script.py").write_text("password = 'hunter2'\nvisible_marker = 1\n")
    for options, is_noted in (((), True), (("--no-code",), False)):
        assert run_command("run", "-qf", *options, "script.py").returncode == 0
        contents = list(contents_of("script.diag"))
        assert any(b"visible_marker" in data for data in contents) == is_noted
        assert not [data for data in contents if SECRET.encode() in data]
