package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/redact"
)

func TestOutputLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	var r redact.Redactor
	r.Add("hunter22")
	o := &outputLog{path: path, redact: &r}
	for _, p := range []string{"a hun", "ter22 b hunt", "ed\n", "hunter2"} {
		if n, err := o.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	read := func() string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(); got != "a *** b hunted\n" { // what may be a secret's beginning waits
		t.Errorf("%q", got)
	}
	line := []byte(strings.Repeat("x", 1<<10-1) + "\n")
	for range 5 << 10 {
		o.Write(line)
	}
	o.Write([]byte("the end\n"))
	got := read()
	if len(got) > maxOutput || len(got) < maxOutput/2 || !strings.HasSuffix(got, "x\nthe end\n") || int64(len(got)) != o.size {
		t.Errorf("%d bytes, %d counted", len(got), o.size)
	}
	o.Write(bytes.Repeat([]byte("y"), 3*maxOutput/2)) // more than fits at once stays: nothing is lost of one piece
	if err := o.Close(); err != nil || !strings.HasSuffix(read(), "yyy") {
		t.Error(err)
	}
	if n, err := o.Write([]byte("late")); n != 4 || err != nil {
		t.Error(n, err)
	}
	if n, err := (&outputLog{}).Write([]byte("x")); n != 1 || err != nil {
		t.Error(n, err)
	}
}
