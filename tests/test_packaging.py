"""What describes the package says the same everywhere."""

import configparser
import re
from pathlib import Path

import jinja2
import pytest
import yaml

import dask_diag

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
# Names that differ between the two kinds of package.
CONDA = {"dask": "dask-core"}


@pytest.fixture(scope="module")
def settings():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


RECIPE = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")


def rendered(text):
    template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(text)
    return yaml.safe_load(template.render(PYTHON="python"))


@pytest.fixture(scope="module")
def recipe():
    return rendered(RECIPE)


@pytest.fixture(scope="module")
def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def requirements(lines):
    """Each package with its bounds, without spaces."""
    pairs = (re.fullmatch(r"([\w-]+)\s*(.*)", line.strip()).groups() for line in lines)
    return {name: bounds.replace(" ", "") for name, bounds in pairs}


def test_one_version(recipe, citation):
    assert recipe["package"]["version"] == dask_diag.__version__
    assert citation["version"] == dask_diag.__version__
    changelog = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
    (first, *_) = re.findall(r"^(\d+\.\d+\.\d+) \(.*\)\n-+$", changelog, re.MULTILINE)
    assert first == dask_diag.__version__


def test_the_recipe_requires_what_the_package_requires(settings, recipe):
    options = settings["options"]
    needed = requirements(options["install_requires"].split())
    needed = {CONDA.get(name, name): bounds for name, bounds in needed.items()}
    needed["python"] = options["python_requires"]
    assert requirements(recipe["requirements"]["run"]) == needed


def test_the_recipe_has_the_commands_and_the_license(settings, recipe):
    (script,) = settings["options.entry_points"]["console_scripts"].strip().splitlines()
    assert recipe["build"]["entry_points"] == [script]
    assert recipe["about"]["license"] == settings["metadata"]["license"]
    assert (ROOT / recipe["about"]["license_file"]).is_file()


def test_the_package_is_described_alike(settings, recipe, citation):
    assert recipe["about"]["summary"] == settings["metadata"]["description"]
    subject = "Dask's local schedulers and clusters"
    assert subject in recipe["about"]["summary"]
    assert subject in citation["title"]


def test_the_citation_is_complete(settings, citation):
    assert {"cff-version", "title", "message", "authors"} <= set(citation)
    assert citation["license"] == settings["metadata"]["license"]


def test_every_file_that_is_no_code_is_in_the_wheel(settings):
    patterns = settings["options.package_data"]["dask_diag"].replace(",", " ").split()
    package = ROOT / "dask_diag"
    packed = {file for pattern in patterns for file in package.glob(pattern)}
    data = {
        file
        for file in package.rglob("*")
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts
    }
    assert data - packed == set()
