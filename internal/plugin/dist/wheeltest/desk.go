package wheeltest

// Desk is a plugin with a command of click that sets up an image of the engine, an environment and an agent, and tells of runs.
func Desk() Wheel {
	return Wheel{
		Name: "agentenv-e2e-desk", Version: "1.0.0", Requires: []string{"click"},
		Entries: map[string]map[string]string{"agent_env.cli_plugins": {"desk": "agentenv_e2e_desk:desk"}},
		Files:   map[string]string{"agentenv_e2e_desk.py": desk},
	}
}

const desk = `import click
from agent_env.a2a_agent import A2AAgent
from agent_env.artifact import DockerImageArtifact
from agent_env.env.mcp_server import MCPServerEnv
from agent_env.store.routing import namespace_routing
from agent_env.task.store import get_task_instance_store, task_instances


@click.group()
def desk():
    """A desk."""


@desk.command()
@click.option("--image", required=True)
def setup(image):
    """Registers it."""
    artifact = DockerImageArtifact.put(id="desk-image", image_name=image, description="The desk")
    env = MCPServerEnv.put(id="desk", docker_image_artifact=artifact, environment_name="desk", env_provider_type="server", metadata={"kind": "desk"})
    agent = A2AAgent.put(id="clerk", docker_image_artifact=artifact, metadata={"default_model": "m"})
    click.echo(f"image v{artifact.version}, env {env.id} v{env.version}, agent {agent.id} v{agent.version}")
    click.echo(DockerImageArtifact.get("desk-image").image_name)


@desk.command()
@click.argument("task")
def runs(task):
    """Tells of runs."""
    for run in task_instances(task):
        with namespace_routing():
            context = get_task_instance_store().get(run.instance_id).context
        click.echo(f"{run.status} {sorted(context['metadata']['verifications'])}")
`
