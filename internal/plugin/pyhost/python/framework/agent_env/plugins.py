"""What plugins ask about themselves."""

from __future__ import annotations

from typing import Any, Dict

from .config import plugin_settings


def settings(distribution: str) -> Dict[str, Any]:
    """The table ``[plugins.<distribution>]`` of the configuration, with references to secrets resolved; {} when there is none."""
    return plugin_settings(distribution)
