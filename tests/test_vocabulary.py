"""The package and its documents are written in the field's words.

``python -m tests.test_vocabulary [PATH ...]`` prints each refused word, as ``file:line: words``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
READ = (
    *("dask_diag", "docs", "examples", "benchmarks", "tests", "recipe", ".ci", "*.rst", "*.py"),
    *("*.cfg", "*.toml", "*.cff", "eslint.config.js", "Makefile", "MANIFEST.in", ".*.yaml"),
)
SUFFIXES = {".py", ".js", ".html", ".css", ".rst", ".yaml", ".ipynb", ".svg", ".sh", ".cfg"} | {
    *(".toml", ".cff", ".in", "")
}
MADE_BY_TOOLS = {"_build", "generated", "__pycache__", ".mypy_cache"}
WORDS_ARE_NAMED_HERE = Path(__file__).name

IDIOMS = (
    r"told|tells?|telling|retold",  # shown, reported, recorded, tracked individually
    r"lookers?|sights?|beats?",  # probe, sample, tick
    r"watch(ed|ing|ers?)|under watch",  # running task, probe
    r"(a|an|the|each|every|one|last|first|next|this) look",  # sample
    r"(let|lets|letting) go",  # release
    r"held up|holds? up",  # blocked by the scheduler
    r"(the|its|of|all|a) kept|kept\.[a-z_]",  # log, mask
    r"stands? for|standing for",  # weight, represents
    r"stand(s|ing)?[- ]in",  # wrapper
    r"begun",  # start
    r"freez(e|es|ing)",  # build
    r"anew|thrice",  # again
    r"as (it|they) go(es)?",  # incrementally
    r"noun|rooms?|houses?",  # data model, package, available width
    r"whoever|ours|theirs|mine|so that who|(of|by|from|to|for|as|that|and|or) who",  # the component
    r"without end",  # unlimited
    r"longest chain",  # critical path
    r"papers?|ink|faint(er)?",  # theme, foreground, muted
    r"interpreter's lock",  # GIL
    r"(time|seconds?|s) of its own",  # self time
    r"as far as|all the same",  # name the noun
)
IDIOM = re.compile("|".join(rf"\b(?:{words})\b" for words in IDIOMS).replace(" ", r"\s+"), re.I)

NAMES = frozenset(
    "told tells telling looker lookers sight sights beat beats watch watched watching kept begun "
    "freeze freezing anew thrice whoever ours theirs mine paper ink faint noun house standin"
    "".split()
)
"""Words that no name of a variable, function, class, module or attribute has among its parts."""

BETWEEN_WORDS = re.compile(r"""\b[rbfu]{1,2}(?=["'])|\\[nt]|["'#\s]+""", re.I)

EMPTY_NAMES = frozenset(
    "found known each left taken whole rest there here place places room".split()
)
"""What no variable, parameter or attribute is called: it does not say what is in it.

Fields of classes are names of columns, which say it: a worker `joined`, and `left`.
"""
PAIRS = {"left": {"right", "joined"}}
"""A name that says enough beside one of these: an edge, a time."""

METHODS_OF_OTHERS = frozenset({"freeze"})
"""What other packages call their methods: ``freeze`` is bokeh's."""


@cache
def words_of(name: str) -> set[str]:
    """The parts of a name: ``keptTasks``, ``kept_tasks`` and ``KEPT`` all have ``kept``."""
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def prose(source: str) -> str:
    """The source with everything but strings and comments blanked out, line by line as it was.

    Blanks join what stands in neighbouring strings and lines, so that a phrase is found wherever
    it is broken; code between them is not blank, so that no phrase is made up.
    """
    lines = [re.sub(r"\S", "\0", line) for line in source.splitlines(keepends=True)]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string
        if token.type == tokenize.COMMENT:
            text = text.replace("#", " ")
        elif token.type == tokenize.STRING:
            opening = re.match(r"[A-Za-z]*(\"\"\"|'''|\"|')", text)[0]
            quotes = len(opening.lstrip("rRbBfFuU"))
            text = " " * len(opening) + text[len(opening) : -quotes] + " " * quotes
        elif tokenize.tok_name[token.type] in ("FSTRING_START", "FSTRING_END"):
            text = re.sub(r"\S", " ", text)
        elif tokenize.tok_name[token.type] != "FSTRING_MIDDLE":
            continue
        text = re.sub(r"\\[nt]", "  ", text)
        row, column = token.start
        for number, part in enumerate(text.split("\n"), start=row - 1):
            line = lines[number]
            lines[number] = line[:column] + part + line[column + len(part) :]
            column = 0
    return "".join(lines)


def may_have_some(source: str) -> bool:
    """Whether it is worth to take a source apart, which takes long: of most files it is not."""
    names = set(re.findall(r"\w+", source))
    return any(words_of(name) & NAMES for name in names) or bool(
        IDIOM.search(BETWEEN_WORDS.sub(" ", source))
    )


def refused_names(source: str) -> Iterator[tuple[int, str]]:
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        of_others = before == "." and token.string in METHODS_OF_OTHERS
        if token.type == tokenize.NAME and words_of(token.string) & NAMES and not of_others:
            yield token.start[0], token.string
        before = token.string


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that assignments, loops, comprehensions, parameters and definitions bind."""
    nodes = list(ast.walk(tree))
    of_class = {
        id(target)
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for field in node.body
        for target in getattr(field, "targets", [getattr(field, "target", None)])
    }
    for node in nodes:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store) and id(node) not in of_class:
                yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute):
            of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            if of_self and isinstance(node.ctx, ast.Store):
                yield node.lineno, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name


def empty_names(source: str) -> Iterator[tuple[int, str]]:
    bound = [(line, name, name.strip("_").lower()) for line, name in bound_names(ast.parse(source))]
    every = {word for _, _, word in bound}
    for line, name, word in bound:
        if word in EMPTY_NAMES and not PAIRS.get(word, set()) & every:
            yield line, name


def refused(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and words that are refused in a file; line 0 is its name."""
    if words_of(path.stem) & NAMES:
        yield 0, path.name
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        if not may_have_some(text):
            return
        yield from refused_names(text)
        text = prose(text)
    else:
        # What opens the next line of a comment is no word of the sentence.
        text = re.sub(r"^(\s*)(//|\*|\.\.)(?= )", r"\1  ", text, flags=re.M)
    for match in IDIOM.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())


def files(names: tuple[str, ...] = READ) -> list[Path]:
    """The files of these names, each once; a folder is all that is in it."""
    paths = [path for name in names for path in sorted(ROOT.glob(name))]
    everything = [
        p for path in paths for p in (sorted(path.rglob("*")) if path.is_dir() else [path])
    ]
    return [
        path
        for path in everything
        if path.suffix in SUFFIXES
        and path.name != WORDS_ARE_NAMED_HERE
        and path.is_file()
        and not MADE_BY_TOOLS & set(path.relative_to(ROOT).parts)
    ]


def hits(names: tuple[str, ...] = READ) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in files(names)
        for line, words in sorted(refused(path))
    ]


