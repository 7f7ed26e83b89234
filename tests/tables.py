"""Names that files import from here; they are in `recordings`."""

from .recordings import columns_of, filled_table, with_columns, with_tables

__all__ = ["columns_of", "filled_table", "with_columns", "with_tables"]
