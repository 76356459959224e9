"""Environments that are one server in a container."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .._stored import reference
from .env import Env


class MCPServerEnv(Env):
    """An environment that is one MCP server."""

    type = "mcp_server"

    @classmethod
    def put(
        cls,
        id: str,
        docker_image_artifact: Any = None,
        environment_name: Optional[str] = None,
        env_provider_type: Optional[str] = None,
        description: Optional[str] = None,
        metadata: Optional[Dict[str, Any]] = None,
        **more: Any,
    ) -> "MCPServerEnv":
        """Stores a new version of an environment that the image of an artifact serves."""
        body = {"environment_name": environment_name, "env_provider_type": env_provider_type, "description": description, "metadata": metadata}
        return cls.store(id, {**reference(docker_image_artifact, "docker_image_artifact"), **body, **more})