PARTS = sorted({str(path.relative_to(ROOT)) for name in READ[1:] for path in ROOT.glob(name)})
PACKAGES = sorted(f"dask_diag/{path.parent.name}" for path in ROOT.glob("dask_diag/*/__init__.py"))


@pytest.mark.parametrize("name", [*PARTS, "dask_diag/*.*", *PACKAGES])
def test_the_package_and_its_documents_are_in_the_fields_words(name):
    assert not hits((name,))


CODE = ["dask_diag/*.py", *PACKAGES, "*.py", "tests", "benchmarks", "docs", "examples"]


@pytest.mark.parametrize("name", CODE)
def test_a_variable_is_called_what_it_holds(name):
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {bound}"
        for path in files((name,))
        if path.suffix == ".py"
        for line, bound in empty_names(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(
    "source",
    [
        "found = 3\n",
        "_known: int = 3\n",
        "names = [each for each in range(3)]\n",
        "def f(*, whole): ...\n",
        "def f(self):\n    self._taken = 3\n",
        "for left in range(3): ...\n",
        "if rest := f(): ...\n",
        "def _place(): ...\n",
        "ROOM = 3\n",
    ],
)
def test_a_name_that_says_nothing_is_found(source):
    assert len(list(empty_names(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "left, right = 1, 2\n",
        "class Worker:\n    left: float\n",
        "is_known = found_at = 3\n",
        "f(known=3)\n",
    ],
)
def test_a_name_that_says_what_it_holds_is_not_refused(source):
    assert not list(empty_names(source))


def test_there_is_something_to_read():
    read = files()
    assert {".py", ".js", ".css", ".rst", ".yaml", ".sh"} <= {path.suffix for path in read}
    assert {"Makefile", "run", "setup.cfg", "conftest.py"} <= {path.name for path in read}


@pytest.mark.parametrize(
    "source",
    [
        '"""What is told."""\n',
        '"""What it stands\n    for."""\n',
        'f(\n    "it lets "\n    "go of tasks"\n)\n',
        'name = 3\nf"{name} is told"\n',
        "# What comes: it is held\n# up by the scheduler.\n",
        'f"line\\ntold"\n',
        "told = 3\n",
        "def freeze(): ...\n",
        "class KeptTasks: ...\n",
        "tasks_told.append(3)\n",
    ],
)
def test_idiom_is_found(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_text(source)
    lines = list(refused(path))
    path.unlink()
    assert len(lines) == 1


@pytest.mark.parametrize(
    "source",
    [
        "handle.tell()\n",
        "document.models.freeze()\n",
        '("stands", "for")\n',
        "held = up\n",
        '"""Tasks that are kept in memory."""\n',
        '"a stand"  # innermost\n',
    ],
)
def test_plain_words_are_not_refused(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_text(source)
    lines = list(refused(path))
    path.unlink()
    assert not lines


if __name__ == "__main__":
    lines = hits(tuple(sys.argv[1:]) or READ)
    print("\n".join(lines))
    print(f"{len(lines)} refused words", file=sys.stderr)
    sys.exit(bool(lines))
