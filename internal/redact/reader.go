package redact

import "io"

// Reader reads in without the secrets that are known as it is read, those included that come in several pieces. It holds a piece and no more.
func (r *Redactor) Reader(in io.Reader) io.Reader {
	if r.current() == nil {
		return in
	}
	return &reader{r: r, in: in, buf: make([]byte, 32<<10)}
}

type reader struct {
	r    *Redactor
	in   io.Reader
	buf  []byte
	held string // what may be the beginning of a secret
	out  string // ready to be read
	err  error
}

func (r *reader) Read(p []byte) (int, error) {
	for r.out == "" {
		if r.err != nil {
			return 0, r.err
		}
		var n int
		n, r.err = r.in.Read(r.buf)
		s := r.held + string(r.buf[:n])
		cut := len(s)
		if r.err == nil {
			cut -= r.r.Open(s)
		}
		whole := r.r.String(s)
		if split := r.r.String(s[:cut]) + r.r.String(s[cut:]); split != whole { // a secret lies across the cut
			r.out, r.held = whole, ""
		} else {
			r.out, r.held = r.r.String(s[:cut]), s[cut:]
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}
