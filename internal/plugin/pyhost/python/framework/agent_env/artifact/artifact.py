"""The class of all artifacts, and of the types that plugins add."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .._stored import Stored


class Artifact(Stored):
    """An artifact as it is stored. ``Artifact.get`` answers one of any type, with the members of its body as attributes.

    A type of a plugin derives from it, sets ``type``, and names its fields with annotations; a default makes a field optional.
    """

    kind = "artifact"

    description: Optional[str] = None
    metadata: Dict[str, Any]

    _defaults = {"metadata": {}}
