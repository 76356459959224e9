"""How programs talk to environment servers: constants, cards, and a client. Servers are written with another package, inside their images."""

from .environment import AgentEnvEnvironment, add_data, environment_card, extension, get_data, reset_data
from .types import (
    DataPart,
    EnvironmentCapabilities,
    EnvironmentCard,
    EnvironmentExtension,
    EnvironmentInterface,
    FilePart,
    TextPart,
)

__version__ = "0.1.379"

__all__ = [
    "AgentEnvEnvironment",
    "DataPart",
    "EnvironmentCapabilities",
    "EnvironmentCard",
    "EnvironmentExtension",
    "EnvironmentInterface",
    "FilePart",
    "TextPart",
    "add_data",
    "environment_card",
    "extension",
    "get_data",
    "reset_data",
]
