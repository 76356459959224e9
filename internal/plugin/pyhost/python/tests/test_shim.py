import unittest

from agent_env import _host, _reach, runs
from agent_env.a2a_agent import A2AAgent
from agent_env.artifact import Artifact, FileArtifact
from agent_env.config import get_config
from agent_env.entity_refs import EntityRef
from agent_env.env.env import DeployedEnv, DeployedSandboxEnv
from agent_env.store.routing import namespace_routing
from agent_env.task.store import find_task_instance, get_task_instance_store, task_instances
from agent_env.task_step import RetryConfig, TaskStep, TaskStepContext
from agentenv_protocol import AgentEnvEnvironment, extension, get_data


class Asked(unittest.TestCase):
    """A test with someone who answers what the modules ask."""

    def setUp(self):
        self.kept, self.asked, self.answers = {}, [], {}
        _host.connect(self.ask, lambda: self.kept)
        self.addCleanup(_host.connect, None, None)

    def ask(self, method, params):
        self.asked.append((method, params))
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Contexts(Asked):
    def test_a_context_comes_out_as_it_went_in(self):
        document = {
            "deployed_envs": [{"env_id": "e", "new": {"x": 1}, "sandbox_type": "local", "metadata": {"deploy_step_id": "up"}, "deploy_step_id": "up"}, {"env_id": "f"}],
            "deployed_agents": [{"agent_name": "a", "a2a_url": "http://a"}],
            "deployed_sandboxes": [{"sandbox_name": "s"}],
            "prompt_responses": [{"prompt_id": "p", "usage": {"input_tokens": 1}}],
            "metadata": {"k": 1},
            "instance_id": "i",
            "later": [1],
        }
        context = TaskStepContext.from_dict(document)
        self.assertEqual(context.to_dict(), document)
        env, plain = context.deployed_envs
        self.assertIsInstance(env, DeployedSandboxEnv)
        self.assertNotIsInstance(plain, DeployedSandboxEnv)
        self.assertEqual((env.new, plain.metadata, plain.sandbox_ids, plain.environment_card), ({"x": 1}, {}, {}, None))
        self.assertEqual(context.to_dict(), document)  # reading leaves no trace
        plain.metadata["seen"] = True
        self.assertEqual(context.to_dict()["deployed_envs"][1], {"env_id": "f", "metadata": {"seen": True}})
        with self.assertRaises(AttributeError):
            env.nothing  # noqa: B018

    def test_addresses_are_asked_once_and_bring_their_headers(self):
        self.answers["host/env.connect"] = {"environment_url": "http://h/c/s", "mcp_url": "http://h/c/s/mcp", "headers": {"A": "b"}}
        env = DeployedEnv(env_id="e", deploy_step_id="up")
        self.assertEqual((env.mcp_url, env.environment_url), ("http://h/c/s/mcp", "http://h/c/s"))
        self.assertEqual(self.asked, [("host/env.connect", {"env_id": "e", "env_step_id": "up"})])
        self.assertEqual(_reach.headers("http://h/c/s/agentenv"), {"A": "b"})
        self.assertEqual(_reach.headers("http://h/c/sx"), {})

    def test_an_agent_is_reached_by_its_door(self):
        self.answers = {"host/agent.connect": {"a2a_url": "http://door", "headers": {"X": "1"}}, "host/url.reach": {"url": "http://far"}}
        context = TaskStepContext.from_dict({"deployed_agents": [{"agent_name": "a"}]})
        self.assertEqual(context.deployed_agents[0].a2a_url, "http://door")
        self.assertEqual(context.deployed_agents[0].a2a_url, "http://door")
        self.assertEqual(self.asked, [("host/agent.connect", {"agent_name": "a"})])
        self.assertEqual(_reach.headers("http://door/x"), {"X": "1"})
        self.assertEqual(context.to_dict()["deployed_agents"], [{"agent_name": "a"}])
        self.answers["host/agent.connect"] = PermissionError("it doesn't speak A2A")
        self.assertIsNone(TaskStepContext.from_dict({"deployed_agents": [{"agent_name": "b"}]}).deployed_agents[0].a2a_url)
        self.assertEqual(TaskStepContext.from_dict({"deployed_agents": [{"agent_name": "c", "a2a_url": "http://c"}]}).deployed_agents[0].a2a_url, "http://far")

    def test_overrides(self):
        context = TaskStepContext(metadata={"user_overrides": {"step_params": {"s": {"a": 1}}}})
        self.assertEqual(TaskStep("s").step_param_overrides(context), {"a": 1})
        self.assertEqual(TaskStep("t").step_param_overrides(context), {})
        self.assertEqual(TaskStep("t").step_param_overrides(TaskStepContext()), {})


