"""The server: imported here, served inside its image."""

from __future__ import annotations

from agentenv_protocol import AgentEnvEnvironment
from agentenv_protocol.types import (
    MCP_PATH,
    MCP_TRANSPORT,
    RPC_PATH,
    EnvironmentCapabilities,
    EnvironmentCard,
    EnvironmentExtension,
    EnvironmentInterface,
    error_body,
)

LOBBY = "urn:arena:lobby/v1"
LICENSE = "urn:arena:license/v1"
NOT_OPEN = error_body("lobby_not_open", "open a lobby first")


class ArenaEnv(AgentEnvEnvironment):
    def _build_card(self) -> EnvironmentCard:
        card = super()._build_card()
        caps = card.capabilities or EnvironmentCapabilities()
        ours = [EnvironmentExtension(uri=LOBBY, params={"endpoint": f"{RPC_PATH}/ext/lobby"})]
        return card.model_copy(
            update={
                "capabilities": caps.model_copy(update={"extensions": [*(caps.extensions or []), *ours]}),
                "additionalInterfaces": [EnvironmentInterface(url=MCP_PATH, transport=MCP_TRANSPORT)],
            }
        )
