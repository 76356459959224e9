package pack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
)

// Slug is a name as an id and a folder's name: lower-case letters, digits and dashes; "plugin" where nothing is left.
func Slug(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if len(words) == 0 {
		return "plugin"
	}
	return strings.Join(words, "-")
}

// quoted is a text as YAML, on one line.
func quoted(text string) string { return string(doc.JSON(doc.Build(text))) }

// lines takes a name and a summary, one line each.
func lines(name, summary string) (_, _ string, err error) {
	for _, text := range []string{name, summary} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return "", "", fmt.Errorf("%s is no line of text", diag.Repr(text))
		}
	}
	if name = strings.TrimSpace(name); name == "" {
		return "", "", errors.New("the name is empty")
	}
	return name, strings.TrimSpace(summary), nil
}

// Parts are what a new git plugin begins with.
type Parts struct {
	Skill    bool // what its agent knows how to do
	View     bool // a page
	Workflow bool
	Comms    bool // an MCP server through which its agent writes to people and reads what they say
	Tests    bool // a script that looks at the plugin as an install does
}

// NewPlugin is the files of a new git plugin, by their names, and its id. It brings a skill where no other part is asked for.
func NewPlugin(name, summary string, parts Parts) (files map[string]string, id string, err error) {
	if name, summary, err = lines(name, summary); err != nil {
		return nil, "", err
	}
	id = Slug(name)
	if err := git.CheckID(id); err != nil {
		return nil, "", err
	}
	if slices.Contains(git.CoreSections(), id) {
		return nil, "", fmt.Errorf("%s is a section of the program's own, which no plugin's settings may have; choose another name", diag.Repr(id))
	}
	if summary == "" {
		summary = "What " + name + " is good for."
	}
	if !parts.View && !parts.Workflow && !parts.Comms {
		parts.Skill = true
	}
	var manifest, readme strings.Builder
	fmt.Fprintf(&manifest, `id: %s
name: %s
version: 0.1.0
description: %s
# command: [bin/%s]      # a program that speaks the plugin protocol, with agentenv_plugin.json beside this file
# requires_env: []       # variables without which it can't be used
# config: {}             # defaults of its settings
# secrets: []            # keys of config that are secret
`, quoted(id), quoted(name), quoted(summary), id)
	fmt.Fprintf(&readme, "# %s\n\n%s\n\nInstall it with `agent-env plugin install URL`, and turn it on with `agent-env plugin enable %s`.\n", name, summary, id)
	files = map[string]string{}
	if parts.Skill {
		files["skills/"+id+"/SKILL.md"] = fmt.Sprintf("---\nname: %s\ndescription: %s\n---\n\nSay here, step by step, what an agent is to do.\n", quoted(id), quoted(summary))
	}
	if parts.View {
		page := "views/" + id + ".html"
		fmt.Fprintf(&manifest, "views:\n  - { id: %s, label: %s, path: %s }\n", quoted(id), quoted(name), quoted("/plugins/"+id+"/"+page))
		files[page] = fmt.Sprintf("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>%s</title>\n"+
			"<script type=\"module\" src=\"%s.js\"></script>\n<h1>%s</h1>\n<p>%s</p>\n<p id=\"out\"></p>\n</html>\n", markup(name), id, markup(name), markup(summary))
		files["views/"+id+".js"] = viewScript
	}
	if parts.Workflow {
		files["workflows/"+id+".yaml"] = fmt.Sprintf("name: %s\ndescription: %s\nsteps:\n  - { id: look, prompt: Say here what is to be found out first. }\n  - { id: act, prompt: Say here what is to be done with it., depends_on: [look] }\n",
			quoted(id), quoted(summary))
	}
	if parts.Comms {
		fmt.Fprintf(&manifest, `mcp:
  - template: { name: %s, transport: stdio, command: ./bin/%s, env: { MESSAGES: "${messages}" } }
    inputs: [{ key: messages, label: File of its messages, required: true }]
`, quoted(id), id)
		files["bin/"+id] = commsServer
		fmt.Fprintf(&readme, "\nIts agent writes to people with the tool `send` and reads their words with `read`, both kept in a file, one JSON object a line. Name it in the workspace's\n"+
			"configuration; `bin/%s` is where your service takes its place:\n\n```toml\n[git_plugins.config.%s]\nmessages = \"/path/to/messages.jsonl\"\n```\n", id, id)
	}
	if parts.Tests {
		files["tests/check.sh"] = testScript(id, parts)
		readme.WriteString("\n`tests/check.sh` looks at the last commit as an install does.\n")
	}
	files[git.PluginFile], files["README.md"] = manifest.String(), readme.String()
	return files, id, nil
}

