package step

import (
	"net/netip"
	"net/url"
	"path"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Sandbox modes of deploy_sandbox.
const (
	ModeVM        = "vm"
	ModeContainer = "container"
)

// worldKinds make, load and end what a task runs in.
func worldKinds() []*Kind {
	return []*Kind{
		deploySandbox(), deployEnv(), deployAgent(), installAgent(), deployHumanAgent(), runDockerContainer(), resetEnv(), teardownSandboxes(),
	}
}

func deploySandbox() *Kind {
	return &Kind{
		Name: "deploy_sandbox", Doc: "creates a bare sandbox",
		Fields: doc.Schema{Fields: []doc.Field{
			must("sandbox_name", name(), "name by which other steps find it"),
			must("sandbox_mode", oneOf(ModeVM, ModeContainer), "vm: a machine; container: one image with one port"),
			may("image", name(), nil, "image that is its root; needed in container mode"),
			may("cpu", positive(), 1.0, "cores"),
			may("memory_mb", count(1), 8192, "memory limit in MB"),
			may("disk_size_gb", positive(), 10, "disk limit in GB"),
			may("ttl_seconds", count(1), 7200, "how long it lives at most"),
			may("exposed_ports", list(port()), nil, "ports that are reached from outside"),
			may("boot_mode", name(), nil, "how the machine boots, where its provider offers a choice"),
			may("port", port(), nil, "port of the container's server; needed in container mode"),
			may("env_vars", tableOf(text()), nil, "environment of its commands"),
			user(may("sandbox_type", name(), nil, "provider, or a list of them to try: local,docker")),
			may("network_policy", networkPolicy(), nil, "what it may reach"),
			metadata(),
		}},
		Check: all(checkNetwork, checkVars, func(n doc.Node, l *diag.List) {
			if mode, _ := n.Get("sandbox_mode").Str(); mode != ModeContainer {
				return
			}
			for _, f := range []string{"image", "port"} {
				if !set(n, f) {
					fault(l, n.Get("sandbox_mode"), "sandbox_mode", "step.sandbox.container", "container needs %s beside it", f)
				}
			}
		}),
	}
}

func deployEnv() *Kind {
	return &Kind{
		Name: "deploy_env", Doc: "deploys an environment",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "environment"),
			may("env_version", version(), nil, "version of the environment; absent: the latest"),
			may("artifact_id", name(), nil, "data to load once it is up"),
			may("artifact_version", version(), nil, "version of artifact_id"),
			may("ttl_seconds", count(1), 7200, "how long it lives at most"),
			may("disk_size_gb", positive(), 10, "disk limit in GB"),
			may("gateway_mode", oneOf("performance", "consistent"), "performance", "consistent: one tool call at a time, so that every change has one author"),
			may("cpu", positive(), nil, "cores"),
			may("memory_mb", count(1), nil, "memory limit in MB"),
			user(may("sandbox_type", name(), nil, "provider, or a list of them to try: local,docker")),
			user(may("env_state_type", name(), nil, "where the environment keeps its state")),
			user(may("env_state_instance_id", name(), nil, "existing state to attach")),
			metadata(),
		}},
		Refs:  []Ref{env("env_id", "env_version"), artifact("artifact_id", "artifact_version", "")},
		Check: func(n doc.Node, l *diag.List) { together(n, l, "artifact_version", "artifact_id") },
	}
}

