"""Kinds of the tasks of a computation: their steps, the lines that built them, and seconds.

A fused task says of what it consists: dask keeps its steps under the keys that they had before. How
much of its seconds is whose is measured in some tasks of each kind, as shares that are equal are
far from the truth.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping, Sequence
from copy import copy
from itertools import chain, count, islice
from time import perf_counter, thread_time
from types import FrameType
from typing import Any, NamedTuple

from dask_diag.capture.failures import passes_errors_on
from dask_diag.capture.keys import function_of, function_of_key, is_plain
from dask_diag.capture.lines.names import BEFORE, Capture, Origin, plain_name
from dask_diag.capture.lines.sites import NOWHERE
from dask_diag.capture.task import leave_steps
from dask_diag.hooks.stack import (
    DataNode,
    GraphNode,
    Task,
    clocks_around_steps,
    execute_subgraph,
    is_lazy,
    machinery_files,
)
from dask_diag.model.codes import LineSource
from dask_diag.model.graph import is_fused, name_of_key, names_of_steps, steps_of

Graph = Mapping[Hashable, Any]
Steps = Mapping[Hashable, int]
"""The number of a step in its kind, by the key of the step in a fused task."""


class Step(NamedTuple):
    """A step of the tasks of a kind."""

    function: str
    origin: Origin


Kind = tuple[Step, ...]

_TIMED_FIRST = 32
_TIMED_LATER = 1 / 8
"""Fused tasks of a kind whose steps are timed: the first ones all, then a part, spread evenly."""
_GOLDEN = 0.6180339887498949
_MOST_DEPENDENTS = 200
"""Tasks that are looked at for the line of one whose name dask has made up."""


class StepSums:
    """Seconds and CPU seconds of the steps of the timed tasks of a kind."""

    __slots__ = ("cpu", "seconds", "timed")

    def __init__(self, steps: int) -> None:
        self.timed = 0
        self.seconds = [0.0] * steps
        self.cpu = [0.0] * steps

    @classmethod
    def of(cls, parts: Sequence[StepSums]) -> StepSums:
        """The sum of sums of one kind."""
        made = cls(len(parts[0].seconds))
        for part in parts:
            made.add(part.seconds, part.cpu, part.timed)
        return made

    def add(self, seconds: Sequence[float], cpu: Sequence[float], timed: int = 1) -> None:
        """Add the seconds of tasks."""
        self.timed += timed
        self.seconds = [a + b for a, b in zip(self.seconds, seconds, strict=True)]
        self.cpu = [a + b for a, b in zip(self.cpu, cpu, strict=True)]


class EndedKinds:
    """The kinds of the tasks of an ended computation.

    Attributes
    ----------
    kinds : sequence of Kind
    sums : mapping of int to StepSums
        By the position of the kind.
    """

    __slots__ = ("kinds", "sums")

    def __init__(self, kinds: Sequence[Kind], sums: Mapping[int, StepSums]) -> None:
        self.kinds = kinds
        self.sums = sums

    def numbers_of(self, keys: Sequence[Hashable]) -> bytes:
        """The positions of the kinds of tasks: not known any more, or not yet."""
        return array("i", [-1]).tobytes() * len(keys)

    def number_of(self, key: Hashable) -> int:
        """The position of the kind of a task: not known."""
        return -1

    def add(self, number: int, seconds: Sequence[float], cpu: Sequence[float]) -> None:
        """Ignore a task that ends later than the computation."""

    def ended(self, numbers: bytes) -> tuple[EndedKinds, bytes]:
        """Itself."""
        return self, numbers


NO_KINDS = EndedKinds((), {})
"""Of a computation without lines."""


class TaskKinds(EndedKinds):
    """The kinds of the tasks of a computation that runs.

    Parameters
    ----------
    capture : Capture
    """

    def __init__(self, capture: Capture) -> None:
        # Threads that run tasks add to the sums, while others read them.
        self.kinds: list[Kind] = []
        self.sums: dict[int, StepSums] = {}
        self._capture = capture
        self._origin_of = capture.names.origin
        self._frame: FrameType | None = None
        self._otherwise = Origin(NOWHERE, LineSource.COMPUTED)
        self._numbers: dict[Kind, int] = {}
        self._of_name: dict[Hashable, int] = {}
        self._of_key: dict[Hashable, int] = {}
        self._of_steps: dict[tuple[Hashable, ...], tuple[int, list[int]]] = {}
        self._functions: dict[str, str] = {}
        self._seen: dict[int, int] = {}
        self._lock = threading.Lock()

    def read(
        self,
        graph: dict[Hashable, Any],
        dependents: Mapping[Hashable, Any],
        frame: FrameType | None = None,
    ) -> None:
        """Find the kinds of all tasks of a final graph, and put copies to be timed into it.

        The line of the frame's callers that computes counts where no other is known; without a
        frame the graph was made before lines were captured.
        """
        self._frame = frame
        if frame is None:
            self._otherwise = BEFORE
        try:
            self._read(graph, dependents)
        finally:
            self._frame = None

    def _read(self, graph: dict[Hashable, Any], dependents: Mapping[Hashable, Any]) -> None:
        of_name = self._of_name
        to_time = []
        for key, task in graph.items():
            name = key[0] if type(key) is tuple and key else key
            if type(task) is Task and task.func is execute_subgraph:
                keys = [step for step, _, _ in steps_of(task)]
                number, positions = self._read_fused(key, keys, graph, dependents)
                if of_name.setdefault(name, number) != number:
                    self._of_key[key] = number
                if len(self.kinds[number]) > 1 and self._is_next_timed(number):
                    to_time.append((key, task, number, dict(zip(keys, positions, strict=True))))
            elif name not in of_name and type(task) is not DataNode:
                function = function_of(key, task) if is_plain(key) else self._function(name)
                step = Step(function, self._origin(key, graph, dependents))
                of_name[name] = self._number((step,))
        for key, task, number, steps in to_time:
            sink = _Sink(self, number)
            graph[key] = timed_copy(task, steps, len(self.kinds[number]), sink)

    def _read_fused(
        self,
        key: Hashable,
        steps: Sequence[Hashable],
        graph: Graph,
        dependents: Mapping[Hashable, Any],
    ) -> tuple[int, list[int]]:
        """The kind of a fused task with these steps, and the position in it of each of them."""
        # Without a step of its own, as where it hands on data, it is one itself.
        names = tuple([k[0] if type(k) is tuple and k else k for k in steps or (key,)])
        known = self._of_steps.get(names)
        if known is None:
            known = self._of_steps[names] = self._numbered(
                names, lambda name: self._origin_of(name) or self._origin(key, graph, dependents)
            )
        return known

    def _numbered(
        self, names: Sequence[Hashable], origin_of: Callable[[Hashable], Origin]
    ) -> tuple[int, list[int]]:
        """The kind of a task with these steps, and the position in it of each of them."""
        found: dict[Step, int] = {}
        steps = [Step(self._function(plain_name(name)), origin_of(name)) for name in names]
        positions = [found.setdefault(step, len(found)) for step in steps]
        return self._number(tuple(found)), positions

    def _number(self, kind: Kind) -> int:
        number = self._numbers.setdefault(kind, len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(self._capture.shared(kind, kind))
        return number

    def _function(self, name: Hashable) -> str:
        """The function of a step, in few steps for names that differ in a token."""
        if type(name) is str:
            cut = name[:-37] if name[-37:-36] == "-" else name[:-33]
            if name[len(cut) : len(cut) + 1] == "-":
                known = self._functions.get(cut)
                if known is None:
                    known = self._functions[cut] = function_of_key(name)
                return known
        return function_of_key(name)

    def _origin(self, key: Hashable, graph: Graph, dependents: Mapping[Hashable, Any]) -> Origin:
        """Where a task is from: its name says so, or tasks that depend on it, or nothing does."""

        def names_of(key: Hashable) -> list[Hashable]:
            return [name_of_key(key), *names_of_steps(graph.get(key))]

        known = self._origin_of(name_of_key(key))
        return known or self._origin_of_dependents(key, dependents, names_of)

    def _origin_of_dependents(
        self,
        first: Hashable,
        dependents: Mapping[Hashable, Collection[Hashable]],
        names_of: Callable[[Hashable], Sequence[Hashable]],
    ) -> Origin:
        """Where the nearest dependents are from that have a name that says so."""
        following, seen = [first], {first}
        while following and len(seen) < _MOST_DEPENDENTS:
            for dependent in dependents.get(following.pop(0), ()):
                if dependent in seen:
                    continue
                seen.add(dependent)
                following.append(dependent)
                found = next(filter(None, map(self._origin_of, names_of(dependent))), None)
                if found is not None:
                    return found if found is BEFORE else Origin(found.site, LineSource.DEPENDENTS)
        if self._frame is None:
            return self._otherwise
        return Origin(self._capture.here(self._frame), LineSource.COMPUTED)

    def _is_next_timed(self, number: int) -> bool:
        seen = self._seen.get(number, 0)
        self._seen[number] = seen + 1
        return _is_timed(seen)

    def add(self, number: int, seconds: Sequence[float], cpu: Sequence[float]) -> None:
        """Add the seconds of the steps of a task, if they are those of its kind."""
        if not 0 <= number < len(self.kinds) or len(seconds) != len(self.kinds[number]):
            return
        with self._lock:
            sums = self.sums.get(number)
            if sums is None:
                sums = self.sums[number] = StepSums(len(seconds))
            sums.add(seconds, cpu)

    def number_of(self, key: Hashable) -> int:
        """The position of the kind of a task; -1 if not known."""
        number = self._of_key.get(key)
        return self._of_name.get(name_of_key(key), -1) if number is None else number

    def numbers_of(self, keys: Sequence[Hashable]) -> bytes:
        """The positions of the kinds of tasks, as integers of 4 bytes."""
        if self._of_key:
            return array("i", map(self.number_of, keys)).tobytes()
        get = self._of_name.get
        # Without a call of Python for each task.
        numbers = [get(key[0] if type(key) is tuple and key else key, -1) for key in keys]
        return array("i", numbers).tobytes()

    def ended(self, numbers: bytes) -> tuple[EndedKinds, bytes]:
        """Kinds and positions without keys; one object for all computations that are alike."""
        ended = EndedKinds(tuple(self.kinds), self.sums or {})
        return ended if self.sums else self._capture.shared(ended.kinds, ended), (
            self._capture.shared(numbers, numbers)
        )


class NamedKinds(TaskKinds):
    """The kinds of tasks whose graphs are elsewhere, on the scheduler of a cluster.

    Parameters
    ----------
    capture : Capture
    """

    def __init__(self, capture: Capture) -> None:
        super().__init__(capture)
        self._steps_of_name: dict[Hashable, Sequence[Hashable]] = {}
        self._dependents: dict[Hashable, Sequence[Hashable]] = {}
        self._positions: dict[int, list[int]] = {}

    def learn(
        self, names: Mapping[Hashable, tuple[Sequence[Hashable], Sequence[Hashable]]]
    ) -> None:
        """Take over names of tasks, with the names of steps and of dependents."""
        for name, (steps, dependents) in names.items():
            self._steps_of_name[name] = tuple(steps)
            self._dependents[name] = tuple(dependents)

    def numbers_of(self, keys: Sequence[Hashable]) -> bytes:
        """The positions of the kinds of tasks, as integers of 4 bytes."""
        if len(self._of_name) > _MOST_NAMES:
            self._of_name.clear()
        return array("i", map(self.number_of, keys)).tobytes()

    def number_of(self, key: Hashable) -> int:
        """The position of the kind of a task."""
        name = name_of_key(key)
        number = self._of_name.get(name)
        if number is None:
            steps: Sequence[Hashable] = self._steps_of_name.get(name) or (name,)
            number, positions = self._numbered(
                steps, lambda step: self._origin_of(step) or self._origin_of_name(name)
            )
            self._of_name[name] = number
            self._positions[number] = positions
        return number

    def _origin_of_name(self, name: Hashable) -> Origin:
        steps = self._steps_of_name
        return self._origin_of_dependents(
            name, self._dependents, lambda name: (name, *steps.get(name, ()))
        )

    def add_packed(self, key: Hashable, steps: bytes) -> None:
        """Add the seconds of the steps of a task, as a worker has packed them."""
        number = self.number_of(key)
        values, positions = array("d", steps), self._positions[number]
        count = len(self.kinds[number])
        if len(values) == 2 * len(positions):
            seconds, cpu = [0.0] * count, [0.0] * count
            for n, position in enumerate(positions):
                seconds[position] += values[n]
                cpu[position] += values[len(positions) + n]
            self.add(number, seconds, cpu)


_MOST_NAMES = 50_000


class StepTiming:
    """Which fused tasks of a worker are timed, and how: those whose names are alike count together.

    `leave_steps` gets the seconds of each name of the steps, in the order of the first of each.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}

    def copy_of(self, task: Any) -> Any:
        """A copy that times its steps, or the task itself."""
        if not is_fused(task):
            return task
        if len(self._seen) > _MOST_NAMES:
            self._seen.clear()
        name = name_of_key(task.key)
        seen = self._seen[name] = self._seen.get(name, -1) + 1
        if not _is_timed(seen):
            return task
        names = {name: number for number, name in enumerate(names_of_steps(task))}
        steps = {key: names[name_of_key(key)] for key, _, _ in steps_of(task)}
        return timed_copy(task, steps, len(names), leave_steps) if len(names) > 1 else task


