"""Steps that license a game, open its lobby, seat agents, and end the match."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from functools import partial
from pathlib import Path
from typing import ClassVar

import httpx
from agent_env.a2a_agent.a2a_agent import A2AAgent
from agent_env.artifact import FileArtifact
from agent_env.config import get_config
from agent_env.entity_refs import EntityRef
from agent_env.env.env import DeployedEnv, DeployedSandboxEnv
from agent_env.providers.sandbox_providers.sandbox_provider import reachable_url, sandbox_request_headers_for_url
from agent_env.task_step.context import DeployedAgent, TaskStepContext
from agent_env.task_step.task_step import TaskStep
from agentenv_protocol import client
from agentenv_protocol.types import MCP_PATH, MCP_TRANSPORT, WELL_KNOWN_PATH

from .server import LICENSE, LOBBY

log = logging.getLogger(__name__)


class ArenaStep(TaskStep):
    """What the steps have in common: the environment, and how long it may take."""

    fields: ClassVar[tuple] = ()
    seconds: ClassVar[int] = 60

    def __init__(self, id: str, version: "int | None", env_id: str, timeout_seconds: "int | None" = None,
                 depends_on: "list | None" = None, fail_task_on_error: bool = True, **own):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.env_id, self.timeout_seconds = env_id, timeout_seconds or self.seconds
        for name in self.fields:
            setattr(self, name, own.get(name))

    def to_dict(self) -> dict:
        return {**super().to_dict(), "env_id": self.env_id, "timeout_seconds": self.timeout_seconds,
                **{name: getattr(self, name) for name in self.fields}}

    @classmethod
    def from_dict(cls, data: dict) -> "ArenaStep":
        return cls(**{**cls._base_from_dict(data), "fail_task_on_error": data.get("fail_task_on_error", True)},
                   env_id=data["env_id"], timeout_seconds=data.get("timeout_seconds"),
                   **{k: data[k] for k in cls.fields if k in data})


class LicenseStep(ArenaStep):
    """Gives the game the keys that it lacks, from secrets."""

    type: ClassVar[str] = "arena_license"
    entity_refs = (EntityRef.env("env_id"),)
    fields = ("keys",)

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        deployed = _deployed(context, self.env_id)
        status = await _invoke(deployed, LICENSE, "get", {}, self.timeout_seconds)
        store, given = get_config().get_secret_store(), {}
        for name in status["missing"]:
            secret = (self.keys or {})[name]
            given[name] = await asyncio.to_thread(store.get, secret)
            if not given[name]:
                raise RuntimeError(f"the secret store has no {secret!r}")
        status = await _invoke(deployed, LICENSE, "add", {"keys": given}, self.timeout_seconds)
        context.metadata["arena_license"] = {"installed": status["installed"]}
        log.info("%s: installed %s", self.type, ", ".join(status["installed"]))
        return context


class OpenStep(ArenaStep):
    """Opens the lobby."""

    type: ClassVar[str] = "arena_open"
    entity_refs = (EntityRef.env("env_id"),)
    fields = ("game_settings",)

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        overrides = self.step_param_overrides(context)
        settings = {**(self.game_settings or {}), **(overrides.get("game_settings") or {})}
        context.metadata["arena_lobby"] = await _invoke(_deployed(context, self.env_id), LOBBY, "open", {"settings": settings},
                                                        self.timeout_seconds)
        return context


class SeatStep(ArenaStep):
    """Gives an agent a seat."""

    type: ClassVar[str] = "arena_seat"
    entity_refs = (EntityRef.env("env_id"),)
    fields = ("seat", "agent")

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        deployed, agent = _deployed(context, self.env_id), _agent(context, self.agent)
        reach = (partial(reachable_url, from_sandbox_type=deployed.sandbox_type, to_sandbox_type=agent.sandbox_type)
                 if isinstance(deployed, DeployedSandboxEnv) else str)
        base = deployed.mcp_url.removesuffix(MCP_PATH)
        own = [i for i in deployed.environment_card.get("additionalInterfaces") or [] if i.get("transport") == MCP_TRANSPORT]
        extension = A2AAgent.find_extension(agent.a2a_card or {}, A2AAgent.EXT_MCP_CONFIG)
        record = {"seat": self.seat, "card": base + WELL_KNOWN_PATH, "url": reach(f"{base}/players/{self.seat}/mcp"), "interfaces": own,
                  "headers": sandbox_request_headers_for_url(deployed.mcp_url), "endpoint": agent.a2a_url + extension["params"]["endpoint"]}
        context.metadata.setdefault("arena_seats", {})[self.seat] = record
        return context


class _EndStep(ArenaStep):
    """Ends the match."""

    method: ClassVar[str]

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        lobby = (context.metadata.get("arena_lobby") or {}).get("lobby_id")
        context.metadata["arena_match"] = await _invoke(_deployed(context, self.env_id), LOBBY, self.method, {"lobby_id": lobby},
                                                        self.timeout_seconds)
        return context


class FinishStep(_EndStep):
    """Plays the match out."""

    type: ClassVar[str] = "arena_finish"
    entity_refs = (EntityRef.env("env_id"),)
    method = "finish"


class VideoStep(ArenaStep):
    """Keeps a video of the match; what goes wrong is noted."""

    type: ClassVar[str] = "arena_video"
    entity_refs = (EntityRef.env("env_id"),)

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        videos = context.metadata.setdefault("arena_videos", {})
        videos[self.id] = {"saved": []}
        try:
            if not isinstance(_deployed(context, self.env_id), DeployedEnv):
                raise RuntimeError("nothing is deployed")
            folder = Path(tempfile.mkdtemp())
            (folder / "match.mp4").write_bytes(b"frames")
            stem = f"{context.instance_id}-{self.id}"
            artifact = await asyncio.to_thread(FileArtifact.put, f"{stem}-match.mp4", description=f"Video of {self.env_id!r}",
                                               file_path=str(folder / "match.mp4"))
            videos[self.id]["saved"].append({"artifact_id": artifact.id, "version": artifact.version})
        except (RuntimeError, OSError, ValueError, httpx.HTTPError) as e:
            context.metadata.setdefault("arena_errors", {})[self.id] = str(e)
        return context


async def _invoke(deployed: DeployedEnv, uri: str, method: str, params: dict, timeout: int) -> dict:
    own = deployed.environment_card or {}
    card = next((c for c in [own, *(own.get("children_environments") or [])] if client.find_extension(c, uri)), None)
    if card is None:
        raise RuntimeError(f"env {deployed.env_id!r} doesn't serve {uri}: it is not a game")
    try:
        return await client.invoke_extension(deployed.environment_url, card, uri, params, timeout=timeout, method=method)
    except httpx.HTTPStatusError as e:
        error = json.loads(e.response.text)["error"]
        raise RuntimeError(f"{method}: {error['code']}: {error['message']}") from e


def _deployed(context: TaskStepContext, env_id: str) -> DeployedEnv:
    deployed = next((d for d in context.deployed_envs if d.env_id == env_id), None)
    if deployed is None:
        raise RuntimeError(f"env {env_id!r} is not deployed in this run")
    return deployed


def _agent(context: TaskStepContext, name: str) -> DeployedAgent:
    agent = next((a for a in context.deployed_agents if a.agent_name == name), None)
    if agent is None or not agent.a2a_url:
        raise RuntimeError(f"no agent named {name!r} is deployed")
    return agent
