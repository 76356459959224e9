"""Environments: the class that types derive from, those that steps find deployed, and the stored ones."""

from .env import DeployedEnv, DeployedGatewayEnv, DeployedSandboxEnv, Env, GatewayMode
from .mcp_server import MCPServerEnv

__all__ = ["DeployedEnv", "DeployedGatewayEnv", "DeployedSandboxEnv", "Env", "GatewayMode", "MCPServerEnv"]
