"""Other people's data: one file per foreign format."""
