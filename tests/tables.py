"""Names that files import from here; they are in `recordings`."""

from .recordings import filled_table, with_columns, with_tables

__all__ = ["filled_table", "with_columns", "with_tables"]
