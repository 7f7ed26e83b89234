"""The page of a recording while it is made."""
