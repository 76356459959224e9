package step

import (
	"net/url"
	"path"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/ref"
)

// Types of artifacts that fields ask for.
const (
	typeFile     = "file"
	typeFiles    = "file_artifact_universe"
	typeUniverse = "environment_universe"
	typeSkill    = "skill"
	typeCLI      = "cli"
)

// dataKinds carry data in and out.
func dataKinds() []*Kind {
	return []*Kind{
		loadArtifact(), addSkills(), collectArtifacts(), snapshotEnv(), snapshotComputerEnv(), snapshotAgentState(), buildMCPCLI(),
	}
}

func loadArtifact() *Kind {
	return &Kind{
		Name: "load_artifact", Doc: "copies files into a sandbox, container or agent, restores an environment's data, installs a CLI",
		Fields: doc.Schema{Fields: []doc.Field{
			may("env_id", name(), nil, "target: a deployed environment"),
			may("env_step_id", name(), nil, "deploy_env step meant, where an environment is deployed twice"),
			may("artifacts", list(table(
				must("id", name(), "artifact"),
				may("version", version(), nil, "its version; absent: the latest"),
			)), nil, "source: artifacts"),
			may("artifact_id", name(), nil, "source: one artifact"),
			may("artifact_version", version(), nil, "version of artifact_id; absent: the latest"),
			user(may("urls", list(doc.Type{Kinds: []doc.Kind{doc.String, doc.Object}, NonEmpty: true, Fields: &doc.Schema{Fields: []doc.Field{
				must("url", name(), "where the file is"),
				must("filename", name(), "name under which it is kept"),
			}}}), nil, "source: downloads, as URLs or as tables of url and filename")),
			may("collected_artifacts_step_id", name(), nil, "source: what that collect_artifacts step stored"),
			may("artifact_from_step_id", name(), nil, "source: what that step stored"),
			may("destination_path", name(), nil, "folder that gets the files; absent: /loaded, /tmp/file_artifacts or /app/files by target"),
			may("agent_name", name(), nil, "target: a deployed agent"),
			may("sandbox_name", name(), nil, "target: a deployed sandbox"),
			may("container_name", name(), nil, "target: a container of sandbox_name"),
			may("snapshot_after_load", flag(), nil, "keeps the loaded state, so that the next load is quick"),
		}},
		Refs: []Ref{
			env("env_id", ""),
			artifact("artifact_id", "artifact_version", ""),
			artifact("artifacts[].id", "version", ""),
		},
		Check: all(checkLoadTarget, checkLoadSource, checkDownloads),
	}
}

func checkLoadTarget(n doc.Node, l *diag.List) {
	together(n, l, "container_name", "sandbox_name")
	together(n, l, "env_step_id", "env_id")
	targets := setAmong(n, "env_id", "agent_name", "sandbox_name", "container_name")
	switch strings.Join(targets, " ") {
	case "":
		fault(l, n, "", "step.load.target", "names nothing to load into; set env_id, agent_name, sandbox_name, or container_name with sandbox_name")
	case "env_id", "agent_name", "sandbox_name", "container_name", "sandbox_name container_name":
	case "env_id agent_name": // a CLI: the environment it talks to, and the agent that gets it
	default:
		fault(l, n.Get(targets[1]), targets[1], "step.load.target", "%s are several targets; keep one", words(targets))
	}
	if set(n, "env_id") && !set(n, "agent_name") {
		for _, f := range setAmong(n, "urls", "collected_artifacts_step_id") {
			fault(l, n.Get(f), f, "step.load.target", "can't be loaded into an environment; set agent_name, sandbox_name, or container_name with sandbox_name")
		}
	}
}

func checkLoadSource(n doc.Node, l *diag.List) {
	together(n, l, "artifact_version", "artifact_id")
	var have []string
	for _, f := range setAmong(n, "artifacts", "artifact_id", "urls", "artifact_from_step_id", "collected_artifacts_step_id") {
		if v := n.Get(f); v.Kind() != doc.Array || v.Len() > 0 {
			have = append(have, f)
		}
	}
	switch strings.Join(have, " ") {
	case "":
		fault(l, n, "", "step.load.empty", "names nothing to load; set artifacts, artifact_id, urls, artifact_from_step_id or collected_artifacts_step_id")
	case "artifacts urls", "artifact_id urls": // both kinds of files land in one folder
	default:
		if len(have) > 1 {
			fault(l, n.Get(have[1]), have[1], "step.load.source", "%s are several sources; keep one", words(have))
		}
	}
	// An empty list beside an id says two things.
	if a := n.Get("artifacts"); a.Kind() == doc.Array && a.Len() == 0 && set(n, "artifact_id") {
		fault(l, a, "artifacts", "step.load.source", "is empty beside artifact_id; keep one")
	}
}

