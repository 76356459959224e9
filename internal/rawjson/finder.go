package rawjson

import (
	"bytes"
	"fmt"
)

// Span is where a value lies: bytes From up to To.
type Span struct{ From, To int64 }

// Len is how many bytes it has; 0 of a value that was not found.
func (s Span) Len() int64 { return s.To - s.From }

// maxName bounds what is kept of the name of a member.
const maxName = 128

// Finder finds the members of one object whose bytes pass through Write in parts of any size; it keeps none of them. It checks brackets and strings,
// not numbers and words: what is too large to hold is passed on as it came.
type Finder struct {
	names []string
	spans []Span

	off    int64
	stack  []byte // open brackets; bounded by maxDepth
	str    bool
	esc    bool
	name   []byte // of the member whose value is next or under way
	naming bool
	expect byte // at the object's own level: 'k' a name, ':' a colon, 'v' a value, 'V' within a value, ',' a comma; 0 before the object
	done   bool
	from   int64
}

// maxDepth bounds how deep brackets may nest, as the standard library does.
const maxDepth = 10000

// NewFinder looks for the members of the given names.
func NewFinder(names ...string) *Finder {
	return &Finder{names: names, spans: make([]Span, len(names))}
}

// Span is where the value of a name lies; of a name that comes twice, the last.
func (f *Finder) Span(name string) (Span, bool) {
	for i, n := range f.names {
		if n == name {
			return f.spans[i], f.spans[i].To > 0
		}
	}
	return Span{}, false
}

// End tells whether a whole object has passed, and nothing but spaces after it.
func (f *Finder) End() error {
	if !f.done {
		return fmt.Errorf("%w: it ends early", ErrSyntax)
	}
	return nil
}

// Write looks at the next bytes. Its error is ErrSyntax.
func (f *Finder) Write(p []byte) (int, error) {
	for i := 0; i < len(p); {
		if f.str {
			n := f.inString(p[i:])
			i += n
			f.off += int64(n)
			continue
		}
		if err := f.byte(p[i]); err != nil {
			return i, err
		}
		i++
		f.off++
	}
	return len(p), nil
}

// inString takes what belongs to the string that is open, and tells how many bytes that is.
func (f *Finder) inString(p []byte) int {
	end := len(p)
	if f.esc {
		f.esc = false
		end = 1
	} else if i := bytes.IndexAny(p, `"\`); i >= 0 {
		end = i + 1
		if p[i] == '\\' {
			f.esc = true
		} else {
			f.str = false
		}
	}
	if f.naming && len(f.name) < maxName {
		f.name = append(f.name, p[:min(end, maxName)]...)
	}
	if !f.str && f.naming {
		f.naming, f.expect = false, ':'
	} else if !f.str && len(f.stack) == 1 {
		f.value(f.off + int64(end))
	}
	return end
}

func (f *Finder) bad(c byte) error {
	return fmt.Errorf("%w: byte %d is %q", ErrSyntax, f.off, c)
}

// byte takes one byte outside of strings.
func (f *Finder) byte(c byte) error {
	blank := c == ' ' || c == '\n' || c == '\t' || c == '\r'
	if f.done || len(f.stack) == 0 {
		switch {
		case blank:
			return nil
		case f.done || c != '{':
			return f.bad(c)
		}
		f.stack, f.expect = append(f.stack, '{'), 'k'
		return nil
	}
	if len(f.stack) > 1 {
		return f.nested(c)
	}
	switch f.expect {
	case 'k', ':', ',':
		return f.between(c, blank)
	case 'v':
		if blank {
			return nil
		}
		f.from, f.expect = f.off, 'V'
		switch c {
		case '"':
			f.str = true
		case '{', '[':
			f.stack = append(f.stack, c)
		case ',', '}', ']', ':':
			return f.bad(c)
		}
		return nil
	}
	switch { // within a number or a word
	case blank:
		f.value(f.off)
	case c == ',' || c == '}':
		f.value(f.off)
		return f.between(c, false)
	case c == '"' || c == '{' || c == '[' || c == ']' || c == ':':
		return f.bad(c)
	}
	return nil
}

// between takes what stands between names and values of the object.
func (f *Finder) between(c byte, blank bool) error {
	switch {
	case blank:
	case f.expect == 'k' && c == '"':
		f.str, f.naming, f.name = true, true, append(f.name[:0], '"')
	case f.expect == ':' && c == ':':
		f.expect = 'v'
	case f.expect == ',' && c == ',':
		f.expect = 'k'
	case c == '}' && f.expect != ':':
		f.stack, f.done = f.stack[:0], true
	default:
		return f.bad(c)
	}
	return nil
}

func (f *Finder) nested(c byte) error {
	switch c {
	case '"':
		f.str = true
	case '{', '[':
		if len(f.stack) >= maxDepth {
			return fmt.Errorf("%w: nested too deep", ErrSyntax)
		}
		f.stack = append(f.stack, c)
	case '}', ']':
		if open := f.stack[len(f.stack)-1]; open == '{' && c != '}' || open == '[' && c != ']' {
			return f.bad(c)
		}
		if f.stack = f.stack[:len(f.stack)-1]; len(f.stack) == 1 {
			f.value(f.off + 1)
		}
	}
	return nil
}

// value ends the value of the member whose name was read.
func (f *Finder) value(to int64) {
	f.expect = ','
	name := unquote(f.name)
	for i, n := range f.names {
		if n == name {
			f.spans[i] = Span{f.from, to}
		}
	}
}
