"""The rules of conda-forge's linter (conda-smithy) that this recipe can break.

conda-smithy itself needs conda.
"""

from __future__ import annotations

import re

SECTIONS = ["package", "source", "build", "requirements", "test", "about", "extra"]
OF_REQUIREMENTS = ["build", "host", "run"]
OF_SECTIONS = {
    "package": {"name", "version"},
    "build": {"noarch", "number", "script", "entry_points"},
    "requirements": set(OF_REQUIREMENTS),
    "test": {"imports", "commands", "requires"},
    "about": {"home", "license", "license_file", "summary", "description", "doc_url", "dev_url"},
    "extra": {"recipe-maintainers"},
}
BACKENDS = {"setuptools", "flit-core", "hatchling", "poetry-core", "meson-python"}
SPEC = re.compile(r"[\w.-]+(?: (?:[<>=!~]=?)?[\w.*,<>=!]+)?")


def broken_rules(recipe: dict, text: str) -> list[str]:
    """What the linter would object to in a recipe: its content, and the text that it is made of."""
    rules = [
        (_about, recipe.get("about", {})),
        (_build, recipe.get("build", {})),
        (_requirements, recipe.get("requirements", {})),
        (_maintainers, recipe.get("extra", {})),
        (_python, recipe),
        (_sections, recipe),
        (_text, text),
    ]
    return [objection for rule, part in rules for objection in rule(part)]


def _sections(recipe):
    sections = [name for name in recipe if name in SECTIONS]
    if sections != sorted(sections, key=SECTIONS.index):
        yield "sections are in an unexpected order"
    for name in recipe.keys() - set(SECTIONS):
        yield f"{name} is not a section"
    for name in sections:
        for part in recipe[name].keys() - OF_SECTIONS.get(name, recipe[name].keys()):
            yield f"{name}/{part} is not valid"
    if not re.fullmatch(r"[a-z0-9_.-]+", recipe["package"]["name"]):
        yield "package/name has characters that are not allowed"
    if not re.fullmatch(r"\d+(\.\d+)*\w*", str(recipe["package"]["version"])):
        yield "package/version is none"
    if not recipe.get("test", {}).keys() & {"imports", "commands"}:
        yield "there are no tests"
    if "url" in recipe.get("source", {}) and "sha256" not in recipe["source"]:
        yield "source/url has no sha256"


def _about(about):
    for item in ("home", "license", "summary"):
        if not about.get(item):
            yield f"about/{item} is expected"
    identifier = str(about.get("license", "")).lower()
    if identifier == "unknown" or re.search(r"(?<![-n])license(?!ref)", identifier):
        yield "about/license is no identifier"
    if not about.get("license_file"):
        yield "about/license_file is expected"


def _build(build):
    if build.get("number") is None:
        yield "build/number is expected"
    if build.get("noarch") not in (None, "python", "generic"):
        yield "build/noarch is not valid"
    if "pip install" not in str(build.get("script")):
        yield "build/script does not use pip"


def _requirements(requirements):
    seen = [name for name in requirements if name in OF_REQUIREMENTS]
    if seen != sorted(seen, key=OF_REQUIREMENTS.index):
        yield "requirements are in an unexpected order"
    for spec in [spec for specs in requirements.values() for spec in specs]:
        if not SPEC.fullmatch(spec):
            yield f"{spec!r} is not written as 'name >=version'"
    host = {spec.split()[0] for spec in requirements.get("host", [])}
    if "pip" in host and not host & BACKENDS:
        yield "pip is there without a build backend"


def _python(recipe):
    """A package for any Python names the oldest one, and is tested with that."""
    if recipe.get("build", {}).get("noarch") != "python":
        return
    requirements = recipe.get("requirements", {})
    run = _spec_of_python(requirements.get("run", []))
    oldest = run.removeprefix(">=")
    if not run.startswith(">="):
        yield "requirements/run has no oldest Python"
    for name, specs in [
        ("requirements/host", requirements.get("host", [])),
        ("test/requires", recipe.get("test", {}).get("requires", [])),
    ]:
        if _spec_of_python(specs) not in (oldest, f"{oldest}.*"):
            yield f"{name} is not of the oldest Python"


def _spec_of_python(specs):
    return next((spec[7:] for spec in specs if spec.startswith("python ")), "")


def _maintainers(extra):
    maintainers = extra.get("recipe-maintainers")
    if not maintainers or not isinstance(maintainers, list):
        yield "extra/recipe-maintainers is expected, a list"


def _text(text):
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield "the file does not end with one empty line"
    for line in text.splitlines():
        if line.lstrip().startswith("{%") and not re.fullmatch(r"\{% set \w+ = \S+ %\}", line):
            yield f"{line!r} is not written as '{{% set name = value %}}'"
        if "python setup.py install" in line:
            yield "setup.py is used in place of pip"
