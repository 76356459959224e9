"""Steps that start a game with files of the person, and keep its replay."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path
from typing import ClassVar

from agent_env.artifact import Artifact, FileArtifact
from agent_env.config import get_config
from agent_env.entity_refs import EntityRef
from agent_env.task_step.context import TaskStepContext
from agent_env.task_step.task_step import TaskStep
from agentenv_protocol import client
from httpx import HTTPStatusError

log = logging.getLogger(__name__)

NEW_GAME = "urn:rts:new-game/v1"
OPTIONS = ("map", "race", "license_dir")


def license_dir(given: "str | None") -> Path:
    if given is None:
        try:
            from agent_env.plugins import settings

            given = settings("agentenv-rts").get("license_dir")
        except Exception:
            given = None
    return Path(given or "~/.rts-license").expanduser()


class MatchStep(TaskStep):
    """Starts a game."""

    type: ClassVar[str] = "rts_match"
    entity_refs = (EntityRef.env("env_id"),)

    def __init__(self, id: str, version: "int | None", env_id: str, map: str = "isles", race: str = "human", license_dir: "str | None" = None,
                 depends_on: "list | None" = None, fail_task_on_error: bool = True):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.env_id, self.map, self.race, self.license_dir = env_id, map, race, license_dir

    @classmethod
    def from_dict(cls, data: dict) -> "MatchStep":
        return cls(**cls._base_from_dict(data), env_id=data["env_id"], **{k: data[k] for k in OPTIONS if k in data})

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        deployed = next((d for d in context.deployed_envs if d.env_id == self.env_id), None)
        folder = await asyncio.to_thread(license_dir, self.license_dir)
        args = {"map": self.map, "race": self.race, "license": base64.b64encode((folder / "game.key").read_bytes()).decode()}
        try:
            result = await client.invoke_extension(deployed.environment_url, deployed.environment_card, NEW_GAME, args, timeout=30)
        except HTTPStatusError as e:
            raise RuntimeError(f"env {self.env_id!r} did not start the game: {e.response.json()['error']['message']}") from e
        context.metadata["rts_match"] = {"scenario": {"map": self.map}, "setup": result.get("setup")}
        context.metadata["rts_match"]["live_url"] = f"{deployed.mcp_url.removesuffix('/mcp')}/live"
        return context


class ReplayStep(TaskStep):
    """Keeps the replay."""

    type: ClassVar[str] = "rts_replay"
    entity_refs = (EntityRef.env("env_id"),)

    def __init__(self, id, version, env_id, depends_on=None, fail_task_on_error=False):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.env_id = env_id

    @classmethod
    def from_dict(cls, data: dict) -> "ReplayStep":
        return cls(**{**cls._base_from_dict(data), "fail_task_on_error": data.get("fail_task_on_error", False)}, env_id=data["env_id"])

    async def execute(self, context: TaskStepContext) -> "TaskStepContext | None":
        url = get_config().get_object_store().put(f"replays/{self.id}.w3g", b"replay", content_type="application/octet-stream", allow_overwrite=True)
        back = get_config().get_object_store_at(url).get(url)
        known = await asyncio.to_thread(lambda: FileArtifact.query().type("file").execute())
        context.metadata.setdefault("replays", {})[self.id] = {
            "url": url, "same": back == b"replay", "known": [a.id for a in known], "first": known[0].load().decode(),
            "description": Artifact.get(known[0].id).description,
        }
        return None
