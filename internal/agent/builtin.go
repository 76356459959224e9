package agent

import (
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// BuiltinRoot begins the ids of the agents that come with the program.
const BuiltinRoot = "@local/agentenv-framework/agents/"

// Loop is the built-in agent that runs in this program; the other built-in ones are commands that are installed where they run.
const Loop = BuiltinRoot + "loop"

// Builtins are the short names of the agents that come with the program, sorted. Their ids are BuiltinRoot and the name.
func Builtins() []string {
	return []string{"claude-code", "codex", "gemini", "loop", "opencode", "openhands", "pi"}
}

// BuiltinID is the id of the built-in agent that text names, by its id or its short name.
func BuiltinID(text string) (id string, ok bool) {
	name := strings.TrimPrefix(text, BuiltinRoot)
	if slices.Contains(Builtins(), name) {
		return BuiltinRoot + name, true
	}
	return "", false
}

// Elsewhere tells the address of an agent that is served elsewhere, and by which a step may name it: an http or https URL.
func Elsewhere(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// Unstored is the id of an agent that no store holds: a built-in one, or the address of one elsewhere.
func Unstored(text string) (id string, ok bool) {
	if Elsewhere(text) {
		return text, true
	}
	return BuiltinID(text)
}

// NearBuiltin is the built-in agent that was likely meant; "" for none.
func NearBuiltin(text string) string {
	return diag.Nearest(strings.TrimPrefix(text, BuiltinRoot), Builtins())
}
