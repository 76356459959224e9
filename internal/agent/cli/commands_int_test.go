//go:build integration && !soak

package cli

import (
	"os"
	"strings"
)

// commandsVar names other profiles than the two that these tests take everywhere, separated by commas.
const commandsVar = "AGENTENV_TEST_COMMANDS"

func commands() []string {
	if v := os.Getenv(commandsVar); v != "" {
		return strings.Split(v, ",")
	}
	return []string{"claude-code", "opencode"}
}