class Steps(unittest.TestCase):
    def test_documents(self):
        data = {"id": "s", "depends_on": ["a", {"task_step_id": "b"}], "retry_config": {"go_to_step_id": "a", "max_retries": 2}, "fail_task_on_error": False}
        step = TaskStep.from_dict(data)
        self.assertEqual(
            step.to_dict(),
            {
                "id": "s",
                "version": None,
                "type": "",
                "depends_on": [{"task_step_id": "a"}, {"task_step_id": "b"}],
                "fail_task_on_error": False,
                "retry_config": {"retry_from_step_id": "a", "max_retries": 2},
            },
        )
        self.assertEqual(TaskStep.from_dict(step.to_dict()).to_dict(), step.to_dict())
        with self.assertRaises(ValueError):
            RetryConfig(max_retries=-1)

    def test_a_constructor_without_retry_config_is_not_given_one(self):
        class Narrow(TaskStep):
            def __init__(self, id, version, depends_on=None, fail_task_on_error=True):
                super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)

        self.assertEqual(Narrow.from_dict({"id": "s", "retry_config": {}}).id, "s")

    def test_refs(self):
        self.assertEqual(EntityRef.env("env_id").document(), {"path": "env_id", "kind": "env"})
        self.assertEqual(EntityRef.artifact("image", artifact_type="docker_image", version="v", out=True).document(), {"path": "image", "kind": "artifact", "type": "docker_image", "version": "v", "out": True})


class Stores(Asked):
    def test_stored_things_are_read_when_asked(self):
        self.answers["host/artifact.list"] = {"items": [{"id": "a", "version": 3, "type": "file"}]}
        self.answers["host/artifact.get"] = {"id": "a", "version": 3, "type": "file", "body": {"content_type": "text/plain", "_hidden": 1}}
        (found,) = FileArtifact.query().type("file").prefix("a").execute()
        self.assertEqual(self.asked[-1], ("host/artifact.list", {"kind": "artifact", "type": "file", "prefix": "a", "limit": 1000}))
        self.assertEqual((found.id, found.version, found.content_type, found.filename), ("a", 3, "text/plain", None))
        self.assertEqual(len(self.asked), 2)
        self.assertEqual(Artifact.get("a").content_type, "text/plain")

    def test_what_is_not_there(self):
        self.answers["host/artifact.get"] = PermissionError("no artifact a")
        with self.assertRaises(LookupError):
            Artifact.get("a")
        with self.assertRaises(FileNotFoundError):
            FileArtifact.put("a", file_path="/nowhere/at/all")
        self.answers["host/secret.get"] = PermissionError("not granted")
        self.assertIsNone(get_config().get_secret_store().get("x"))

    def test_runs_are_read_page_by_page(self):
        pages = [{"runs": [{"id": "r2", "scores": {"v": 1}, "context": {"metadata": {"k": 1}}}], "next": "r2"}, {"runs": [{"id": "r1"}], "next": ""}]
        self.ask_pages(pages)
        found = list(runs.query(task="t", status=(s for s in ["passed"]), context=True))
        self.assertEqual([(r.id, r.scores, r.context) for r in found], [("r2", {"v": 1}, {"metadata": {"k": 1}}), ("r1", {}, None)])
        self.assertEqual([p for _, p in self.asked], [{"task": "t", "status": ["passed"], "context": True, "limit": 100}, {"task": "t", "status": ["passed"], "context": True, "after": "r2", "limit": 100}])

    def test_a_run_that_is_not_there(self):
        self.answers = {"host/runs.query": PermissionError("there is no run 'x'")}
        with self.assertRaisesRegex(LookupError, "no run"):
            runs.get("x")
        self.assertIsNone(find_task_instance("x"))

    def test_runs_by_the_names_that_plugins_know(self):
        self.ask_pages([{"runs": [{"id": f"r{v}", "task_version": v % 2} for v in range(6)], "next": ""}, {"runs": [{"id": "r1", "context": {"metadata": {}}}]}])
        self.assertEqual([r.instance_id for r in task_instances("t", task_version=1, offset=1, limit=1)], ["r3"])
        with namespace_routing():
            self.assertEqual(get_task_instance_store().get("r1").context, {"metadata": {}})
        self.assertEqual(self.asked[1], ("host/runs.query", {"run": "r1", "context": True}))

    def ask_pages(self, pages):
        def ask(method, params):
            self.asked.append((method, params))
            return pages.pop(0)

        _host.connect(ask, lambda: self.kept)

    def test_agents_cards(self):
        card = {"capabilities": {"extensions": [{"uri": A2AAgent.EXT_MCP_CONFIG}]}}
        self.assertEqual(A2AAgent.find_extension(card, A2AAgent.EXT_MCP_CONFIG), {"uri": A2AAgent.EXT_MCP_CONFIG})
        self.assertIsNone(A2AAgent.find_extension({}, A2AAgent.EXT_MCP_CONFIG))


class OutsideOfAgentEnv(unittest.TestCase):
    def test_asking_says_so(self):
        with self.assertRaisesRegex(RuntimeError, "works inside agent-env"):
            get_config().value("x")

    def test_servers_are_defined_and_not_served(self):
        class Server(AgentEnvEnvironment):
            @extension("urn:x/v1")
            def act(self):
                return 1

            @get_data
            def data(self):
                return 2

        self.assertEqual((Server().act(), Server().data()), (1, 2))
        with self.assertRaisesRegex(NotImplementedError, "inside its image"):
            Server().create_app()
