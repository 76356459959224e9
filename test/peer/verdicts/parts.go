package verdicts

import (
	"strconv"
	"strings"
)

// box deploys the sandbox that the other steps use.
const box = `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"}`

// task is a task of a sandbox and more steps.
func task(steps ...string) string {
	return "[" + strings.Join(append([]string{box}, steps...), ",\n ") + "]"
}

// loads is a task that loads artifacts into a sandbox.
func loads(names ...string) string {
	steps := make([]string, len(names))
	for i, name := range names {
		steps[i] = load("l"+strconv.Itoa(i), `"artifact_id":`+strconv.Quote(name))
	}
	return task(steps...)
}

// load is a load_artifact step with more members.
func load(id, members string) string {
	return `{"id":` + strconv.Quote(id) + `,"type":"load_artifact","sandbox_name":"box",` + members + `}`
}

// resets is a task that resets environments.
func resets(names ...string) string {
	steps := make([]string, len(names))
	for i, name := range names {
		steps[i] = `{"id":"r` + strconv.Itoa(i) + `","type":"reset_env","env_id":` + strconv.Quote(name) + `}`
	}
	return task(steps...)
}

// cards is a task that reads the cards of agents.
func cards(names ...string) string {
	steps := make([]string, len(names))
	for i, name := range names {
		steps[i] = `{"id":"c` + strconv.Itoa(i) + `","type":"verify_a2a_agent_card","a2a_agent_id":` + strconv.Quote(name) + `}`
	}
	return task(steps...)
}

// base is the smallest bundle that runs.
func base() Tree { return Tree{"tasks/t.json": loads("f"), "artifacts/f/x": "1"} }

// onBase is the smallest bundle and more.
func onBase(name, row string, more Tree) Input {
	return Input{Name: name, Row: row, Files: base().with(more)}
}

// artifactOf is a bundle whose task loads the artifact g: its toml and more.
func artifactOf(name, row, toml string, more Tree) Input {
	t := Tree{"tasks/t.json": loads("g")}.with(more)
	if toml != "" {
		t["artifacts/g/artifact.toml"] = toml
	}
	return Input{Name: name, Row: row, Files: t}
}
