"""First on the path of programs that tests run: dask imports distributed where it is installed.

That takes a quarter of a second, and none of these programs uses it.
"""

raise ModuleNotFoundError("distributed is hidden from this program", name="distributed")