// viewScript is the script of a new page.
const viewScript = `// The console shows this page in a frame of its own: it has no storage, sends no form, and loads files from this folder alone, by relative addresses.
document.getElementById("out").textContent = "Its script runs.";
`

// markup is a text as HTML shows it.
func markup(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

func testScript(id string, parts Parts) string {
	out := `#!/bin/sh
# Looks at the last commit as an install does.
set -eu
cd "$(dirname "$0")/.."
agent-env plugin peek "$PWD"
`
	if parts.Comms {
		out += `file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send","arguments":{"text":"hello"}}}' | MESSAGES=$file bin/` + id + ` > /dev/null
grep -q hello "$file"
`
	}
	return out + "echo ok\n"
}

// commsServer is an MCP server, of Python's standard library alone, whose messages are lines of a file.
const commsServer = `#!/usr/bin/env python3
"""An MCP server on stdin and stdout: its agent sends messages to people, and reads theirs.

Messages are lines of the file that MESSAGES names. Let send and read talk to your service instead.
"""
import json
import os
import sys

FILE = os.environ["MESSAGES"]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "send", "description": "Send a message to people.", "inputSchema": TEXT},
    {"name": "read", "description": "Read all messages, oldest first.", "inputSchema": {"type": "object", "properties": {}}},
]


def send(text):
    with open(FILE, "a", encoding="utf-8") as f:
        f.write(json.dumps({"from": "agent", "text": text}) + "\n")
    return "sent"


def read():
    if not os.path.exists(FILE):
        return ""
    with open(FILE, encoding="utf-8") as f:
        return f.read()


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "comms", "version": "0.1.0"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        try:
            text = send(arguments["text"]) if params["name"] == "send" else read()
        except (KeyError, OSError) as e:
            return {"content": [{"type": "text", "text": str(e)}], "isError": True}
        return {"content": [{"type": "text", "text": text}]}
    if method == "ping":
        return {}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params") or {})
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "there is no such method"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
`

// ReadMember reads a member as people write it: ID=URL or ID=URL@REF.
func ReadMember(text string) (Member, error) {
	id, url, ok := strings.Cut(text, "=")
	if !ok {
		return Member{}, fmt.Errorf("%s is no member; write ID=URL or ID=URL@REF", diag.Repr(text))
	}
	m := Member{ID: id, URL: url}
	if err := git.CheckID(id); err != nil {
		return Member{}, err
	}
	// An @ may belong to the URL (git@host:path): the one before the ref is the last behind which there is a ref, and before which a URL.
	if i := strings.LastIndexByte(url, '@'); i > 0 && url[i+1:] != "" && git.CheckRef(url[i+1:]) == nil {
		if _, err := git.ParseSource(url[:i]); err == nil {
			m.URL, m.Ref = url[:i], url[i+1:]
		}
	}
	var err error
	m.Source, err = git.ParseSource(m.URL)
	return m, err
}

// NewBundle is the files of a new plugin bundle, by their names, and its id. Without members it has a line to replace.
func NewBundle(name, summary string, members []Member) (files map[string]string, id string, err error) {
	if name, summary, err = lines(name, summary); err != nil {
		return nil, "", err
	}
	id = Slug(name)
	if err := git.CheckID(id); err != nil {
		return nil, "", err
	}
	if summary == "" {
		summary = "What the plugins of " + name + " do together."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "id: %s\nname: %s\ndescription: %s\nplugins:\n", quoted(id), quoted(name), quoted(summary))
	var on []string
	for _, m := range members {
		on = append(on, quoted(m.ID))
		switch {
		case m.Builtin:
			fmt.Fprintf(&b, "  - { id: %s, builtin: true }\n", quoted(m.ID))
		case m.Ref != "":
			fmt.Fprintf(&b, "  - { id: %s, url: %s, ref: %s }\n", quoted(m.ID), quoted(m.URL), quoted(m.Ref))
		default:
			fmt.Fprintf(&b, "  - { id: %s, url: %s }\n", quoted(m.ID), quoted(m.URL))
		}
	}
	if len(members) == 0 {
		b.WriteString("  - { id: REPLACE_ME, url: https://example.com/REPLACE_ME, ref: v0.1.0 }\n")
	}
	fmt.Fprintf(&b, "enabled: [%s] # empty: every member\n", strings.Join(on, ", "))
	if _, l := Parse(git.BundleFile, []byte(b.String())); l.HasErrors() {
		return nil, "", l.Err()
	}
	return map[string]string{git.BundleFile: b.String()}, id, nil
}
