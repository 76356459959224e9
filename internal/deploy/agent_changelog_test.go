package deploy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/artifact"
)

func TestIncrements(t *testing.T) {
	files := func(names ...string) (out []artifact.Bytes) {
		for _, n := range names {
			out = append(out, artifact.Bytes{Path: n})
		}
		return out
	}
	for _, tt := range []struct {
		names  []string
		before int64
		want   string
	}{
		{[]string{"000010.tar.gz", "000002", "000001.tar"}, -1, "[1 2 10]"},
		{[]string{"000010.tar", "000002", "000001.tar"}, 10, "[1 2]"},
		{[]string{"000010.tar"}, 0, "[]"},
		{nil, -1, "[]"},
		{[]string{"1.tar"}, -1, "it has a file '1.tar'"},
		{[]string{"000001/a"}, -1, "it has a file '000001/a'"},
		{[]string{"000001.tar", "000001"}, -1, "'000001' are of one tool call"},
	} {
		got, err := incrementsOf(files(tt.names...), tt.before)
		seq := []int64{}
		for _, x := range got {
			seq = append(seq, x.sequence)
		}
		if text := fmt.Sprint(seq); err != nil && !strings.Contains(err.Error(), tt.want) || err == nil && text != tt.want {
			t.Errorf("%v before %d: %s, %v", tt.names, tt.before, text, err)
		}
	}
}

// staged is an agent's staging as a test wants it: its list, and objects by name. Each object may be fetched once with its tag.
type staged struct {
	list    string
	objects map[string]string
	tag     string // that holds at a removal
}

func (s *staged) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body, head := http.StatusOK, s.list, http.Header{}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case r.Method == http.MethodDelete && r.Header.Get("If-Match") != s.tag:
		status, body = http.StatusPreconditionFailed, ""
	case r.Method == http.MethodDelete:
		status, body = http.StatusNoContent, ""
		delete(s.objects, name)
	case name != "":
		body = s.objects[name]
		head.Set("ETag", "one")
	}
	return &http.Response{StatusCode: status, Header: head, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
}

// TestFetchIncrements: what an agent stages is taken once, and what it says wrongly of it never gets out of the folder.
func TestFetchIncrements(t *testing.T) {
	objects := func(name string, size int64) string {
		return fmt.Sprintf(`{"objects":[{"path":%q,"size_bytes":%d}]}`, name, size)
	}
	for name, tt := range map[string]struct {
		agent staged
		want  string
		left  int
	}{
		"taken":        {staged{objects("000001.tar", 3), map[string]string{"000001.tar": "abc"}, "one"}, "", 0},
		"changed":      {staged{objects("000001.tar", 3), map[string]string{"000001.tar": "abc"}, "two"}, "", 1},
		"none":         {staged{`{"objects":[]}`, nil, ""}, "", 0},
		"shorter":      {staged{objects("000001.tar", 4), map[string]string{"000001.tar": "abc"}, "one"}, "is not of the 4 bytes", 1},
		"longer":       {staged{objects("000001.tar", 2), map[string]string{"000001.tar": "abc"}, "one"}, "is not of the 2 bytes", 1},
		"outside":      {staged{objects("../000001.tar", 3), map[string]string{"000001.tar": "abc"}, "one"}, "no name of an increment", 1},
		"another name": {staged{objects("note.txt", 3), map[string]string{"note.txt": "abc"}, "one"}, "no name of an increment", 1},
		"too large":    {staged{objects("000001.tar", 2<<30), nil, "one"}, "more than is kept", 0},
		"negative":     {staged{objects("000001.tar", -1), nil, "one"}, "has -1 bytes", 0},
		"no list":      {staged{`[]`, nil, "one"}, "another form", 0},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := a2a.New("http://agent.test", &tt.agent)
			if err != nil {
				t.Fatal(err)
			}
			c := &Changelog{stage: &stage{client, "/ext/staging/x"}, dir: t.TempDir()}
			err = c.fetch(t.Context())
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
			if len(tt.agent.objects) != tt.left {
				t.Errorf("%d objects are left", len(tt.agent.objects))
			}
			got, err := filepath.Glob(filepath.Join(c.dir, "*"))
			if err != nil || tt.want == "" && len(got) != len(c.have) {
				t.Errorf("%v, %v are kept: %v", got, c.have, err)
			}
			if tt.want != "" || tt.left == 0 {
				return
			}
			tt.agent.list, tt.agent.objects["000001.tar"], tt.agent.tag = objects("000001.tar", 5), "later", "one"
			if err := c.fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(c.dir, "000001.tar"))
			if err != nil || string(b) != "later" || c.size != 5 || len(c.have) != 1 {
				t.Errorf("%q of %d bytes: %v", b, c.size, err)
			}
		})
	}
}

// removals is staged, whose removals may be counted while it is asked.
type removals struct {
	staged
	removed atomic.Int32
}

func (c *removals) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.staged.RoundTrip(r)
	if err == nil && res.StatusCode == http.StatusNoContent {
		c.removed.Add(1)
	}
	return res, err
}

// TestFollowIncrements: they are fetched while the agent works, every few seconds.
func TestFollowIncrements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := removals{staged: staged{`{"objects":[{"path":"000001.tar","size_bytes":3}]}`, map[string]string{"000001.tar": "abc"}, "one"}}
		client, err := a2a.New("http://agent.test", &agent)
		if err != nil {
			t.Fatal(err)
		}
		c := &Changelog{stage: &stage{client, "/ext/staging/x"}, dir: t.TempDir()}
		stop := c.Follow(t.Context())
		time.Sleep(fetchEvery - time.Millisecond)
		synctest.Wait()
		if agent.removed.Load() != 0 {
			t.Error("it was fetched at once")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		stop()
		if len(agent.objects) != 0 || len(c.have) != 1 {
			t.Errorf("%v is left, %v are kept", agent.objects, c.have)
		}
		(*Changelog)(nil).Follow(t.Context())()
	})
}

func FuzzReadStaged(f *testing.F) {
	f.Add(`{"objects":[{"path":"000001.tar","size_bytes":3,"etag":"\"1-3\""}]}`)
	f.Add(`{"objects":[{"path":"../x","size_bytes":-3}]}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := readStaged(strings.NewReader(s))
		for _, o := range got {
			if err != nil || o.Size < 0 {
				t.Fatalf("%q is read as %+v, %v", s, got, err)
			}
		}
	})
}
