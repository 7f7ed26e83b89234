"""Scripts of pages: modules that stand alone become one function body, as bokeh wants it."""

import json
import re
from configparser import ConfigParser
from pathlib import Path

import pytest

import dask_diag.views
from dask_diag.views import assets
from dask_diag.views.assets import call, link
from dask_diag.views.escaping import short_key

from .javascript import needs_node, results_of, run_javascript

pytestmark = pytest.mark.once

VIEWS = Path(dask_diag.views.__file__).parent
MODULES = sorted(path.relative_to(VIEWS).as_posix() for path in VIEWS.rglob("*.js"))
IMPORTS = re.compile(r'^import \{([^}]*)\} from "([^"]+)"', re.MULTILINE)


@pytest.fixture
def modules(monkeypatch):
    """Texts of modules by name, in place of those of the package."""
    texts = {}
    monkeypatch.setattr(assets, "text_of", texts.__getitem__)
    link.cache_clear()
    yield texts
    link.cache_clear()


@needs_node
def test_modules_share_nothing_but_what_they_export_and_import(modules):
    modules["page.js"] = (
        'import {twice} from "./lib/twice.js"\n'
        'import {\n    factor_of_all,\n} from "./lib/factor.js"\n'
        "// a comment\n"
        "const factor = 10\n"
        "export const unit = 's'\n"
        "export function show(value) { return [twice(value) * factor, unit, factor_of_all] }\n"
    )
    modules["lib/twice.js"] = (
        'import {factor_of_all} from "./factor.js"\n'
        "const factor = factor_of_all\n"
        "export function twice(value) { return factor * value }\n"
    )
    modules["lib/factor.js"] = "export const factor_of_all = 2\n"
    assert run_javascript("page.js", "show", [3]) == [[60, "s", 2]]
    # What two of them import is there once, and before both.
    assert link("page.js").count("= 2\n") == 1


def test_neither_does_the_space_before_code_and_what_it_does_not_need(modules):
    modules["page.js"] = (
        'const address = "https://here"   // why\n\n'
        "export function show() {\n    return `a  b ${address}`\n}\n"
    )
    assert link("page.js").splitlines()[1:-2] == [
        'const address = "https://here"',
        "function show() {",
        "return `a  b ${address}`",
        "}",
    ]


@needs_node
@pytest.mark.parametrize("name", MODULES)
def test_every_module_becomes_the_body_of_a_function(name):
    body = call(name, "any", "")
    assert not re.search(r"^\s*(import|export)\b", body, re.MULTILINE)
    assert results_of("'use strict'\n" + body) == []


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_what_others_export(name):
    for names, path in IMPORTS.findall((VIEWS / name).read_text(encoding="utf-8")):
        other = (VIEWS / name).parent / path
        exported = re.findall(
            r"^export (?:async )?(?:function|const|class) (\w+)",
            other.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        wanted = [part.strip() for part in names.split(",") if part.strip()]
        assert set(wanted) <= set(exported), (name, path)


def test_every_module_is_used():
    used = set()
    for path in VIEWS.rglob("*.py"):
        used.update(re.findall(r'"([\w/]+\.js)"', path.read_text(encoding="utf-8")))
    for name in MODULES:
        for _, path in IMPORTS.findall((VIEWS / name).read_text(encoding="utf-8")):
            used.add(((VIEWS / name).parent / path).resolve().relative_to(VIEWS).as_posix())
    assert used == set(MODULES)


def test_an_installed_package_has_every_file_that_pages_are_made_of():
    root = Path(__file__).parents[1]
    configuration = ConfigParser()
    configuration.read(root / "setup.cfg")
    patterns = configuration["options.package_data"]["dask_diag"].split(", ")
    package = root / "dask_diag"
    installed = {path for pattern in patterns for path in package.glob(pattern)}
    data = {
        path
        for path in package.rglob("*.*")
        if path.suffix not in (".py", ".pyc", ".pyo") and "__pycache__" not in path.parts
    }
    assert len(data) > 20
    assert data <= installed


SHORT_KEYS = json.loads(
    Path(__file__).with_name("short_key_cases.json").read_text(encoding="utf-8")
)


@needs_node
def test_keys_in_tooltips_have_no_long_tokens():
    texts = run_javascript(
        "plots/tasks/lookups.js", "short_key", *([case["key"]] for case in SHORT_KEYS)
    )
    assert texts == [case["text"] for case in SHORT_KEYS]


def test_keys_in_tables_are_as_short_as_in_tooltips():
    assert [short_key(case["key"]) for case in SHORT_KEYS] == [case["text"] for case in SHORT_KEYS]
