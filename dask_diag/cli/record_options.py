"""The options of ``dask-diag run`` that say what is recorded."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dask_diag.cli.metric import function_named
from dask_diag.profilers.record import record

__all__ = ["RecordOptions"]


@dataclass(frozen=True)
class RecordOptions:
    """What is recorded; each has the name of its option."""

    metric: str | None
    metric_name: str | None
    unit: str | None
    no_code: bool
    interval: float
    force: bool
    waits: bool
    trace_memory: bool

    def recorder(self, path: str) -> record:
        """What records into that file.

        The function of a metric is imported from where the program finds its modules.
        """
        return record(
            path,
            overwrite=self.force,
            interval=self.interval,
            waits=self.waits,
            metric=None if self.metric is None else function_named(self.metric),
            metric_name=self.metric_name,
            unit=self.unit,
            code=not self.no_code,
            trace_memory=self.trace_memory,
        )

    def arguments(self) -> list[str]:
        """The options as they are written on the command line."""
        texts = []
        for field in fields(self):
            name, value = f"--{field.name.replace('_', '-')}", getattr(self, field.name)
            if field.name == "waits":
                texts.append(name if value else "--no-waits")
            elif isinstance(value, bool):
                texts += [name] if value else []
            elif value is not None:
                texts.append(f"{name}={value}")
        return texts
