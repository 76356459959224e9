"""Requests over HTTP with the standard library, for code that runs in an event loop.

No redirects are followed and no proxies used. A request that is cancelled is broken off.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional
from urllib.parse import urlencode, urlsplit

from .errors import Response, failed, refused

# What sends is imported by the first request: most processes that have these modules loaded send none, and it takes as long as all the rest.
if TYPE_CHECKING:
    import http.client

MAX_ANSWER = 512 << 20
"""Bytes of an answer."""

HeadersFor = Callable[[str], Dict[str, str]]

_providers: List[HeadersFor] = []


def provide_headers(provider: HeadersFor) -> None:
    """Adds someone who knows which headers an address needs."""
    _providers.append(provider)


def headers_for(url: str) -> Dict[str, str]:
    """The headers that an address needs to be reached; mostly none."""
    out: Dict[str, str] = {}
    for provider in _providers:
        out.update(provider(url))
    return out


async def request(method: str, url: str, *, body: Any = None, query: Optional[Dict[str, Any]] = None, headers: Optional[Dict[str, str]] = None, timeout: Optional[float] = 30) -> Response:
    """Sends a request and answers what came, whatever its status. ``body`` is sent as JSON. Raises Unreachable and Late."""
    import asyncio

    if query:
        url += ("&" if "?" in url else "?") + urlencode({k: v if isinstance(v, str) else json.dumps(v) for k, v in query.items()})
    data = None if body is None else json.dumps(body).encode()
    sent = {"Accept": "application/json", **({"Content-Type": "application/json"} if data is not None else {})}
    exchange = _Exchange(method, url, data, {**sent, **headers_for(url), **(headers or {})}, timeout)
    try:
        return await asyncio.to_thread(exchange.run)
    except asyncio.CancelledError:
        exchange.abort()
        raise


async def json_of(method: str, url: str, **options: Any) -> Any:
    """As request, for a good answer's JSON. Raises HTTPStatusError for every other answer."""
    response = await request(method, url, **options)
    if response.status_code // 100 != 2:
        raise refused(method, url, response)
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError as e:
        raise refused(method, url, response) from e


class _Exchange:
    """One request on a connection of its own, that another thread may break off."""

    def __init__(self, method: str, url: str, data: Optional[bytes], headers: Dict[str, str], timeout: Optional[float]):
        import http.client
        import ssl

        self._method, self._url, self._data, self._headers = method, url, data, headers
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no http address")
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=ssl.create_default_context())
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        self._lock = threading.Lock()
        self._aborted = False

    def run(self) -> Response:
        import http.client

        try:
            self._connection.connect()
            with self._lock:
                if self._aborted:
                    raise ConnectionAbortedError("the request was cancelled")
            self._connection.request(self._method, self._target, self._data, self._headers)
            answer = self._connection.getresponse()
            content = answer.read(MAX_ANSWER + 1)
            if len(content) > MAX_ANSWER:
                raise ConnectionError(f"the answer is larger than {MAX_ANSWER} bytes")
            return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, content)
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise failed(self._method, self._url, e) from None
        finally:
            self._connection.close()

    def abort(self) -> None:
        import socket

        with self._lock:
            self._aborted = True
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
