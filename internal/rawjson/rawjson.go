// Package rawjson finds the members of JSON objects by their position, so that values travel as the bytes that they came in.
//
// Members looks at bytes in memory, Finder at bytes as they pass. Nothing is decoded but names of members; what a value means is the caller's.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
)

// ErrSyntax tells that bytes are no JSON, or not the JSON that was asked for.
var ErrSyntax = errors.New("invalid JSON")

// Member is one member of an object. Value is a part of the object's bytes, without the spaces around it.
type Member struct {
	Name  string
	Value []byte
}

// Members yields the members of an object in their order. The bytes must be valid JSON (json.Valid); of anything but an object there are none.
func Members(object []byte) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		i := space(object, 0)
		if i >= len(object) || object[i] != '{' {
			return
		}
		for i = space(object, i+1); i < len(object) && object[i] == '"'; {
			end := stringEnd(object, i)
			name := object[i:end]
			i = space(object, end)
			i = space(object, i+1) // the colon
			end = valueEnd(object, i)
			if !yield(Member{unquote(name), object[i:end]}) {
				return
			}
			if i = space(object, end); i < len(object) && object[i] == ',' {
				i = space(object, i+1)
			}
		}
	}
}

// Elements yields the elements of an array, which must be valid JSON.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := space(array, 0)
		if i >= len(array) || array[i] != '[' {
			return
		}
		for i = space(array, i+1); i < len(array) && array[i] != ']'; {
			end := valueEnd(array, i)
			if !yield(array[i:end]) {
				return
			}
			if i = space(array, end); i < len(array) && array[i] == ',' {
				i = space(array, i+1)
			}
		}
	}
}

// Get is the value of the last member of that name; nil when there is none.
func Get(object []byte, name string) []byte {
	var out []byte
	for m := range Members(object) {
		if m.Name == name {
			out = m.Value
		}
	}
	return out
}

// Pick finds several members of an object, checking the whole: values[i] is set to that of names[i], nil when it is missing. An error tells that the
// bytes are no JSON, no object, or that one of the names comes twice, which readers after us could understand differently.
func Pick(object []byte, names []string, values [][]byte) error {
	if !json.Valid(object) {
		return ErrSyntax
	}
	if Kind(object) != '{' {
		return fmt.Errorf("%w: not an object", ErrSyntax)
	}
	for m := range Members(object) {
		for i, n := range names {
			if m.Name != n {
				continue
			}
			if values[i] != nil {
				return fmt.Errorf("%w: member %q comes twice", ErrSyntax, n)
			}
			values[i] = m.Value
		}
	}
	return nil
}

// Kind is the first byte of a value, which tells what it is: { [ " t f n - or a digit. Of nothing it is 0.
func Kind(value []byte) byte {
	if i := space(value, 0); i < len(value) {
		return value[i]
	}
	return 0
}

// IsNull tells whether a value is missing or null.
func IsNull(value []byte) bool {
	k := Kind(value)
	return k == 0 || k == 'n'
}

// Text is the string that a value spells; false when the value is no string.
func Text(value []byte) (string, bool) {
	value = bytes.TrimSpace(value)
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), true
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return "", false
	}
	return s, true
}

// AppendString appends a string as JSON, with no more escapes than JSON needs.
func AppendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func unquote(name []byte) string {
	s, _ := Text(name)
	return s
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// stringEnd is behind the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// valueEnd is behind the value that begins at i.
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		for depth := 0; i < len(b); {
			switch b[i] {
			case '"':
				i = stringEnd(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] != ' ' && b[i] != '\n' && b[i] != '\t' && b[i] != '\r' {
		i++
	}
	return i
}
