"""Stored agents, and what their cards say."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Optional

from agentenv_protocol import client

from .._stored import Stored, reference


class A2AAgent(Stored):
    """An agent as it is stored."""

    kind: ClassVar[str] = "agent"
    type: ClassVar[str] = "a2a_agent"

    EXT_AGENT_CONFIG: ClassVar[str] = "urn:agentenv:agent-config/v1"
    EXT_MCP_CONFIG: ClassVar[str] = "urn:agentenv:mcp-config/v1"
    EXT_SKILL_CONFIG: ClassVar[str] = "urn:agentenv:skill-config/v1"
    EXT_TRAJECTORY: ClassVar[str] = "urn:agentenv:trajectory/v1"

    _defaults = {"metadata": {}}

    @staticmethod
    def find_extension(card: Any, uri: str) -> Optional[Dict[str, Any]]:
        """What an agent's card says of an extension; None when it doesn't have it."""
        return client.find_extension(card, uri)

    @classmethod
    def put(
        cls,
        id: str,
        docker_image_artifact: Any = None,
        description: Optional[str] = None,
        metadata: Optional[Dict[str, Any]] = None,
        **more: Any,
    ) -> "A2AAgent":
        """Stores a new version of an agent that the image of an artifact serves."""
        return cls.store(id, {**reference(docker_image_artifact, "docker_image_artifact"), "description": description, "metadata": metadata, **more})
