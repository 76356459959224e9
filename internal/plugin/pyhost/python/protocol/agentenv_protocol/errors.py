"""What calls to servers raise. Where httpx was imported, also errors of its classes, since plugins that use it catch those."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, Optional


class Response:
    """What a server answered: ``status_code``, ``headers`` and the bytes ``content``."""

    def __init__(self, status_code: int, headers: Dict[str, str], content: bytes):
        self.status_code, self.headers, self.content = status_code, headers, content

    @property
    def text(self) -> str:
        """The content as text; what is no UTF-8 is replaced."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The content as JSON. Raises ValueError."""
        return json.loads(self.content)


class HTTPStatusError(RuntimeError):
    """A server refused. ``code``, ``retryable`` and ``applied`` are what its answer says in the words of the environment protocol."""

    def __init__(self, message: str, response: Any):
        RuntimeError.__init__(self, message)
        self.response = response
        error = _error(response)
        self.code: Optional[str] = error.get("code")
        self.retryable = error.get("retryable") is True
        self.applied: str = error.get("applied") or "unknown"


class Unreachable(ConnectionError):
    """A server that can't be reached, or that breaks off."""


class Late(TimeoutError):
    """A server that doesn't answer in time."""


class DataPlaneError(RuntimeError):
    """A refusal of the data plane: the number ``code`` of JSON-RPC, and the word ``reason`` for a handler that failed."""

    def __init__(self, message: str, code: int, reason: Optional[str] = None):
        super().__init__(message)
        self.code, self.reason = code, reason


def refused(method: str, url: str, response: Response) -> Exception:
    """The error for an answer that isn't good."""
    error = _error(response)
    said = f"{error['code']}: {error['message']}" if error.get("code") and error.get("message") else response.text[:2000]
    message = f"{method} {shown(url)}: HTTP {response.status_code}: {said}"
    httpx = sys.modules.get("httpx")
    if httpx is None:
        return HTTPStatusError(message, response)
    request = httpx.Request(method, url)
    theirs = httpx.Response(response.status_code, headers={"content-type": response.headers.get("content-type", "")}, content=response.content, request=request)

    class StatusError(HTTPStatusError, httpx.HTTPStatusError):  # type: ignore[misc, name-defined]
        """A refusal that both families of errors know."""

        def __init__(self) -> None:
            httpx.HTTPStatusError.__init__(self, message, request=request, response=theirs)
            HTTPStatusError.__init__(self, message, theirs)

    StatusError.__name__ = "HTTPStatusError"
    return StatusError()


def failed(method: str, url: str, error: Exception) -> Exception:
    """The error for a request that got no answer."""
    late = isinstance(error, TimeoutError) or "timed out" in str(error)
    message = f"{method} {shown(url)}: {'no answer in time' if late else error or type(error).__name__}"
    httpx = sys.modules.get("httpx")
    ours = Late if late else Unreachable
    if httpx is None:
        return ours(message)

    class Failure(ours, httpx.ReadTimeout if late else httpx.ConnectError):  # type: ignore[misc, valid-type, name-defined]
        """A failure that both families of errors know."""

        def __init__(self) -> None:
            Exception.__init__(self, message)
            self._request = httpx.Request(method, url)

        def __str__(self) -> str:
            return message

    Failure.__name__ = ours.__name__
    return Failure()


def shown(url: str) -> str:
    """``url`` as messages may show it: without its path's secrets and its query."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    host = host.rpartition("@")[2]
    path = path.partition("?")[0]
    parts = path.split("/")
    if len(parts) > 1 and parts[0] == "c":
        path = "/".join(parts[2:])
    return f"{scheme}://{host}/{path}"


def _error(response: Any) -> Dict[str, Any]:
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
