"""What pages share: paper in the scheme of the reader's system, and figures that fit it."""