func deployAgent() *Kind {
	return &Kind{
		Name: "deploy_agent", Doc: "starts an agent and connects it to environments",
		Fields: doc.Schema{Fields: []doc.Field{
			may("env_ids", list(name()), []any{}, "deployed environments whose tools it gets"),
			may("env_step_id", name(), nil, "deploy_env step meant, where an environment is deployed twice"),
			user(may("a2a_agent_id", name(), nil, "agent; absent: the configured default")),
			user(may("a2a_agent_version", version(), nil, "version of the agent; absent: the latest")),
			may("agent_name", name(), DefaultAgent, "name by which other steps find it"),
			may("agent_description", text(), nil, "what its card says of it"),
			user(may("env_vars", tableOf(text()), nil, "environment of the agent")),
			may("skills", list(anyTable()), nil, "skills to register: name, description and the text of SKILL.md"),
			may("system_prompt", text(), nil, "system prompt"),
			may("disk_size_gb", positive(), nil, "disk limit in GB"),
			user(may("litellm_base_url", name(), nil, "model endpoint")),
			user(may("sandbox_type", name(), nil, "provider, or a list of them to try: local,docker")),
			may("ttl_seconds", count(1), nil, "how long it lives at most; absent: 7200"),
			may("cpu", positive(), nil, "cores"),
			may("memory_mb", count(1), nil, "memory limit in MB"),
			may("sandbox_name", name(), nil, "existing sandbox to put it on"),
			may("enable_docker", flag(), false, "a rootless Docker engine of its own"),
			may("role", name(), nil, "role in which its tool calls are made"),
			may("network_policy", networkPolicy(), nil, "what it may reach"),
			may("agent_snapshot_files_artifact_id", name(), nil, "snapshot to restore"),
			may("agent_snapshot_files_artifact_version", version(), nil, "version of the snapshot"),
			may("agent_snapshot_target_context_id", name(), nil, "conversation into which the snapshot is restored"),
			may("enable_agent_changelog", flag(), false, "records the workspace at every tool call"),
			may("agent_changelog_object_url", name(), nil, "recorded changes to apply before it starts"),
			may("agent_changelog_toolcall_position_exclusive", count(0), nil, "tool call before which the recorded changes end"),
			metadata(),
		}},
		Refs: []Ref{
			env("env_ids[]", ""),
			agent("a2a_agent_id", "a2a_agent_version"),
			artifact("agent_snapshot_files_artifact_id", "agent_snapshot_files_artifact_version", "file_artifact_universe"),
		},
		Check: all(checkNetwork, checkVars, func(n doc.Node, l *diag.List) {
			together(n, l, "agent_snapshot_files_artifact_version", "agent_snapshot_files_artifact_id")
			together(n, l, "agent_changelog_toolcall_position_exclusive", "agent_changelog_object_url")
		}),
	}
}

func installAgent() *Kind {
	return &Kind{
		Name: "install_agent", Doc: "installs an agent in a container or sandbox of the task",
		Fields: doc.Schema{Fields: []doc.Field{
			must("sandbox_name", name(), "sandbox that gets the agent"),
			may("container_name", name(), nil, "container of that sandbox; absent: the sandbox itself"),
			user(may("a2a_agent_id", name(), nil, "agent; absent: the configured default")),
			user(may("a2a_agent_version", version(), nil, "version of the agent; absent: the latest")),
			may("agent_name", name(), DefaultAgent, "name by which other steps find it"),
			may("a2a_port", port(), nil, "port on which it serves"),
			may("workspace_dir", name(), nil, "folder in which it works"),
		}},
		Refs: []Ref{agent("a2a_agent_id", "a2a_agent_version")},
	}
}

func deployHumanAgent() *Kind {
	return &Kind{
		Name: "deploy_human_agent", Doc: "registers an agent that runs elsewhere, by its URL, or a person",
		Fields: doc.Schema{Fields: []doc.Field{
			may("agent_name", name(), "human_agent", "name by which other steps find it"),
			user(may("a2a_url", name(), nil, "where it serves")),
		}},
	}
}

func runDockerContainer() *Kind {
	return &Kind{
		Name: "run_docker_container", Doc: "builds an image and starts a container of it in a sandbox",
		Fields: doc.Schema{Fields: []doc.Field{
			must("sandbox_name", name(), "sandbox in which it runs"),
			may("docker_context_artifact_id", name(), nil, "build context"),
			may("docker_context_artifact_version", version(), nil, "version of the build context"),
			user(may("docker_context_url", name(), nil, "build context as a .zip")),
			may("dockerfile_path", name(), "Dockerfile", "Dockerfile inside the context"),
			may("container_name", name(), "task-container", "name by which other steps find it"),
			may("image_tag", name(), nil, "tag of the image that is built"),
			may("ports", list(port()), nil, "ports that are reached from outside"),
			may("env_vars", tableOf(text()), nil, "environment of the container"),
			may("build_args", tableOf(text()), nil, "arguments of the build"),
			may("command_override", name(), nil, "command instead of the image's own"),
			may("keep_alive_with_base_command", flag(), false, "false: the container sleeps; true: it runs the image's own command"),
			may("network", name(), nil, "network it joins"),
			may("extra_networks", list(name()), []any{}, "more networks it joins"),
			may("ready_command", name(), nil, "command that succeeds when the container is ready"),
			may("devices", list(name()), []any{}, "host devices"),
			may("cap_add", list(name()), []any{}, "capabilities to add"),
			may("privileged", flag(), false, "all capabilities and devices"),
			may("volumes", list(name()), []any{}, "volumes"),
			may("shm_size", name(), nil, "size of /dev/shm"),
		}},
		Refs:  []Ref{artifact("docker_context_artifact_id", "docker_context_artifact_version", "file_artifact_universe")},
		Check: all(checkVars, checkContainer),
	}
}

