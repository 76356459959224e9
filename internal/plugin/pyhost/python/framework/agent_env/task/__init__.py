"""Tasks, as far as their runs can be read."""
