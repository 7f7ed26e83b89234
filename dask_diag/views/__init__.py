"""Text, bokeh figures, pages and files for other programs."""