func checkContainer(n doc.Node, l *diag.List) {
	atMostOne(n, l, "docker_context_artifact_id", "docker_context_url")
	if !set(n, "docker_context_artifact_id") && !set(n, "docker_context_url") {
		fault(l, n, "", "step.container.context", "names no build context; set docker_context_artifact_id or docker_context_url")
	}
	together(n, l, "docker_context_artifact_version", "docker_context_artifact_id")
	if s, ok := n.Get("docker_context_url").Str(); ok && !templated(s) {
		if u, err := url.Parse(s); err != nil || u.Scheme == "" || !strings.EqualFold(path.Ext(u.Path), ".zip") {
			fault(l, n.Get("docker_context_url"), "docker_context_url", "step.container.url", "must be a .zip by URL, not %s", diag.Repr(s))
		}
	}
	if set(n, "command_override") && truthy(n, "keep_alive_with_base_command", false) {
		fault(l, n.Get("command_override"), "command_override", "step.conflict", "and keep_alive_with_base_command can't be used together; keep one")
	}
	for i, e := range n.Get("extra_networks").Items() {
		if s, _ := e.Str(); s == "host" || s == "none" || strings.HasPrefix(s, "container:") {
			fault(l, e, at("extra_networks", i), "step.container.network", "%s takes the place of the container's own network; name a network to join", diag.Repr(s))
		}
	}
}

func resetEnv() *Kind {
	return &Kind{
		Name: "reset_env", Doc: "calls an environment's data/reset",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "deployed environment"),
			may("fail_task_on_error", flag(), false, "true: a failure of this step stops the task"),
		}},
		Refs: []Ref{env("env_id", "")},
	}
}

func teardownSandboxes() *Kind {
	return &Kind{
		Name: "teardown_sandboxes", Doc: "ends agents, environments and sandboxes early",
		Fields: doc.Schema{Fields: []doc.Field{
			may("agent_names", list(name()), []any{}, "agents to end"),
			may("env_ids", list(name()), []any{}, "environments to end"),
			may("sandbox_names", list(name()), []any{}, "sandboxes to end"),
			may("fail_task_on_error", flag(), false, "always false: what can't be ended is reported, never a failure"),
		}},
		Refs: []Ref{env("env_ids[]", "")},
		Check: func(n doc.Node, l *diag.List) {
			if n.Get("agent_names").Len()+n.Get("env_ids").Len()+n.Get("sandbox_names").Len() == 0 {
				fault(l, n, "", "step.teardown.empty", "names nothing to end; set agent_names, env_ids or sandbox_names")
			}
			if truthy(n, "fail_task_on_error", false) {
				fault(l, n.Get("fail_task_on_error"), "fail_task_on_error", "step.teardown.fatal", "must be false: what can't be ended is reported, never a failure")
			}
		},
	}
}

// metadata is what a deployment's record carries; its attribution goes to sandbox providers as tags.
func metadata() doc.Field {
	return may("metadata", openTable(
		user(may("attribution", tableOf(text()), nil, "tags for the sandbox provider")),
	), nil, "kept with the deployment")
}

// networkPolicy is what a sandbox may reach.
func networkPolicy() doc.Type {
	return table(
		may("mode", oneOf("none", "allow_all", "allowlist"), "allow_all", "none: nothing; allow_all: public addresses; allowlist: what the lists name"),
		may("allow_hosts", list(name()), []any{}, "host names"),
		may("allow_cidrs", list(doc.Type{Kinds: []doc.Kind{doc.String}, Check: isCIDR}), []any{}, "address ranges"),
	)
}

func isCIDR(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if _, err := netip.ParsePrefix(s); err != nil {
		if _, err := netip.ParseAddr(s); err != nil && !templated(s) {
			fault(l, n, "", "step.network.cidr", "%s is no address range such as 10.0.0.0/8", diag.Repr(s))
		}
	}
}

func checkNetwork(n doc.Node, l *diag.List) {
	p := n.Get("network_policy")
	if p.Kind() != doc.Object {
		return
	}
	mode, _ := p.Get("mode").Str()
	if mode != "allowlist" {
		if mode == "" {
			mode = "allow_all"
		}
		for _, f := range []string{"allow_hosts", "allow_cidrs"} {
			if p.Get(f).Len() > 0 {
				fault(l, p.Get(f), "network_policy."+f, "step.network.list", "has no effect in mode %s; set mode to allowlist", mode)
			}
		}
	}
	for i, h := range p.Get("allow_hosts").Items() {
		if s, _ := h.Str(); s == "*" {
			fault(l, h, at("network_policy.allow_hosts", i), "step.network.star", "'*' is every host; set mode to allow_all instead")
		}
	}
}

var varName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkVars(n doc.Node, l *diag.List) {
	for key, v := range n.Get("env_vars").Members() {
		if !varName().MatchString(key) {
			fault(l, v, "env_vars", "step.env.name", "%s is no name of an environment variable (letters, digits and _, no digit first)", diag.Repr(key))
		}
	}
}
