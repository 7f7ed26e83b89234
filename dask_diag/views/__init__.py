"""What draws: recordings in, text and bokeh figures out; imported when first used."""
