"""What pages share: a light and a dark theme, and figures that fit the window."""
