"""What a run of coffea processed: chunks of events, branches of files, and its own metrics."""

from dask_diag.analysis.chunks import attach, branches, chunks

__all__ = ["attach", "branches", "chunks"]
