"""What diagnostics have in common that record clusters of distributed, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dask_diag.capture.cluster.recorder import ClusterRecorder
from dask_diag.profilers.base import Diagnostic

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.capture.cluster.log import ClusterLog
    from dask_diag.capture.cluster.messages import Wants
    from dask_diag.model.recording import Recording
    from dask_diag.model.table import Table

__all__ = ["OnClusters"]


class OnClusters(Diagnostic):
    """A diagnostic that joins every client of this process while it is active.

    Attributes
    ----------
    clusters : ClusterRecorder
    """

    def __init__(self) -> None:
        self.clusters = ClusterRecorder(self._fault, self._received)
        self._joins = True
        self._sharing: Sequence[OnClusters] = ()
        super().__init__()

    def share_clusters(self, others: Sequence[OnClusters]) -> None:
        """Join clusters for others, too, which are active while this diagnostic is.

        They read what it pulls: all that any of them wants, and each row of it once.
        """
        self._sharing = others
        for other in others:
            other.clusters, other._joins = self.clusters, False

    def _wants(self) -> Wants:
        """What it collects on clusters."""
        raise NotImplementedError

    def _received(self, log: ClusterLog) -> None:
        """Something was pulled; this is called on the event loop of a client."""

    async def __aenter__(self) -> Self:
        """Enter on the event loop of an asynchronous client."""
        self.__enter__()
        await self.clusters.joined()
        return self

    async def __aexit__(self, *args: object) -> None:
        """Leave, and wait until all is pulled from clusters."""
        self.__exit__(*args)
        await self.clusters.finish()

    def clear(self) -> None:
        """Forget what was recorded, except of computations that are running now."""
        super().clear()
        if self._joins:
            self.clusters.clear()

    def notices(self) -> list[str]:
        """What a reader must know besides the numbers."""
        logs = self.clusters.logs if self._joins else ()
        return super().notices() + [text for log in logs for text in log.notices()]

    def _is_on_a_cluster(self) -> bool:
        return bool(self.clusters.logs)

    def _activate(self) -> None:
        super()._activate()
        if self._joins:
            self._guarded("to join clusters", self._join_clusters)

    def _join_clusters(self) -> None:
        wants = self._wants()
        for other in self._sharing:
            wants.update(other._wants())
        self.clusters.start(wants)

    def leave_clusters(self) -> None:
        """Pull what is new, and leave, as it does when it is not active any more."""
        self._guarded("to leave clusters", self.clusters.stop)

    def _deactivate(self) -> None:
        if self._joins:
            self.leave_clusters()
        super()._deactivate()

    def _with_clusters(self, recording: Recording) -> Recording:
        """A recording of this process, with what was recorded of clusters."""
        if not self.clusters.logs:
            return recording
        from dask_diag.builders.cluster import with_clusters

        self.clusters.pull()
        logs = self.clusters.logs
        return with_clusters(recording, logs, self._sampled_on_clusters(logs))

    def _sampled_on_clusters(self, logs: Sequence[ClusterLog]) -> dict[str, Table] | None:
        """The tables of what it sampled on clusters; None if it records the tasks there."""
        return None
