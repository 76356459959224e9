"""The context document that the steps of a run share."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, List, Optional, Type

from .. import _reach
from .._record import Record
from ..env.env import DeployedEnv, deployed_env


class DeployedAgent(Record):
    """An agent that a step deployed. ``a2a_url`` is where this machine reaches it."""

    _defaults: ClassVar[Dict[str, Any]] = {
        "agent_name": "",
        "a2a_agent_id": None,
        "sandbox_id": None,
        "sandbox_type": None,
        "a2a_card": None,
        "api_url": None,
        "instance_id": None,
        "role": None,
        "network_policy": None,
        "on_host": False,
        "installed_container": None,
        "metadata": {},
    }

    def __init__(self, **members: Any):
        self._url = members.pop("a2a_url", None)
        super().__init__(**members)

    @property
    def a2a_url(self) -> Optional[str]:
        """The address at which this machine reaches it; None for one that speaks no A2A."""
        return _reach.agent(self.agent_name, self._url)

    def to_dict(self) -> Dict[str, Any]:
        """Its document."""
        return {**super().to_dict(), **({"a2a_url": self._url} if self._url is not None else {})}


class DeployedSandbox(Record):
    """A sandbox that a step made."""

    _defaults: ClassVar[Dict[str, Any]] = {"sandbox_name": "", "sandbox_id": None, "sandbox_type": None, "instance_id": None, "network_policy": None}


class PromptResponse(Record):
    """What an agent answered."""

    _defaults: ClassVar[Dict[str, Any]] = {
        "prompt_id": "",
        "response": "",
        "prompt_text": "",
        "agent_name": None,
        "step_id": None,
        "model": None,
        "structured_output": None,
        "error_type": None,
        "error_code": None,
        "error_message": None,
        "tool_call_count": 0,
        "agent_trajectory_object_url": None,
        "metadata": {},
    }


_LISTS: Dict[str, Any] = {
    "deployed_envs": deployed_env,
    "deployed_agents": DeployedAgent.from_dict,
    "deployed_sandboxes": DeployedSandbox.from_dict,
    "prompt_responses": PromptResponse.from_dict,
}


class TaskStepContext:
    """The context of a run: what stands, what was answered, and ``metadata``, which steps change in place."""

    _members = ("agent_model", "default_agent_model", "agent_artifact_id", "agent_harness", "instance_id")

    def __init__(
        self,
        deployed_envs: Optional[List[DeployedEnv]] = None,
        deployed_agents: Optional[List[DeployedAgent]] = None,
        deployed_sandboxes: Optional[List[DeployedSandbox]] = None,
        prompt_responses: Optional[List[PromptResponse]] = None,
        metadata: Optional[Dict[str, Any]] = None,
        **members: Any,
    ):
        self.deployed_envs: List[DeployedEnv] = deployed_envs if deployed_envs is not None else []
        self.deployed_agents: List[DeployedAgent] = deployed_agents if deployed_agents is not None else []
        self.deployed_sandboxes: List[DeployedSandbox] = deployed_sandboxes if deployed_sandboxes is not None else []
        self.prompt_responses: List[PromptResponse] = prompt_responses if prompt_responses is not None else []
        self.metadata: Dict[str, Any] = metadata if metadata is not None else {}
        for name in self._members:
            setattr(self, name, members.pop(name, None))
        self.__dict__.update(members)

    @classmethod
    def from_dict(cls: Type["TaskStepContext"], document: Dict[str, Any]) -> "TaskStepContext":
        """One from its document."""
        members = dict(document)
        for name, make in _LISTS.items():
            members[name] = [make(d) for d in members.get(name) or []]
        return cls(**members)

    def to_dict(self) -> Dict[str, Any]:
        """Its document. Members without a value aren't in it."""
        out: Dict[str, Any] = {}
        for name, value in self.__dict__.items():
            if name in _LISTS:
                value = [v.to_dict() if hasattr(v, "to_dict") else v for v in value]
            if not name.startswith("_") and (value is not None or name not in self._members):
                out[name] = value
        return out

    def env(self, env_id: str, step_id: Optional[str] = None) -> Optional[DeployedEnv]:
        """The deployed environment of an id, and of a deploy step where that is given; None when there is none."""
        for deployed in self.deployed_envs:
            if deployed.env_id == env_id and step_id in (None, deployed.deploy_step_id):
                return deployed
        return None
