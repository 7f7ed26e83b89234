"""What is asked of the stacks that were sampled: a tree of calls, a summary, a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dask_diag.profilers.base import Diagnostic

if TYPE_CHECKING:
    from dask_diag.model.table import Table
    from dask_diag.views.text import Summary

__all__ = ["StackQueries"]


class StackQueries(Diagnostic):
    """A diagnostic whose recording has samples of stacks."""

    def tree(
        self,
        start: float | None = None,
        stop: float | None = None,
        function: str | None = None,
        key: object = None,
        root: str | None = None,
    ) -> Table:
        """The calls that were sampled, as a tree.

        Parameters
        ----------
        start, stop : float, optional
            The range of time, in seconds of ``time.perf_counter()``.
        function : str, optional
            Only tasks of this function, which is the prefix of their keys.
        key : object, optional
            Only the task of this key, as it is or as text; ``""`` for tasks not tracked by key.
        root : str, optional
            Only samples of this root, one of `dask_diag.schema.ROOTS`; by default of all.

        Returns
        -------
        Table
            A row per node: see `dask_diag.analysis.call_tree.tree`.

        Raises
        ------
        DiagnosticError
            If no sample has that key or is of that function, there is no such root, or a time is
            no number.
        """
        from dask_diag.analysis.call_tree import tree
        from dask_diag.analysis.selection import Selection

        return tree(self.recording, Selection(start, stop, function, key, root))

    def summary(
        self,
        start: float | None = None,
        stop: float | None = None,
        function: str | None = None,
        key: object = None,
        root: str | None = None,
    ) -> Summary:
        """The ten lines that computed longest, and the three that waited longest.

        Parameters
        ----------
        start, stop, function, key, root : optional
            Which samples, as in `tree`; the root is by default ``tasks``.

        See Also
        --------
        dask_diag.summary : what several diagnostics measured over one block.
        """
        from dask_diag.analysis.selection import Selection
        from dask_diag.views.plots.flame.summary import flame_summary

        return flame_summary(self, selection=Selection(start, stop, function, key, root))

    def export(
        self,
        path: str | os.PathLike[str],
        start: float | None = None,
        stop: float | None = None,
        function: str | None = None,
        key: object = None,
        *,
        root: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the stacks into a file that flame graph viewers open.

        Parameters
        ----------
        path : str or path
            ``*.speedscope.json``, or ``*.collapsed`` or ``*.folded``, which says the format.
        start, stop, function, key, root : optional
            Which samples, as in `tree`.
        overwrite : bool, optional
            Whether a file that is there may be replaced.

        Raises
        ------
        DiagnosticError
            If the ending says no known format, the folder does not exist, a file is there and may
            not be replaced, or there are no such samples.
        """
        from dask_diag.analysis.selection import Selection
        from dask_diag.views.exports.stacks import export_stacks

        selection = Selection(start, stop, function, key, root)
        export_stacks(self.recording, path, selection, overwrite=overwrite)
