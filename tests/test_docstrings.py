"""The examples in docstrings run, and print what they show."""

import ast
import doctest
from pathlib import Path

import pytest

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

PACKAGE = Path(__file__).parents[1] / "dask_diag"
DEFINITIONS = (ast.ClassDef, ast.FunctionDef)
EXAMPLES = {
    f"{path.relative_to(PACKAGE)}: {node.name}": docstring
    for path in sorted(PACKAGE.rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, DEFINITIONS) and ">>> " in (docstring := ast.get_docstring(node) or "")
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, 0)
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert "".join(said) == ""
