"""Steps and a command of a strategy game."""
