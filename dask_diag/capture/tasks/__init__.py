"""One task: how it is measured, wherever it runs, and what is kept of it."""
