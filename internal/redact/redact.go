// Package redact takes the values of secrets out of texts, wherever the texts go: records, logs, messages.
//
// A value is found as it is, as JSON spells it inside a string, percent-encoded, and in base64; of a value of several lines each line is found by
// itself too. It knows values, not the names of fields.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Mask stands in place of a secret.
const Mask = "***"

// MinLen is the length in bytes of the shortest value that is taken out: shorter ones are in too many words.
const MinLen = 4

// Redactor holds the values that are known so far. The zero value knows none. Its methods may be called from several goroutines.
type Redactor struct {
	mu    sync.Mutex
	known map[string]bool
	state atomic.Pointer[state]
}

// state is what texts are compared with.
type state struct {
	forms    []string // longest first
	replacer *strings.Replacer
}

// Add makes a value known. Shorter ones than MinLen are left alone; the answer tells whether it counts.
func (r *Redactor) Add(value string) bool {
	if len(value) < MinLen {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[value] {
		return true
	}
	if r.known == nil {
		r.known = map[string]bool{}
	}
	r.known[value] = true
	var all []string
	for v := range r.known {
		all = append(all, forms(v)...)
	}
	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	all = slices.Compact(all)
	pairs := make([]string, 0, 2*len(all))
	for _, f := range all {
		pairs = append(pairs, f, Mask)
	}
	r.state.Store(&state{all, strings.NewReplacer(pairs...)})
	return true
}

// forms are the spellings of a value that are looked for.
func forms(v string) []string {
	out := []string{v}
	if lines := strings.FieldsFunc(v, func(c rune) bool { return c == '\n' || c == '\r' }); len(lines) > 1 || len(lines) == 1 && lines[0] != v {
		for _, l := range lines {
			if l = strings.TrimSpace(l); len(l) >= MinLen {
				out = append(out, l)
			}
		}
	}
	for _, f := range slices.Clone(out) {
		for _, html := range []bool{true, false} {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(html)
			_ = e.Encode(f) // a string: it can't fail
			out = append(out, strings.Trim(strings.TrimSuffix(b.String(), "\n"), `"`))
		}
	}
	out = append(out, url.QueryEscape(v), url.PathEscape(v))
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		out = append(out, enc.EncodeToString([]byte(v)))
	}
	return out
}

// String is s without the secrets.
func (r *Redactor) String(s string) string {
	st := r.current()
	if st == nil {
		return s
	}
	return st.replacer.Replace(s)
}

// JSON is b, which must be JSON, without the secrets in its strings, names of members included, whatever escapes spell them. A number that holds one
// becomes a string. It is b itself when nothing changes.
func (r *Redactor) JSON(b []byte) []byte {
	st := r.current()
	if st == nil || !st.in(b) && !bytes.Contains(b, []byte(`\`)) {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		end := i + 1
		switch c := b[i]; {
		case c == '"':
			for end < len(b) && b[end] != '"' {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(b))
			out = append(out, st.quoted(b[i:end])...)
		case c == '-' || c >= '0' && c <= '9':
			for end < len(b) && strings.IndexByte("+-.eE0123456789", b[end]) >= 0 {
				end++
			}
			if st.in(b[i:end]) {
				out = append(out, `"`+Mask+`"`...)
			} else {
				out = append(out, b[i:end]...)
			}
		default:
			out = append(out, c)
		}
		i = end
	}
	if bytes.Equal(out, b) {
		return b
	}
	return out
}

// quoted is one JSON string without the secrets.
func (st *state) quoted(b []byte) []byte {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return b
	}
	clean := st.replacer.Replace(s)
	if clean == s {
		return b
	}
	out, _ := json.Marshal(clean) // a string: it can't fail
	return out
}

func (r *Redactor) current() *state {
	if r == nil {
		return nil
	}
	return r.state.Load()
}

func (st *state) in(b []byte) bool {
	for _, f := range st.forms {
		if bytes.Contains(b, []byte(f)) {
			return true
		}
	}
	return false
}

// Open is how many bytes at the end of s may be the beginning of a secret that goes on in what follows; 0 for none.
func (r *Redactor) Open(s string) int {
	st := r.current()
	if st == nil {
		return 0
	}
	most := 0
	for _, f := range st.forms {
		for n := min(len(s), len(f)-1); n > most; n-- {
			if f[n-1] == s[len(s)-1] && strings.HasSuffix(s, f[:n]) {
				most = n
			}
		}
	}
	return most
}

// Across takes out a secret that begins in a and ends in b, which follows it without a gap, and whatever either holds by itself.
func (r *Redactor) Across(a, b string) (string, string) {
	st := r.current()
	if st == nil {
		return a, b
	}
	if n := r.Open(a); n > 0 {
		for ; n > 0; n-- {
			tail := a[len(a)-n:]
			for _, f := range st.forms {
				if len(f) > n && strings.HasPrefix(f, tail) && strings.HasPrefix(b, f[n:]) {
					return st.replacer.Replace(a[:len(a)-n]) + Mask, st.replacer.Replace(b[len(f)-n:])
				}
			}
		}
	}
	return st.replacer.Replace(a), st.replacer.Replace(b)
}

// Pieces takes secrets out of a text that comes in pieces: of one that lies across them, the piece that it begins in has the mask and the others lose
// their part of it. What one piece holds by itself goes too. It is p itself when nothing changes.
func (r *Redactor) Pieces(p []string) []string {
	st := r.current()
	if st == nil {
		return p
	}
	whole := strings.Join(p, "")
	if !st.in([]byte(whole)) {
		return p
	}
	out := make([]string, 0, len(p))
	var b strings.Builder
	i := 0 // of whole: how far it has been looked at; beyond the end of a piece when a secret is
	end := 0
	for _, piece := range p {
		end += len(piece)
		b.Reset()
		from := i
		for i < end {
			n := st.at(whole[i:])
			if n == 0 {
				i++
				continue
			}
			b.WriteString(whole[from:i] + Mask)
			i += n
			from = i
		}
		if from < end {
			b.WriteString(whole[from:end])
		}
		out = append(out, b.String())
	}
	return out
}

// at is the length of the longest secret that s begins with; 0 for none.
func (st *state) at(s string) int {
	for _, f := range st.forms {
		if strings.HasPrefix(s, f) {
			return len(f)
		}
	}
	return 0
}

// Ends masks what may be parts of secrets where the middle of a text was left out: at the end of head, and at the beginning of tail. Parts shorter than
// MinLen are left alone.
func (r *Redactor) Ends(head, tail string) (string, string) {
	st := r.current()
	if st == nil {
		return head, tail
	}
	if n := r.Open(head); n >= MinLen {
		head = head[:len(head)-n] + Mask
	}
	most := 0
	for _, f := range st.forms {
		for n := min(len(tail), len(f)-1); n > most; n-- {
			if strings.HasPrefix(tail, f[len(f)-n:]) {
				most = n
			}
		}
	}
	if most >= MinLen {
		tail = Mask + tail[most:]
	}
	return head, tail
}