// checkDownloads refuses file names that would leave the folder, and two downloads under one name.
func checkDownloads(n doc.Node, l *diag.List) {
	taken := map[string]bool{}
	for i, e := range n.Get("urls").Items() {
		file := DownloadName(e)
		switch {
		case file == "." || file == ".." || strings.ContainsAny(file, "/\\\x00"):
			fault(l, e, at("urls", i), "step.load.filename", "%s is no plain file name; give the download a filename", diag.Repr(file))
		case taken[file]:
			fault(l, e, at("urls", i), "step.load.filename", "would be kept as %s, as another download is; give it a filename of its own", diag.Repr(file))
		}
		taken[file] = true
	}
}

// DownloadName is the file name under which an element of load_artifact's urls is kept: its filename, or what its URL's path ends in.
func DownloadName(e doc.Node) string {
	if e.Kind() == doc.Object {
		return e.Get("filename").Text()
	}
	u, err := url.Parse(e.Text())
	if err != nil {
		return "downloaded"
	}
	if base := path.Base(u.Path); base != "." && base != "/" {
		return base
	}
	return "downloaded"
}

func addSkills() *Kind {
	return &Kind{
		Name: "add_skills", Doc: "registers skills on an agent, also for loaded CLIs and files and those that an environment serves",
		Fields: doc.Schema{Fields: []doc.Field{
			may("skills", list(table(
				may("name", name(), nil, "name of the skill"),
				may("description", name(), nil, "when to use it"),
				may("body", text(), nil, "source: text of SKILL.md below its front matter"),
				may("license", text(), nil, "front matter"),
				may("compatibility", text(), nil, "front matter"),
				may("metadata", tableOf(text()), nil, "front matter"),
				may("allowed_tools", text(), nil, "front matter"),
				may("skill_artifact_id", name(), nil, "source: a skill of the store"),
				may("skill_artifact_version", version(), nil, "its version; absent: the latest"),
				user(may("object_url", name(), nil, "source: a folder of the object store")),
			)), []any{}, "skills to add"),
			may("cli_artifact_ids", list(name()), []any{}, "CLIs that were loaded before"),
			may("file_artifact_universe_ids", list(name()), []any{}, "files that were loaded before"),
			may("env_id", name(), nil, "environment whose skill is added, and a computer's apps' skills with it"),
			may("agent_name", name(), DefaultAgent, "agent that gets them"),
		}},
		Refs: []Ref{
			artifact("skills[].skill_artifact_id", "skill_artifact_version", typeSkill),
			artifact("cli_artifact_ids[]", "", typeCLI),
			artifact("file_artifact_universe_ids[]", "", ""),
			env("env_id", ""),
		},
		Check: func(n doc.Node, l *diag.List) {
			for i, s := range n.Get("skills").Items() {
				checkSkill(s, at("skills", i), l)
			}
		},
	}
}

// checkSkill holds what a skill's one source allows beside it.
func checkSkill(s doc.Node, where string, l *diag.List) {
	sources := setAmong(s, "body", "object_url", "skill_artifact_id")
	if len(sources) != 1 {
		if len(sources) == 0 {
			fault(l, s, where, "step.skill.source", "names no source; set body, object_url or skill_artifact_id")
		} else {
			fault(l, s, where, "step.skill.source", "%s are several sources; keep one", words(sources))
		}
		return
	}
	front := []string{"license", "compatibility", "metadata", "allowed_tools"}
	if sources[0] != "body" {
		for _, f := range setAmong(s, front...) {
			fault(l, s.Get(f), where+"."+f, "step.skill.front", "has no effect beside %s: that skill has its own SKILL.md", sources[0])
		}
	}
	if sources[0] == "skill_artifact_id" {
		return
	}
	together(s, l, "skill_artifact_version", "skill_artifact_id")
	for _, f := range []string{"name", "description"} {
		if !set(s, f) {
			fault(l, s, where, "step.skill.front", "needs %s", f)
		}
	}
}

