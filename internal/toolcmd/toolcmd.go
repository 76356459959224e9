// Package toolcmd is commands that call the tools of an environment from a shell: how they are made and stored, and what one does when it is run.
//
// A tool command is one file, the entrypoint of a "cli" artifact. Its first line names this program as what runs it, as sandboxes see it, and the rest is
// a Command as JSON: no other program is needed where it runs. It finds its environment at the URL in AGENT_ENV_GATEWAY_URL, of the process or of the file
// .env beside it, which is written where it is installed. In which role it calls is decided by the door at that URL. The package installs nothing and prints
// nothing.
package toolcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/internal/sandbox"
)

const (
	// Verb is the command of this program that runs a tool command's file.
	Verb = "tool-command"
	// URLVariable says where the environment's gateway is: its base, without /mcp.
	URLVariable = "AGENT_ENV_GATEWAY_URL"
	// EnvFile lies beside the entrypoint of every installed cli and sets URLVariable.
	EnvFile = ".env"

	format  = 1
	maxFile = 64 << 20
)

// Command is what a tool command's file holds.
type Command struct {
	Format      int    `json:"format_version"`
	Name        string `json:"command"`
	Environment string `json:"environment"` // what its MCP server is called
	Tools       []Tool `json:"tools"`
}

// Tool is one tool, as the environment listed it.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"inputSchema"`
}

// New makes a command of entries of tools/list.
func New(name, environment string, entries []json.RawMessage) (Command, error) {
	c := Command{Format: format, Name: name, Environment: environment, Tools: []Tool{}}
	for _, e := range entries {
		t, err := readTool(e)
		if err != nil {
			return c, err
		}
		c.Tools = append(c.Tools, t)
	}
	return c, nil
}

func readTool(entry []byte) (Tool, error) {
	var t Tool
	if err := json.Unmarshal(entry, &t); err != nil || t.Name == "" {
		return t, errors.New("the environment lists a tool that can't be read")
	}
	if rawjson.Kind(t.Schema) != '{' {
		t.Schema = json.RawMessage(`{"type":"object"}`)
	}
	return t, nil
}

// File is the content of the file.
func (c Command) File() ([]byte, error) {
	b, err := json.Marshal(c)
	return append([]byte("#!"+sandbox.SelfPath+" "+Verb+"\n"), append(b, '\n')...), err
}

// Entrypoint is the path of the file in its artifact.
func (c Command) Entrypoint() string { return "bin/" + c.Name }

// Parse reads a file's content.
func Parse(b []byte) (Command, error) {
	if bytes.HasPrefix(b, []byte("#!")) {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	var c Command
	err := json.Unmarshal(b, &c)
	switch {
	case err != nil || c.Format == 0:
		return c, errors.New("this is no command that agent-env has made of an environment's tools")
	case c.Format != format:
		return c, fmt.Errorf("the command was made by another version of agent-env: its format is %d, and this version reads %d", c.Format, format)
	}
	for _, t := range c.Tools {
		if t.Name == "" || rawjson.Kind(t.Schema) != '{' {
			return c, errors.New("the command's list of tools is damaged: a tool has no name or no schema")
		}
	}
	return c, nil
}

// Open reads the file at a path, which may be a link to it, and tells where its environment is: "" when nothing says so.
func Open(name string, getenv func(string) (string, bool)) (c Command, url string, err error) {
	if name, err = filepath.EvalSymlinks(name); err != nil {
		return c, "", err
	}
	f, err := os.Open(name)
	if err != nil {
		return c, "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return c, "", err
	}
	if c, err = Parse(b); err != nil {
		return c, "", fmt.Errorf("%s: %w", name, err)
	}
	if url, ok := getenv(URLVariable); ok && url != "" {
		return c, url, nil
	}
	beside, err := os.ReadFile(filepath.Join(filepath.Dir(name), EnvFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return c, "", err
	}
	return c, variable(string(beside), URLVariable), nil
}

// EnvFileOf is the content of EnvFile for an environment at a URL.
func EnvFileOf(url string) []byte { return []byte(URLVariable + "=" + url + "\n") }

// variable is the value of a name in lines of NAME=value.
func variable(lines, name string) string {
	for line := range strings.Lines(lines) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && k == name {
			return v
		}
	}
	return ""
}

// EnvFileBeside is the path of EnvFile for an entrypoint.
func EnvFileBeside(entrypoint string) string { return path.Join(path.Dir(entrypoint), EnvFile) }
