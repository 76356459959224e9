package modelproxy

import (
	"bytes"
	"net/http"
)

// tee passes an answer on and keeps it, to a bound. The last piece waits for end, so that an agent never has a whole answer that is not recorded.
type tee struct {
	http.ResponseWriter
	status int
	kept   bytes.Buffer
	over   bool
	held   []byte
}

func (t *tee) WriteHeader(status int) {
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

func (t *tee) Write(b []byte) (int, error) {
	if t.status == 0 {
		t.WriteHeader(http.StatusOK)
	}
	if room := maxKept - t.kept.Len(); room < len(b) {
		t.over = true
		t.kept.Write(b[:max(0, room)])
	} else {
		t.kept.Write(b)
	}
	if len(b) == 0 {
		return 0, nil
	}
	if len(t.held) > 0 {
		if _, err := t.ResponseWriter.Write(t.held); err != nil {
			return 0, err
		}
		if f, ok := t.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
	}
	t.held = append(t.held[:0], b...)
	return len(b), nil
}

func (t *tee) end() {
	if len(t.held) > 0 {
		_, _ = t.ResponseWriter.Write(t.held) // its reader may have left
	}
}
