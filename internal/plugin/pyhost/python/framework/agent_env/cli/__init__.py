"""``python -m agent_env.cli`` is ``agent-env``."""
