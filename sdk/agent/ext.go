package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

// extension is one offer on the card, and the operations behind it.
type extension struct {
	card wire.Extension
	ops  []operation
}

// operation is one route. request and response are what the card says of them, "" nothing.
type operation struct {
	name, verb, path  string
	request, response string
	serve             func(ctx context.Context, body []byte) (any, error)
}

// newExtension describes operations as a card does: an operation whose path is not the endpoint says so.
func newExtension(uri, description, endpoint string, ops ...operation) (extension, bool, error) {
	p := wire.Params{Endpoint: endpoint}
	for _, o := range ops {
		m := wire.Method{Name: o.name, Verb: o.verb, Request: json.RawMessage(o.request)}
		if o.path != endpoint {
			m.Endpoint = o.path
		}
		if o.response != "" {
			m.Extra = []wire.Member{{Name: "response", Value: json.RawMessage(o.response)}}
		}
		p.Methods = append(p.Methods, m)
	}
	raw, err := encode(p)
	if err != nil {
		return extension{}, false, fmt.Errorf("extension %s: %w", uri, err)
	}
	return extension{card: wire.Extension{URI: uri, Description: description, Params: raw}, ops: ops}, true, nil
}

// Refusal is an answer of an extension that is no success. Its text is shown to whoever called.
type Refusal struct {
	Status int // of HTTP
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

// Refuse is what a hook returns to answer a status and a text; other errors are crashes.
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *Refusal {
	return Refuse(http.StatusBadRequest, format, args...)
}

// maxExtBody is how long a call of an extension may be, in bytes.
const maxExtBody = wire.MaxA2ABody

func (a *Agent) serveOperation(uri string, o operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxExtBody))
		switch {
		case err != nil:
			if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
				err = Refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", maxExtBody)
			} else {
				err = invalid("the body can't be read")
			}
		case r.URL.RawQuery != "":
			err = invalid("the call takes no query")
		case o.verb == http.MethodGet && len(body) > 0:
			err = invalid("the call takes no body")
		}
		var out any
		if err == nil {
			out, err = guarded(func() (any, error) { return o.serve(r.Context(), body) })
		}
		if err == nil {
			var b json.RawMessage
			if b, err = encode(out); err == nil {
				answer(w, http.StatusOK, "application/json", b)
				return
			}
		}
		a.answerFailure(w, r, uri+" "+o.name, err)
	})
}

// answerFailure tells of a failure: transfers in JSON, everything else as text.
func (a *Agent) answerFailure(w http.ResponseWriter, r *http.Request, what string, err error) {
	const text = "text/plain; charset=utf-8"
	if t, ok := errors.AsType[*transfer.Error](err); ok {
		b, _ := encode(map[string]any{"error": map[string]any{"code": t.Code, "message": t.Message, "retryable": t.Retryable}}) // texts always encode
		answer(w, t.Status, "application/json", b)
		return
	}
	if f, ok := errors.AsType[*Refusal](err); ok && f.Status >= 400 && f.Status < 600 {
		answer(w, f.Status, text, []byte(f.Text))
		return
	}
	answer(w, http.StatusInternalServerError, text, []byte(a.crash(r.Context(), what, err)))
}

// fields reads an object that admits only known members, and collects all that is wrong, by name and never by value.
type fields struct {
	values map[string]json.RawMessage // null counts as absent
	bad    []string
}

func readFields(body []byte, known ...string) (*fields, error) {
	ms, err := wire.ParseObject(body)
	if err != nil {
		return nil, invalid("the body: %v", err)
	}
	f := &fields{values: map[string]json.RawMessage{}}
	for _, m := range ms {
		switch {
		case !slices.Contains(known, m.Name):
			f.fail(quoted(m.Name), "there is no such field")
		case string(m.Value) != "null":
			f.values[m.Name] = m.Value
		}
	}
	return f, nil
}

// quoted is a name of a stranger's, shortened and safe to show.
func quoted(name string) string {
	if len(name) > 64 {
		cut := 64
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "…"
	}
	return strconv.Quote(name)
}

func (f *fields) fail(name, format string, args ...any) {
	f.bad = append(f.bad, name+": "+fmt.Sprintf(format, args...))
}

func (f *fields) has(name string) bool { _, ok := f.values[name]; return ok }

// text is a text that isn't blank.
func (f *fields) text(name string, required bool) string {
	raw, ok := f.values[name]
	if !ok {
		if required {
			f.fail(name, "it is missing")
		}
		return ""
	}
	var s string
	switch {
	case json.Unmarshal(raw, &s) != nil:
		f.fail(name, "want a text")
	case strings.TrimSpace(s) == "":
		f.fail(name, "it must not be blank")
	}
	return s
}

// integer is a whole number, written as one.
func (f *fields) integer(name string, least, most, absent int64) int64 {
	raw, ok := f.values[name]
	if !ok {
		return absent
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case err != nil:
		f.fail(name, "want a whole number")
	case n < least, n > most:
		f.fail(name, "want a number from %d to %d", least, most)
	}
	return n
}

func (f *fields) texts(name string) map[string]string {
	raw, ok := f.values[name]
	if !ok {
		return nil
	}
	ms, err := wire.ParseObject(raw)
	if err != nil {
		f.fail(name, "want an object of texts")
		return nil
	}
	out := make(map[string]string, len(ms))
	for _, m := range ms {
		var s string
		if json.Unmarshal(m.Value, &s) != nil || string(m.Value) == "null" {
			f.fail(name+"."+quoted(m.Name), "want a text")
		}
		out[m.Name] = s
	}
	return out
}

// list is the elements of a list.
func (f *fields) list(name string, required bool) []json.RawMessage {
	raw, ok := f.values[name]
	var out []json.RawMessage
	switch {
	case !ok && required:
		f.fail(name, "it is missing")
	case ok && json.Unmarshal(raw, &out) != nil:
		f.fail(name, "want a list")
	}
	return out
}

// member reads a member by a function; nothing is read when it is absent.
func member[T any](f *fields, name string, required bool, read func([]byte) (T, error)) T {
	var none T
	raw, ok := f.values[name]
	if !ok {
		if required {
			f.fail(name, "it is missing")
		}
		return none
	}
	v, err := read(raw)
	if err != nil {
		f.fail(name, "%v", err)
	}
	return v
}

// err is all that was wrong, sorted.
func (f *fields) err() error {
	if len(f.bad) == 0 {
		return nil
	}
	slices.Sort(f.bad)
	return invalid("%s", strings.Join(f.bad, "; "))
}
