"""All planted programs."""

from __future__ import annotations

from tests.diagnosis import (
    programs_calls,
    programs_clusters,
    programs_data,
    programs_elsewhere,
    programs_field,
    programs_short,
    programs_tasks,
    programs_threads,
    programs_typical,
    programs_waits,
)
from tests.diagnosis.program import Program

_ALL = [
    program
    for module in (
        programs_tasks,
        programs_waits,
        programs_data,
        programs_typical,
        programs_short,
        programs_elsewhere,
        programs_field,
        programs_clusters,
        programs_threads,
        programs_calls,
    )
    for program in module.PROGRAMS
]
PROGRAMS: dict[str, Program] = {program.name: program for program in _ALL}
if len(PROGRAMS) < len(_ALL):
    raise ValueError("expected each program once, found a name twice")
