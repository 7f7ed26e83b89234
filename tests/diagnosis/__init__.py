"""Programs with one known cause each, to see how right findings are: `make truth`."""
