"""The Python host: serves the Python classes of installed distributions over the plugin protocol.

An *entry* is an entry point of a distribution (group, name, value). A *call* is one request and its answer. This package reads
requests, imports what entries name and runs it; what plugins see of AgentEnv is in ``agent_env`` and ``agentenv_protocol``.
"""
