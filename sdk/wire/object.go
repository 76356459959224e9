package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// member is one name and value of a JSON object, as read.
type member struct {
	name  string
	value json.RawMessage
}

// parseObject reads one JSON object, in order, and refuses duplicate names and anything after it. Unlike encoding/json's own struct decoding
// it tells "Name" from "name".
func parseObject(b []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	t, err := d.Token()
	if err != nil {
		return nil, syntax(err)
	}
	if t != json.Delim('{') {
		return nil, errors.New("want a JSON object")
	}
	var out []member
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, syntax(err)
		}
		name, ok := t.(string)
		if !ok {
			return nil, errors.New("want a JSON object")
		}
		if seen[name] {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		seen[name] = true
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, at(name, syntax(err))
		}
		out = append(out, member{name, raw})
	}
	if _, err := d.Token(); err != nil {
		return nil, syntax(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return out, nil
}

// ParseObject reads one JSON object, in order; a name that is there twice is an error, and so is anything that follows.
func ParseObject(b []byte) ([]Member, error) {
	ms, err := parseObject(b)
	if err != nil {
		return nil, err
	}
	out := make([]Member, len(ms))
	for i, m := range ms {
		out[i] = Member{m.name, m.value}
	}
	return out, nil
}

func syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends too early")
	}
	return errors.New("not valid JSON")
}

// at puts the name of a member before an error about its value.
func at(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

func isNull(raw json.RawMessage) bool {
	t := bytes.TrimSpace(raw)
	return len(t) == 0 || string(t) == "null"
}

// readInto decodes one value, null leaving into as it is, with errors in words of JSON.
func readInto(raw json.RawMessage, into any) error {
	if isNull(raw) {
		return nil
	}
	err := json.Unmarshal(raw, into)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := map[string]string{"string": "a string", "bool": "true or false", "int": "a whole number", "int64": "a whole number", "slice": "a list", "map": "an object"}[e.Type.Kind().String()]
		if want == "" {
			want = "another type"
		}
		return fmt.Errorf("want %s, not %s", want, e.Value)
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntax(err)
	}
	return err
}

// readList decodes a list, element by element; null is nil.
func readList[T any](raw json.RawMessage) ([]T, error) {
	if isNull(raw) {
		return nil, nil
	}
	var raws []json.RawMessage
	if err := readInto(raw, &raws); err != nil {
		return nil, err
	}
	out := make([]T, len(raws))
	for i, r := range raws {
		if isNull(r) {
			return nil, fmt.Errorf("[%d]: null is no element", i)
		}
		if err := readInto(r, &out[i]); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return out, nil
}

// writer builds a JSON object in the order of its calls.
type writer struct {
	b   bytes.Buffer
	err error
}

func (w *writer) put(name string, value any) {
	if w.err != nil {
		return
	}
	v, err := encode(value)
	if err != nil {
		w.err = at(name, err)
		return
	}
	n, err := encode(name)
	if err != nil {
		w.err = err
		return
	}
	if w.b.Len() == 0 {
		w.b.WriteByte('{')
	} else {
		w.b.WriteByte(',')
	}
	w.b.Write(n)
	w.b.WriteByte(':')
	w.b.Write(v)
}

// putOr writes null in place of an empty text or absent raw value.
func (w *writer) putOr(name, value string) {
	if value == "" {
		w.put(name, nil)
		return
	}
	w.put(name, value)
}

func (w *writer) some(name, value string) {
	if value != "" {
		w.put(name, value)
	}
}

func (w *writer) raw(name string, value json.RawMessage) {
	if len(value) > 0 {
		w.put(name, value)
	}
}

func (w *writer) extra(ms []Member) {
	for _, m := range ms {
		w.put(m.Name, m.Value)
	}
}

func (w *writer) bytes() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	if w.b.Len() == 0 {
		return []byte("{}"), nil
	}
	w.b.WriteByte('}')
	return w.b.Bytes(), nil
}

// encode is json.Marshal that leaves <, > and & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Member is a member of an object: of a card one that this package doesn't know, which is kept and written again after those that it knows.
type Member struct {
	Name  string
	Value json.RawMessage
}
