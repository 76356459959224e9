"""The command."""

import os
import sys

import click
from agent_env.a2a_agent import A2AAgent
from agent_env.artifact import DockerImageArtifact, FileArtifact
from agent_env.env import MCPServerEnv


@click.group()
def civ():
    """A strategy game: register its environment, list its recordings."""


@civ.command()
@click.option("--id", "env_id", default="civ", show_default=True)
@click.option("--agent", is_flag=True)
def setup(env_id, agent):
    """Registers the environment."""
    artifact = DockerImageArtifact.put(id=f"mcp-server-{env_id}", image_name="civ:1", description="The game")
    env = MCPServerEnv.put(id=env_id, docker_image_artifact=artifact, environment_name="civ", env_provider_type="server")
    click.echo(f"Registered env {env.id!r} version {env.version} (image {artifact.image_name})")
    if agent:
        player = A2AAgent.put(id="civ-player", docker_image_artifact=artifact, metadata={"default_model": "m"})
        click.echo(f"Registered A2A agent {player.id!r} version {player.version}")


@civ.command()
@click.argument("instance", required=False)
def recordings(instance):
    """Lists recordings."""
    saved = [a for a in FileArtifact.query().type("file").execute() if a.id.rpartition("-recording-")[2].startswith(instance or "")]
    if not saved:
        raise click.ClickException("no recordings" + (f" for instance {instance}" if instance else ""))
    for a in saved:
        click.echo(f"{a.id} v{a.version}  {a.content_type}  {len(a.load())} bytes")


@civ.command()
def serve():
    """Becomes another program, as servers do."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", "print('serving'); raise SystemExit(5)"])


@civ.command()
@click.option("--yes", prompt="Go on", type=bool)
def ask(yes):
    """Asks."""
    click.echo(f"answer {yes}")


@civ.command()
def crash():
    """Fails."""
    raise RuntimeError("the map is\nlost")


loud = click.Option(["--loud"], is_flag=True, default=None, expose_value=False, callback=lambda ctx, param, value: click.echo(f"loud is {value}"))
