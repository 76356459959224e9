"""Deployed environments, and the class that environment types derive from."""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Dict, Optional, Type

from .. import _reach
from .._record import Record
from .._stored import Stored


class GatewayMode(str, enum.Enum):
    """How a gateway treats an environment."""

    PERFORMANCE = "performance"
    TRAINING = "training"


class DeployedEnv(Record):
    """An environment that a step deployed. Its addresses are as this machine reaches it, and count for the call that reads them."""

    _defaults: ClassVar[Dict[str, Any]] = {
        "env_id": "",
        "env_version": None,
        "env_type": None,
        "env_provider_type": None,
        "environment_card": None,
        "instance_id": None,
        "deploy_step_id": None,
        "sandbox_type": None,
        "sandbox_ids": {},
        "metadata": {},
    }

    def __init__(self, **members: Any):
        self._urls = {k: members.pop(k) for k in ("environment_url", "mcp_url", "gateway_url") if members.get(k)}
        super().__init__(**members)
        # Whoever looks for the deploy step finds it in both places.
        if isinstance(members.get("metadata"), dict) and members.get("deploy_step_id"):
            members["metadata"].setdefault("deploy_step_id", members["deploy_step_id"])

    def to_dict(self) -> Dict[str, Any]:
        """Its document."""
        return {**super().to_dict(), **self._urls}

    @property
    def environment_url(self) -> str:
        """The address below which its card, data plane and extensions are."""
        return self._address("environment_url")

    @property
    def mcp_url(self) -> str:
        """The address of its tools."""
        return self._address("mcp_url")

    @property
    def gateway_url(self) -> str:
        """The address of the gateway before it."""
        return self._urls.get("gateway_url") or self._address("environment_url")

    def _address(self, name: str) -> str:
        given = self._urls.get(name)
        return given or str(_reach.environment(self.env_id, self.deploy_step_id or "")[name])


class DeployedSandboxEnv(DeployedEnv):
    """One that runs in sandboxes of ``sandbox_type``."""


class DeployedGatewayEnv(DeployedSandboxEnv):
    """One behind a gateway."""


def deployed_env(document: Dict[str, Any]) -> DeployedEnv:
    """The object for a document of the context, of the class that tells how it runs."""
    document = dict(document)
    if isinstance(document.get("metadata"), dict):
        document["metadata"] = dict(document["metadata"])
    cls = DeployedGatewayEnv if document.get("sandbox_type") else DeployedEnv
    return cls(**document)


class Env(Stored):
    """An environment as it is stored. A type derives from it, sets ``type``, and says how it starts in ``deploy``."""

    kind: ClassVar[str] = "env"
    type: ClassVar[str] = ""

    def __init__(self, id: str = "", version: Optional[int] = None, **members: Any):
        super().__init__(id=id, version=version, **members)

    @classmethod
    def from_dict(cls: Type["Env"], data: Dict[str, Any]) -> "Env":
        """One from its document."""
        return cls(**{k: v for k, v in data.items() if k != "type"})

    async def deploy(self, *args: Any, **options: Any) -> DeployedEnv:
        """Starts one instance."""
        raise NotImplementedError(f"{type(self).__name__} has no deploy")

    async def close(self) -> None:
        """Ends what deploy started. Ending what is gone is no error."""

    async def reset(self, deployed: DeployedEnv) -> None:
        """Puts an instance back to its first state."""
        raise NotImplementedError(f"{type(self).__name__} has no reset")

    @classmethod
    async def from_deployed_env(cls: Type["Env"], deployed: DeployedEnv) -> "Env":
        """The environment of an instance, so that another process can reset and close it."""
        return cls(id=deployed.env_id, version=deployed.env_version)
