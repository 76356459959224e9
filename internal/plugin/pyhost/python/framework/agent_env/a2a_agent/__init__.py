"""Agents that speak A2A."""

from .a2a_agent import A2AAgent

__all__ = ["A2AAgent"]
