"""Images of containers as artifacts."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .artifact import Artifact


class DockerImageArtifact(Artifact):
    """An artifact that is an image."""

    type = "docker_image"

    _defaults = {"image_name": None, "build_context_path": None, "dockerfile_path": None}

    @classmethod
    def put(
        cls,
        id: str,
        image_name: str,
        description: Optional[str] = None,
        build_context_path: Optional[str] = None,
        dockerfile_path: Optional[str] = None,
        metadata: Optional[Dict[str, Any]] = None,
        **more: Any,
    ) -> "DockerImageArtifact":
        """Stores an image of the engine by its name. AgentEnv reads it from the engine."""
        body = {"image_name": image_name, "description": description, "build_context_path": build_context_path, "dockerfile_path": dockerfile_path, "metadata": metadata}
        return cls.store(id, {**body, **more})
