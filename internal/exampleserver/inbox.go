package exampleserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// Folders of a mailbox.
const (
	inInbox   = "inbox"
	inArchive = "archive"
	inSent    = "sent"
)

// letter is an email of a mailbox. To is who it was sent to, of those that were sent.
type letter struct {
	ID      string `json:"id"`
	From    string `json:"from"`
	To      string `json:"to,omitempty"`
	Subject string `json:"subject"`
	Body    string `json:"body"`
	Folder  string `json:"folder"`
}

// mailbox is what the inbox server holds: nothing until data is loaded.
type mailbox struct {
	mu      sync.Mutex
	owner   string
	letters []letter
}

// seed is what data/add takes and data/get gives.
type mailSeed struct {
	Owner  string   `json:"owner"`
	Emails []letter `json:"emails"`
}

// newInbox is a mailbox that can be loaded with emails and acted on.
func newInbox(opts ...env.Option) *env.Env {
	e := env.New("inbox", opts...)
	m := &mailbox{}
	type searchInput struct {
		Query  string `json:"query" jsonschema:"Words that an email must all hold, in its sender, subject or body. Empty finds all." default:""`
		Folder string `json:"folder" jsonschema:"inbox, archive or sent." default:"inbox"`
	}
	env.AddTool(e, "search_emails", "Find emails by words, in any case. Answers a JSON list of id, from, to and subject.", func(_ context.Context, in searchInput) (string, error) {
		return m.search(in.Query, in.Folder)
	})
	type idInput struct {
		ID string `json:"id" jsonschema:"The email's id."`
	}
	env.AddTool(e, "read_email", "Read one email whole, as JSON.", func(_ context.Context, in idInput) (string, error) { return m.read(in.ID) })
	env.AddTool(e, "archive_email", "Move an email from the inbox to the archive.", func(_ context.Context, in idInput) (string, error) { return m.archive(in.ID) })
	type sendInput struct {
		To      string `json:"to" jsonschema:"The address."`
		Subject string `json:"subject"`
		Body    string `json:"body"`
	}
	env.AddTool(e, "send_email", "Send an email.", func(_ context.Context, in sendInput) (string, error) { return m.send(in.To, in.Subject, in.Body) })
	e.OnReset(func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.owner, m.letters = "", nil
		return nil
	})
	e.OnAdd(m.add)
	e.OnGet(func(context.Context) ([]wire.Part, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		p, err := wire.DataPart(mailSeed{m.owner, append([]letter{}, m.letters...)})
		return []wire.Part{p}, err
	})
	return e
}

// add takes all of the inputs or none.
func (m *mailbox) add(ctx context.Context, inputs []*env.Input) error {
	var all []letter
	owner := ""
	for _, in := range inputs {
		var s mailSeed
		if err := in.Decode(ctx, &s); err != nil {
			return err
		}
		if s.Owner != "" {
			owner = s.Owner
		}
		all = append(all, s.Emails...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, l := range m.letters {
		seen[l.ID] = true
	}
	for i := range all {
		l := &all[i]
		if l.Folder == "" {
			l.Folder = inInbox
		}
		if l.ID == "" || seen[l.ID] || !slices.Contains([]string{inInbox, inArchive, inSent}, l.Folder) {
			return fmt.Errorf("email %d of the seed: it needs an id of its own, and a folder that is inbox, archive or sent", i+1)
		}
		seen[l.ID] = true
	}
	if owner != "" {
		m.owner = owner
	}
	m.letters = append(m.letters, all...)
	return nil
}

func (m *mailbox) search(query, folder string) (string, error) {
	type found struct {
		ID      string `json:"id"`
		From    string `json:"from"`
		To      string `json:"to,omitempty"`
		Subject string `json:"subject"`
	}
	words := strings.Fields(strings.ToLower(query))
	out := []found{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.letters {
		text := strings.ToLower(strings.Join([]string{l.ID, l.From, l.To, l.Subject, l.Body}, " "))
		if l.Folder == folder && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			out = append(out, found{l.ID, l.From, l.To, l.Subject})
		}
	}
	b, err := json.Marshal(out)
	return string(b), err
}

func (m *mailbox) find(id string) (*letter, error) {
	for i := range m.letters {
		if m.letters[i].ID == id {
			return &m.letters[i], nil
		}
	}
	return nil, env.Fail("no_email", "there is no email %q", id).WithHint("search_emails answers the ids")
}

func (m *mailbox) read(id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.find(id)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(l)
	return string(b), err
}

func (m *mailbox) archive(id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.find(id)
	if err != nil {
		return "", err
	}
	if l.Folder != inInbox {
		return "", env.Fail("not_in_inbox", "the email %q is in the folder %s", id, l.Folder)
	}
	l.Folder = inArchive
	return "archived " + id, nil
}

func (m *mailbox) send(to, subject, body string) (string, error) {
	if !strings.Contains(to, "@") {
		return "", env.Fail("no_address", "%q is no email address", to)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := fmt.Sprintf("s-%d", len(m.letters)+1)
	m.letters = append(m.letters, letter{ID: id, From: m.owner, To: to, Subject: subject, Body: body, Folder: inSent})
	return "sent as " + id, nil
}