def _is_timed(seen: int) -> bool:
    return seen < _TIMED_FIRST or seen * _GOLDEN % 1 < _TIMED_LATER


class _Sink:
    """Adds the seconds of the steps of a task to those of its kind.

    In another process they are left, for the task to send them with its result.
    """

    __slots__ = ("_kinds", "_number")

    def __init__(self, kinds: TaskKinds, number: int) -> None:
        self._kinds = kinds
        self._number = number

    def __call__(self, seconds: list[float], cpu: list[float]) -> None:
        self._kinds.add(self._number, seconds, cpu)

    def __reduce__(self) -> tuple[object, ...]:
        return _in_another_process, ()


def _in_another_process() -> Callable[..., None]:
    return leave_steps


def timed_copy(task: Any, steps: Steps, count: int, sink: Callable[..., None]) -> Any:
    """A copy of a fused task that times its steps."""
    timed = copy(task)
    timed.func = TimedSubgraph(steps, count, sink)
    return timed


class TimedSubgraph:
    """Runs the steps of a fused task, each between two readings of the clocks."""

    __name__ = "_execute_subgraph"

    def __init__(self, steps: Steps, count: int, sink: Callable[..., None]) -> None:
        self._steps = steps
        self._count = count
        self._sink = sink

    def __reduce__(self) -> tuple[object, ...]:
        return TimedSubgraph, (self._steps, self._count, self._sink)

    def __call__(
        self, graph: Graph, result: Hashable, inputs: Sequence[Hashable], *values: object
    ) -> object:
        """Run the steps as dask does."""
        run = _Run(self._steps, self._count)
        returned = execute_subgraph(run.wrapped(graph, result), result, inputs, *values)
        run.end()
        self._sink(run.seconds, run.cpu)
        return returned


