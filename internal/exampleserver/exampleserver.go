// Package exampleserver is the servers of the example bundles, as roles of this program: `agent-env serve NAME` runs one, so that the examples need
// no image and no tool chain. They are written with sdk/env alone, as anybody's would be.
package exampleserver

import (
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"strings"

	"agentenv.internal/agentenv/sdk/env"
)

//go:embed skills
var skills embed.FS

// Names are the servers there are, sorted.
func Names() []string { return []string{"echo-mcp", "inbox-mcp", "mail-mcp"} }

// New makes a server; nil when there is none of that name. lookup is where it reads MCP_HOST, MCP_PORT and ENVIRONMENT_NAME.
func New(name string, lookup func(string) (string, bool)) *env.Env {
	switch name {
	case "echo-mcp":
		return newEcho(env.WithLookup(lookup))
	case "inbox-mcp":
		return newInbox(env.WithLookup(lookup))
	case "mail-mcp":
		return newMail(env.WithLookup(lookup))
	}
	return nil
}

func newEcho(opts ...env.Option) *env.Env {
	e := env.New("echo", opts...)
	type input struct {
		Text string `json:"text" jsonschema:"What comes back."`
	}
	env.AddTool(e, "echo", "Answer with the text that was sent.", func(_ context.Context, in input) (string, error) { return in.Text, nil })
	return e
}

type email struct {
	ID      string `json:"id"`
	From    string `json:"from"`
	Subject string `json:"subject"`
	Body    string `json:"body"`
}

// inbox is what the mail server holds; nothing changes it.
func inbox() []email {
	return []email{
		{"m-1", "billing@acme-supplies.example", "Invoice INV-1042 for October", "Invoice INV-1042 for $2,740.00 is due on November 15."},
		{"m-2", "dana@example.com", "Team lunch on Friday", "Pizza at noon in the kitchen."},
		{"m-3", "it@example.com", "Your password expires soon", "Choose a new password within 7 days."},
	}
}

func newMail(opts ...env.Option) *env.Env {
	e := env.New("mail", opts...)
	type input struct {
		Query string `json:"query" jsonschema:"Words that an email must all hold, in its sender, subject or body."`
	}
	env.AddTool(e, "search_emails", "Find emails of the inbox by words, in any case; answers a JSON list of them.", func(_ context.Context, in input) (string, error) {
		b, err := json.Marshal(search(in.Query))
		return string(b), err
	})
	if folder, err := fs.Sub(skills, "skills/mail"); err == nil { // it fails for names that are no path, and this one is
		e.ServeSkill("mail", "How to find emails. Read it before searching the inbox.", folder)
	}
	return e
}

// search is the emails that hold every word of query, whatever its case; all of them for a query without words.
func search(query string) []email {
	out := []email{}
	words := strings.Fields(strings.ToLower(query))
next:
	for _, m := range inbox() {
		text := strings.ToLower(strings.Join([]string{m.ID, m.From, m.Subject, m.Body}, " "))
		for _, w := range words {
			if !strings.Contains(text, w) {
				continue next
			}
		}
		out = append(out, m)
	}
	return out
}
