"""An environment type and two artifact types of a plugin."""

from __future__ import annotations

from typing import ClassVar, Literal, Optional

from agent_env.artifact import Artifact
from agent_env.env.env import DeployedEnv, Env
from agent_env.plugins import settings

STANDING: dict = {}


class PhoneEnv(Env):
    """A phone somewhere else."""

    type = "phone"

    def __init__(self, id: str = "", version: Optional[int] = None, model: str = "", description: Optional[str] = None, metadata: Optional[dict] = None):
        super().__init__(id=id, version=version, description=description, metadata=metadata or {})
        if model not in ("", "small", "large"):
            raise ValueError(f"model must be small or large, got {model!r}")
        self.model = model

    async def deploy(self, ttl_seconds: int = 60, files: Optional[dict] = None) -> DeployedEnv:
        account = settings("agentenv-phone")["account"]
        STANDING[self.id] = ttl_seconds
        return DeployedEnv(env_id=self.id, environment_url="http://127.0.0.1:4711", mcp_url="http://127.0.0.1:4711/mcp", metadata={"account": account, "ttl": ttl_seconds}, **({"reads_files": True, "files": files} if files else {}))

    async def reset(self, deployed: DeployedEnv) -> None:
        if deployed.metadata["account"] != "a":
            raise RuntimeError("somebody else's phone")

    async def close(self) -> None:
        STANDING.pop(self.id, None)

    @classmethod
    async def from_deployed_env(cls, deployed: DeployedEnv) -> "PhoneEnv":
        return cls(id=deployed.env_id)


class Table(Artifact):
    """A table."""

    type = "table"
    columns: list
    title: str = ""
    known: ClassVar[int] = 3

    @classmethod
    def check(cls, config, files):
        return [f"there is no file for {f['path']}" for f in files if f["size"] == 0]

    @classmethod
    def write(cls, id, config, files):
        return {"body": {**config, "rows": len(files), "named": id}, "files": [f for f in files if f["path"].endswith(".csv")]}


class Note(Artifact):
    """A note."""

    type = "note"


class Fresh(Artifact):
    """Goes by an older name too."""

    type: Literal["fresh", "stale"] = "fresh"