func collectArtifacts() *Kind {
	return &Kind{
		Name: "collect_artifacts", Doc: "copies files out of an agent, environment, sandbox or container and stores them",
		Fields: doc.Schema{Fields: []doc.Field{
			may("agent_name", name(), DefaultAgent, "source: a deployed agent"),
			may("env_id", name(), nil, "source: a desktop environment"),
			may("sandbox_name", name(), nil, "source: a deployed sandbox"),
			may("container_name", name(), nil, "source: a container of sandbox_name"),
			may("base_path", name(), "/app/artifact", "folder that the paths begin from"),
			may("artifacts_key", name(), "expected_artifacts", "key under which a manifest or seed lists paths"),
			may("artifact_paths", list(name()), nil, "files to copy"),
			may("manifest_step_id", name(), nil, "prompt step whose structured output lists the files"),
			may("exclude_basenames", list(name()), nil, "file names that are left out"),
			may("universe_id_suffix", name(), nil, "ending of the stored id, where a run collects twice"),
		}},
		Refs: []Ref{env("env_id", "")},
		Check: func(n doc.Node, l *diag.List) {
			together(n, l, "container_name", "sandbox_name")
			from := setAmong(n, "env_id", "sandbox_name")
			// The default agent's name, spelled out beside another source, says nothing.
			if a, _ := n.Get("agent_name").Str(); a != "" && a != DefaultAgent {
				from = append(from, "agent_name")
			}
			if len(from) > 1 {
				fault(l, n.Get(from[1]), from[1], "step.conflict", "%s are several sources; keep one", words(from))
			}
		},
	}
}

func snapshotEnv() *Kind {
	return &Kind{
		Name: "snapshot_env", Doc: "exports an environment's data as a new universe",
		Fields: doc.Schema{Fields: []doc.Field{
			may("env_id", name(), nil, "deployed environment"),
			user(may("env_instance_id", name(), nil, "deployment by its own id")),
			may("env_step_id", name(), nil, "deploy_env step meant, where an environment is deployed twice"),
			may("gateway_url", name(), nil, "gateway by its URL"),
			may("snapshot_id", name(), nil, "id of the universe that is written"),
			may("original_universe_artifact_id", name(), nil, "universe that was loaded"),
			may("export_timeout_seconds", seconds(), 600, "limit of each export"),
			may("include_env_trajectory", flag(), false, "keeps the log of tool calls too"),
			may("include_env_changes", flag(), false, "keeps the log of changes too"),
		}},
		Refs: []Ref{
			env("env_id", ""),
			{Path: "snapshot_id", Kind: ref.Artifact, Type: typeUniverse, Out: true},
			artifact("original_universe_artifact_id", "", typeUniverse),
		},
		Check: func(n doc.Node, l *diag.List) {
			if len(setAmong(n, "env_id", "env_instance_id", "env_step_id", "gateway_url")) == 0 {
				fault(l, n, "", "step.snapshot.source", "names no environment; set env_id")
			}
		},
	}
}

func snapshotComputerEnv() *Kind {
	return &Kind{
		Name: "snapshot_computer_env", Doc: "exports a computer's files and its apps' data as one new universe",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "deployed computer"),
			may("env_step_id", name(), nil, "deploy_env step meant, where the computer is deployed twice"),
			must("snapshot_id", name(), "id of the universe that is written"),
			may("file_paths", list(name()), nil, "files of the computer to keep"),
			may("data_get_params", tableOf(anyTable()), nil, "parameters of data/get by environment name"),
			may("export_timeout_seconds", seconds(), 600, "limit of each export"),
		}},
		Refs: []Ref{
			env("env_id", ""),
			{Path: "snapshot_id", Kind: ref.Artifact, Type: typeUniverse, Out: true},
		},
	}
}

func snapshotAgentState() *Kind {
	return &Kind{
		Name: "snapshot_agent_state", Doc: "stores an agent's conversation and workspace",
		Fields: doc.Schema{Fields: []doc.Field{
			may("artifact_id", name(), nil, "id of what is written"),
			must("prompt_id", name(), "prompt whose conversation is kept"),
			may("agent_name", name(), DefaultAgent, "deployed agent"),
			may("env_id", name(), nil, "environment that belongs to the snapshot"),
			may("universe_artifact_id", name(), nil, "universe that was loaded into it"),
			may("timeout_seconds", seconds(), 120, "limit of the agent's export"),
		}},
		Refs: []Ref{
			{Path: "artifact_id", Kind: ref.Artifact, Type: typeFiles, Out: true},
			env("env_id", ""),
			artifact("universe_artifact_id", "", typeUniverse),
		},
	}
}

func buildMCPCLI() *Kind {
	return &Kind{
		Name: "build_mcp_cli", Doc: "makes a command-line client of an environment's tools",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "deployed environment"),
			must("command_name", doc.Type{Kinds: []doc.Kind{doc.String}, Check: isCommand}, "name of the command"),
			may("cli_artifact_id", name(), nil, "id of what is written; absent: that of the environment with __cli"),
		}},
		Refs: []Ref{
			env("env_id", ""),
			{Path: "cli_artifact_id", Kind: ref.Artifact, Type: typeCLI, Out: true, From: "env_id", Suffix: "__cli"},
		},
	}
}

var commandName = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_-]*$`)

func isCommand(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if !commandName().MatchString(s) && !templated(s) {
		fault(l, n, "", "step.cli.command", "%s is no command name (a letter, then letters, digits, _ and -)", diag.Repr(s))
	}
}
