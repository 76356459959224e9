"""Steps of a strategy game in real time."""
