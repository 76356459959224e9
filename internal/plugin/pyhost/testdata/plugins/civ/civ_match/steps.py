"""Steps that start a game, wait for its end, and keep its recording."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import uuid
from typing import ClassVar

from agent_env.artifact import FileArtifact
from agent_env.entity_refs import EntityRef
from agent_env.env.env import DeployedEnv
from agent_env.task_step.context import TaskStepContext
from agent_env.task_step.task_step import TaskStep
from agentenv_protocol import client

log = logging.getLogger(__name__)

NEW_GAME = "urn:civ:new-game/v1"
RECORDING = "urn:civ:recording/v1"


def _card(deployed: DeployedEnv, uri: str) -> dict:
    own = deployed.environment_card or {}
    found = next((c for c in [own, *(own.get("children_environments") or [])] if client.find_extension(c, uri)), None)
    if found is None:
        raise RuntimeError(f"env {deployed.env_id!r} does not advertise {uri}")
    return found


class StartStep(TaskStep):
    """Starts a game with a seat for each deployed agent."""

    type: ClassVar[str] = "civ_start"
    entity_refs = (EntityRef.env("env_id"),)

    def __init__(self, id, version, env_id, turns, seed=1, depends_on=None, fail_task_on_error=True):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.env_id, self.turns, self.seed = env_id, turns, seed
        if turns < 1:
            raise ValueError(f"civ_start turns must be at least 1, got {turns}")

    def to_dict(self) -> dict:
        return {**super().to_dict(), "env_id": self.env_id, "turns": self.turns, "seed": self.seed}

    @classmethod
    def from_dict(cls, data: dict) -> "StartStep":
        return cls(**cls._base_from_dict(data), env_id=data["env_id"], turns=data["turns"], **{k: data[k] for k in ("seed",) if k in data})

    def config_problems(self) -> list:
        return [] if self.turns <= 500 else [f"turns is {self.turns}, and a game has at most 500"]

    def preflight(self) -> list:
        return ["the game needs an even seed"] if self.seed == 13 else []

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        deployed = next(d for d in context.deployed_envs if d.env_id == self.env_id)
        args = {"seed": self.seed, "turns": self.turns, "labels": [a.agent_name for a in context.deployed_agents]}
        result = await client.invoke_extension(deployed.environment_url, _card(deployed, NEW_GAME), NEW_GAME, args, timeout=10)
        context.metadata["civ_match"] = {"seats": result["seats"], "live_url": f"{deployed.mcp_url.removesuffix('/mcp')}/live"}
        log.warning("PLAY %s", ", ".join(result["seats"]))
        return context


class AwaitStep(TaskStep):
    """Waits for the end of the game."""

    type: ClassVar[str] = "civ_await"
    entity_refs = (EntityRef.env("env_id"),)

    def __init__(self, id, version, env_id, timeout_seconds=30, depends_on=None, fail_task_on_error=True):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.env_id, self.timeout_seconds = env_id, timeout_seconds

    @classmethod
    def from_dict(cls, data: dict) -> "AwaitStep":
        return cls(**cls._base_from_dict(data), env_id=data["env_id"], **{k: data[k] for k in ("timeout_seconds",) if k in data})

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        deployed = next(d for d in context.deployed_envs if d.env_id == self.env_id)
        base, deadline = deployed.mcp_url.removesuffix("/mcp"), time.monotonic() + self.timeout_seconds
        while True:
            summary = (await client.get_data(base, timeout=60)).parts[0].data
            if summary.get("game_over"):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"the game is not over after {self.timeout_seconds}s (turn {summary.get('turn')})")
            await asyncio.sleep(0.01)
        context.metadata["civ_game"] = {"turn": summary["turn"]}
        return context


class RecordingStep(TaskStep):
    """Keeps the recording as artifacts."""

    type: ClassVar[str] = "civ_recording"
    entity_refs = (EntityRef.env("env_id"),)

    def __init__(self, id, version, env_id, depends_on=None, fail_task_on_error=False):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.env_id = env_id

    @classmethod
    def from_dict(cls, data: dict) -> "RecordingStep":
        return cls(**{**cls._base_from_dict(data), "fail_task_on_error": data.get("fail_task_on_error", False)}, env_id=data["env_id"])

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        deployed = next(d for d in context.deployed_envs if d.env_id == self.env_id)
        result = await client.invoke_extension(deployed.environment_url, _card(deployed, RECORDING), RECORDING, {"view": "spectator"}, timeout=300)
        stem = f"{context.metadata.get('task_id', self.env_id)}-recording-{context.instance_id or uuid.uuid4().hex}"
        saved = []
        for f in result["files"]:
            content = base64.b64decode(f["base64"])
            artifact = await asyncio.to_thread(
                FileArtifact.put_bytes, f"{stem}.{f['name'].partition('.')[2]}", description=f"Recording of env {self.env_id!r}: {f['name']}",
                filename=f["name"], content=content, content_type=f["content_type"])
            saved.append({"name": f["name"], "artifact_id": artifact.id, "version": artifact.version, "bytes": len(content)})
            log.info("%s is file artifact %s v%d at %s", f["name"], artifact.id, artifact.version, artifact.object_url)
        context.metadata.setdefault("recordings", {})[self.id] = saved
        return context
