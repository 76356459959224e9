package modelproxy

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentenv.internal/agentenv/internal/redact"
)

// Line is x as a line of a record, without secrets: also without those that an answer's stream spells in several events.
func Line(x Exchange, r *redact.Redactor) ([]byte, error) {
	x.Response = clean(x.Response, r)
	b, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	return append(r.JSON(b), '\n'), nil
}

// clean takes secrets out of an answer: a stream's events are read, and the texts of one field are looked at as one.
func clean(answer string, r *redact.Redactor) string {
	if !streamed(answer) {
		if b := []byte(answer); json.Valid(b) {
			return string(r.JSON(b))
		}
		return r.String(answer)
	}
	lines := strings.SplitAfter(answer, "\n")
	docs := map[int]any{} // by line
	fields := map[string]*field{}
	for i, line := range lines {
		data, ok := strings.CutPrefix(line, "data:")
		if !ok {
			continue
		}
		d := json.NewDecoder(strings.NewReader(data))
		d.UseNumber()
		var doc any
		if d.Decode(&doc) != nil {
			continue
		}
		docs[i] = doc
		typ := ""
		if o, ok := doc.(map[string]any); ok {
			typ, _ = o["type"].(string)
		}
		collect(fields, typ, doc, i)
	}
	changed := map[int]bool{}
	for _, f := range fields {
		texts := make([]string, len(f.texts))
		for i, t := range f.texts {
			texts[i] = t.is
		}
		for i, s := range r.Pieces(texts) {
			if s != texts[i] {
				f.texts[i].set(s)
				changed[f.texts[i].line] = true
			}
		}
	}
	for i, line := range lines {
		data, ok := strings.CutPrefix(line, "data:")
		if !ok {
			lines[i] = r.String(line)
			continue
		}
		if changed[i] {
			if b, err := plain(docs[i]); err == nil {
				data = " " + b + data[len(strings.TrimRight(data, "\r\n")):]
			}
		}
		if b := []byte(strings.TrimSpace(data)); json.Valid(b) {
			data = strings.Replace(data, string(b), string(r.JSON(b)), 1)
		} else {
			data = r.String(data)
		}
		lines[i] = "data:" + data
	}
	return strings.Join(lines, "")
}

// plain is a document as JSON, its texts as they are.
func plain(doc any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(doc)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// field is all texts that a stream has at one place of its events, in order.
type field struct{ texts []text }

type text struct {
	line int
	is   string
	set  func(string)
}

// collect finds the texts of a document. Where a text is in a list does not make it another field: calls come one after the other.
func collect(fields map[string]*field, at string, v any, line int) {
	add := func(at, s string, set func(string)) {
		f := fields[at]
		if f == nil {
			f = &field{}
			fields[at] = f
		}
		f.texts = append(f.texts, text{line, s, set})
	}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if s, ok := e.(string); ok {
				add(at+"."+k, s, func(s string) { v[k] = s })
			} else {
				collect(fields, at+"."+k, e, line)
			}
		}
	case []any:
		for i, e := range v {
			if s, ok := e.(string); ok {
				add(at+"[]", s, func(s string) { v[i] = s })
			} else {
				collect(fields, at+"[]", e, line)
			}
		}
	}
}
