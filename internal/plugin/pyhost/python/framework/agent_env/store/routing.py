"""Which store an id leads to. All of them lead to the one that agent-env was started with."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator


@contextlib.contextmanager
def namespace_routing(*_: Any, **__: Any) -> Iterator[None]:
    """A context in which ids are looked for as everywhere."""
    yield
