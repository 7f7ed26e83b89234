"""Settings: changes around an unchanged program."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from toolz import merge

from dask_diag.errors import DiagnosticError

Changes = tuple[tuple[str, str], ...]
_VARIABLES_OF_DASK = "DASK_"


@dataclass(frozen=True)
class Setting:
    """Environment variables, dask's configuration and arguments of a program.

    Attributes
    ----------
    name : str
        Short, for tables.
    variables : mapping of str to str
        Environment variables.
    config : mapping of str to str
        Keys of dask's configuration, such as ``{"scheduler": "threads"}``. A program gets them as
        variables, which dask reads when it is imported. They go before configuration files, and
        after what the program sets by itself.
    parameters : mapping of str to str
        Values for ``{name}`` in the program's arguments.
    reason : str
        The code of the finding behind the setting, or empty.
    python : str
        The interpreter that runs the program; empty for that of the baseline.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    python: str = ""

    @property
    def changes(self) -> dict[str, str]:
        """The changes, by name: settings with a common name cannot be combined."""
        return {
            **{f"${name}": value for name, value in self.variables.items()},
            **{f"dask {name}": value for name, value in self.config.items()},
            **{f"{{{name}}}": value for name, value in self.parameters.items()},
            **({"python": self.python} if self.python else {}),
        }

    @property
    def identity(self) -> Changes:
        """The changes in order; two settings may have one name, as an argument and a variable."""
        return tuple(sorted(self.changes.items()))

    @property
    def environment(self) -> dict[str, str]:
        """The additional variables of a child process."""
        return {**self.variables, **{variable_of(k): value for k, value in self.config.items()}}

    @property
    def scheduler(self) -> str | None:
        """The requested local scheduler, by the name in recordings."""
        name = self.config.get("scheduler")
        return {"sync": "synchronous", "single-threaded": "synchronous"}.get(name or "", name)

    @property
    def workers(self) -> int | None:
        """The requested number of workers."""
        text = self.config.get("num_workers")
        return int(text) if text is not None and text.isdecimal() else None

    @property
    def changes_but_workers(self) -> dict[str, str]:
        """The changes, except for the number of workers."""
        return {name: v for name, v in self.changes.items() if name != "dask num_workers"}

    def shell_lines(self) -> list[str]:
        """The environment variables as lines for a shell."""
        return [f"export {name}={shlex.quote(v)}" for name, v in self.environment.items()]

    def configuration(self) -> str:
        """The keys of dask's configuration as a file below ``~/.config/dask/``."""
        tree: dict[str, object] = {}
        for key, value in self.config.items():
            *sections, name = key.split(".")
            branch = tree
            for section in sections:
                branch = branch.setdefault(section, {})  # type: ignore[assignment]
            branch[name] = value
        return "\n".join(_as_yaml(tree))


BASELINE = Setting("as it is")
"""The program as it is run without this package."""


def variable_of(key: str) -> str:
    """The environment variable of a key of dask's configuration."""
    name = key.replace(".", "__").replace("-", "_")
    if not name.replace("_", "").isalnum() or key != key.lower():
        raise DiagnosticError(
            f"configuration: expected a key such as array.chunk-size, found {key!r}"
        )
    return _VARIABLES_OF_DASK + name.upper()


def parameter_setting(name: str, value: str, arguments: Sequence[str]) -> Setting:
    """A value of a parameter: of ``{name}`` in arguments, else of an environment variable."""
    if any(f"{{{name}}}" in argument for argument in arguments):
        return Setting(f"{name}={value}", parameters={name: value})
    return Setting(f"{name}={value}", variables={name: value})


def filled(arguments: Sequence[str], parameters: Mapping[str, str]) -> list[str]:
    """The arguments with the values of the parameters filled in."""
    for name, value in parameters.items():
        arguments = [text.replace(f"{{{name}}}", value) for text in arguments]
    return list(arguments)


def combined(settings: Iterable[Setting]) -> Setting | None:
    """One setting with the changes of several; None if fewer than two can be combined."""
    parts: list[Setting] = []
    for setting in settings:
        changed = {change for part in parts for change in part.changes}
        if not changed & set(setting.changes):
            parts.append(setting)
    if len(parts) < 2:
        return None
    return Setting(
        " + ".join(part.name for part in parts),
        merge(part.variables for part in parts),
        merge(part.config for part in parts),
        merge(part.parameters for part in parts),
        python=next((part.python for part in parts if part.python), ""),
    )


def is_set_already(setting: Setting) -> bool:
    """Whether the environment already has all variables of a setting."""
    wanted = setting.environment
    return bool(wanted) and all(os.environ.get(name) == value for name, value in wanted.items())


def _as_yaml(tree: Mapping[str, object], indent: str = "") -> list[str]:
    lines = []
    for name, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_as_yaml(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{name}: {value}")
    return lines
