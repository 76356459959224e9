package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/trajectory"
)

// base gathers what a reader hears.
type base struct {
	heard
	now func() time.Time
}

func newBase() base { return base{now: time.Now} }

func (b *base) sofar() []trajectory.Event { return b.events }

func (b *base) end(out *heard) { *out = b.heard }

// at is a time as the command wrote it, or now.
func (b *base) at(t time.Time) time.Time {
	if t.IsZero() {
		return b.now()
	}
	return t
}

// answer is the model's message that is being heard: the last event when it is one, else a new one.
func (b *base) answer(at time.Time) *trajectory.Event {
	if n := len(b.events); n > 0 && b.events[n-1].Kind == trajectory.Answered {
		return &b.events[n-1]
	}
	return b.newAnswer(at)
}

func (b *base) newAnswer(at time.Time) *trajectory.Event {
	b.events = append(b.events, trajectory.Event{At: b.at(at), Kind: trajectory.Answered})
	return &b.events[len(b.events)-1]
}

// call adds a call to the model's message.
func (b *base) call(e *trajectory.Event, id, name string, args json.RawMessage) {
	b.calls++
	c := trajectory.Call{ID: id, Name: name, Arguments: args}
	if a := bytes.TrimSpace(args); len(a) == 0 || a[0] != '{' || !json.Valid(a) {
		c.Arguments = json.RawMessage("{}")
		if len(a) > 0 && string(a) != "null" {
			c.Malformed = string(a)
		}
	}
	e.Calls = append(e.Calls, c)
}

func (b *base) returned(at time.Time, id, text string, failed bool) {
	b.events = append(b.events, trajectory.Event{At: b.at(at), Kind: trajectory.Returned, Call: id, Text: text, Error: failed})
}

// fail keeps the first fault.
func (b *base) fail(f *Fault) {
	if b.fault == nil {
		b.fault = f
	}
}

// join puts a text after another as a paragraph of its own.
func join(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + "\n\n" + b
}

// content is a text, or the texts of a list of parts; pictures and what else is there are named.
func content(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return string(raw)
	}
	var out strings.Builder
	for _, p := range list {
		var part struct {
			Type     string  `json:"type"`
			Text     *string `json:"text"`
			MimeType string  `json:"mimeType"`
			Source   struct {
				Media string `json:"media_type"`
			} `json:"source"`
		}
		if json.Unmarshal(p, &part) != nil {
			continue
		}
		switch {
		case part.Text != nil:
			out.WriteString(*part.Text)
		case part.Type == "image":
			fmt.Fprintf(&out, "[image %s]", part.MimeType+part.Source.Media)
		default:
			fmt.Fprintf(&out, "[%s]", part.Type)
		}
	}
	return out.String()
}

var statusForm = lazyregexp.New(`(?i)(?:status(?: code)?|code|error|http)["':=\s]*([45][0-9]{2})\b|^\s*([45][0-9]{2})\b`)

// statusIn finds the status of an endpoint's answer in what a command says of it; 0 for none.
func statusIn(text string) int {
	m := statusForm().FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1] + m[2]) // three digits
	return n
}

// endpointFault is a fault of the model's endpoint by the status of its answer; 0 is none at all.
func endpointFault(status int, message string) *Fault {
	f := &Fault{Type: InfraError, Code: CodeModel, Message: message}
	switch {
	case status == 400 || status == 413 || status == 422:
		f.Type, f.Code = AgentError, CodeRequest
	case status == 0 || status == 408 || status == 409 || status == 429 || status >= 500:
		f.Passing = true
	}
	return f
}

// structuredIn is the JSON that a text is, alone or within one fence.
func structuredIn(text string) json.RawMessage {
	t := strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(t, "```"); ok {
		inner = strings.TrimPrefix(inner, "json")
		if inner, ok = strings.CutSuffix(inner, "```"); ok {
			t = strings.TrimSpace(inner)
		}
	}
	if t == "" || t[0] != '{' && t[0] != '[' || !json.Valid([]byte(t)) {
		return nil
	}
	return json.RawMessage(t)
}

// millis is a time as commands write it, in milliseconds.
func millis(ms int64) time.Time {
	if ms <= 0 || ms > 1<<53 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// stamp reads a time; the zero time for none.
func stamp(text string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

// jsonOf writes what can't fail: texts, numbers, lists and maps of them, and JSON that is valid.
func jsonOf(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// skillFiles are the files of skills below a folder.
func skillFiles(folder string, skills []Skill) []guest.PutFile {
	var out []guest.PutFile
	for _, s := range skills {
		for _, f := range s.Files {
			f.Path = folder + "/" + s.Name + "/" + f.Path
			out = append(out, f)
		}
	}
	return out
}

func file(path string, b []byte) guest.PutFile { return guest.PutBytes(path, 0o644, b) }
