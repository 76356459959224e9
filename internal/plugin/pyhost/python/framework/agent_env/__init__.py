"""What AgentEnv offers to plugins that are written in Python.

This package is a thin client of the running ``agent-env``: it holds base classes that plugins derive from, and asks the program for all that
needs it. It starts no environments, opens no stores and reads no configuration itself.
"""

__version__ = "0.9.1375"
