"""Runs what a plugin wrote, coroutine or plain function, on the thread of its call."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
from typing import Any, Awaitable, Callable, Optional

from .rpc import Request


class _ContextExecutor(concurrent.futures.ThreadPoolExecutor):
    """Threads that know which call they work for."""

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


async def awaited(value: Any) -> Any:
    """What an awaitable gives; another value itself."""
    return await value if inspect.isawaitable(value) else value


def run(function: Callable[[], Any], request: Optional[Request] = None) -> Any:
    """Runs ``function`` inside an event loop of its own and answers what it returns or its coroutine gives.

    Cancelling ``request`` cancels the coroutine, which then raises asyncio.CancelledError here. A plain function can't be stopped and isn't.
    """
    return asyncio.run(_run(function, request))


async def _run(function: Callable[[], Any], request: Optional[Request]) -> Any:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(_ContextExecutor(max_workers=32, thread_name_prefix="agentenv-work"))
    value = function()
    if not inspect.isawaitable(value):
        return value
    task = asyncio.ensure_future(_as_coroutine(value))
    if request is not None:
        request.on_cancel(lambda: _cancel(loop, task))
    try:
        return await task
    finally:
        if request is not None:
            request.on_cancel(None)


async def _as_coroutine(value: Awaitable[Any]) -> Any:
    return await value


def _cancel(loop: asyncio.AbstractEventLoop, task: "asyncio.Future[Any]") -> None:
    try:
        loop.call_soon_threadsafe(task.cancel)
    except RuntimeError:
        pass  # the loop has ended, and with it the task
