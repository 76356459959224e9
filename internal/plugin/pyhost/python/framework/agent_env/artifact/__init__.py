"""Artifacts: versioned stored things."""

from .artifact import Artifact
from .docker_image import DockerImageArtifact
from .file import FileArtifact

__all__ = ["Artifact", "DockerImageArtifact", "FileArtifact"]