class _Run:
    """The seconds of the steps in one run of a fused task."""

    __slots__ = ("_steps", "cpu", "iterated", "seconds")

    def __init__(self, steps: Steps, count: int) -> None:
        self._steps = steps
        self.seconds = [0.0] * count
        self.cpu = [0.0] * count
        self.iterated: dict[Hashable, _Iterated] = {}

    def wrapped(
        self, graph: Graph, result: Hashable, is_inner: bool = False
    ) -> dict[Hashable, Any]:
        """The steps of a graph, with clocks around each."""
        made: dict[Hashable, Any] = {}
        for key, step in graph.items():
            is_returned = key == result and not is_inner
            if is_fused(step):
                nested = copy(step)
                steps, returned = step.args[:2]
                nested.args = (self.wrapped(steps, returned, not is_returned), *step.args[1:])
                made[key] = nested
            elif isinstance(step, Task):
                made[key] = _TimedStep(key, step, self, self._steps.get(key, 0), is_returned)
            else:
                made[key] = step
        return made

    def end(self) -> None:
        """Move the seconds of items from the steps that asked for them to those that made them."""
        for timed in self.iterated.values():
            if timed.consumer >= 0:
                for sums, part in (self.seconds, timed.seconds), (self.cpu, timed.cpu):
                    sums[timed.maker] += part
                    sums[timed.consumer] -= part
        self.seconds = [max(0.0, seconds) for seconds in self.seconds]
        self.cpu = [max(0.0, cpu) for cpu in self.cpu]


