"""A game environment's steps. The server of the game is defined beside them, as such packages do."""

from .server import ArenaEnv

__all__ = ["ArenaEnv"]
