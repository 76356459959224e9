"""The entry points of installed distributions, for whoever asks this process what it has."""

from __future__ import annotations

from importlib import metadata
from typing import Dict, List, Set, Tuple

from .entries import ARTIFACTS, COMMANDS, ENVS, STEPS

GROUPS = (STEPS, ENVS, ARTIFACTS, COMMANDS)


def entry_points() -> List[Dict[str, str]]:
    """Entries of the groups that are served here, by group, name and value. A distribution that can't be read is passed over."""
    found: Set[Tuple[str, str, str]] = set()
    for distribution in metadata.distributions():
        try:
            points = list(distribution.entry_points)
        except Exception:  # noqa: BLE001 - what isn't readable is told by `plugin list`, which reads the files themselves
            continue
        found.update((p.group, p.name, p.value) for p in points if p.group in GROUPS)
    return [{"group": g, "name": n, "value": v} for g, n, v in sorted(found)]