class _TimedStep(GraphNode):
    """A step of a fused task, with clocks around it."""

    __slots__ = ("_is_returned", "_number", "_run", "_step")

    def __init__(self, key: Any, step: Any, run: _Run, number: int, is_returned: bool) -> None:
        self.key = key
        self._step = step
        self._run = run
        self._number = number
        self._is_returned = is_returned

    @property
    def dependencies(self) -> frozenset[Hashable]:
        """The keys of the results taken by the step."""
        return self._step.dependencies  # type: ignore[no-any-return]

    def __call__(self, values: Any = ()) -> Any:
        """Run the step and read the clocks around it."""
        run, number = self._run, self._number
        for key in run.iterated and self._step.dependencies:
            if key in run.iterated:
                run.iterated[key].consumer = number
        start, cpu = perf_counter(), thread_time()
        result = self._step(values)
        run.cpu[number] += thread_time() - cpu
        run.seconds[number] += perf_counter() - start
        if is_lazy(result) and not self._is_returned:
            timed = run.iterated[self.key] = _Iterated(number)
            return timed.over(result)
        return result


_ITEMS_TIMED = 32
_ITEMS_BETWEEN = 992
_SLOW_ITEM = 1e-5
"""Seconds of an item, on average, from which on all are timed."""
_READING = min(-(perf_counter() - perf_counter()) for _ in range(9))
"""Seconds that a reading of the clock takes."""
_NO_ITEMS: dict[int, Any] = {}


class _Items(chain[Any]):
    """The items of a lazy iterator, in parts; pickled or copied, it is that iterator again.

    The result of a task may hold it.
    """

    plain: Iterator[Any]

    def __reduce__(self) -> tuple[object, ...]:
        return iter, (self.plain,)


class _Iterated:
    """The seconds of the items of a lazy iterator, in whatever step asks for them.

    Attributes
    ----------
    maker, consumer : int
        The step that made the iterator, and the one that goes through it; -1 if none does.
    """

    __slots__ = ("_is_over", "consumer", "cpu", "maker", "seconds")

    def __init__(self, maker: int) -> None:
        self.seconds = self.cpu = 0.0
        self.maker = maker
        self.consumer = -1
        self._is_over = False

    def over(self, items: Iterator[Any]) -> _Items:
        """The same items, with clocks around some."""
        made: Any = _Items.from_iterable(self._parts(items))
        made.plain = items
        return made  # type: ignore[no-any-return]

    def _parts(self, items: Iterator[Any]) -> Generator[Iterator[Any]]:
        """The same items in parts: a few with clocks, and many without if they are quick."""
        while True:
            seconds, cpu = self.seconds, self.cpu
            yield self._timed(items)
            seconds, cpu = self.seconds - seconds, self.cpu - cpu
            if self._is_over:
                return
            if seconds < _ITEMS_TIMED * _SLOW_ITEM:
                numbers = count()
                # The items, counted without a step of Python: none is in a dict without entries.
                yield map(_NO_ITEMS.get, numbers, islice(items, _ITEMS_BETWEEN))
                untimed = (next(numbers) - 1) / _ITEMS_TIMED
                self._add(seconds * untimed, cpu * untimed)

    def _timed(self, items: Iterator[Any]) -> Generator[Any]:
        """Some items, with clocks around each."""
        # No reference to an item stays here while its consumer has it.
        item: list[Any] = []
        seconds = cpu = 0.0
        for _ in range(_ITEMS_TIMED):
            # The clock that takes longer to read is read outside the other.
            began, start = thread_time(), perf_counter()
            try:
                item.append(next(items))
            except StopIteration:
                self._is_over = True
                self._add(seconds + perf_counter() - start, cpu + thread_time() - began)
                return
            seconds += perf_counter() - start - _READING
            cpu += thread_time() - began
            yield item.pop()
        self._add(seconds, cpu)

    def _add(self, seconds: float, cpu: float) -> None:
        """Add the seconds of items; CPU seconds lie within seconds."""
        self.seconds += max(0.0, seconds)
        self.cpu += min(cpu, max(0.0, seconds))


machinery_files.add(__file__)
clocks_around_steps.add(__file__)
passes_errors_on.update(
    id(function.__code__)
    for function in (TimedSubgraph.__call__, _TimedStep.__call__, _Iterated._timed)
)
