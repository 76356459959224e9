package git

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's own object ids
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// bombed makes a repository whose tree lists 10^depth entries: each tree names the one below ten times.
func bombed(t *testing.T, depth int, leaf bool) *gittest.Repo {
	t.Helper()
	r := gittest.Plugin(t, "p")
	mktree := func(lines string) string {
		cmd := exec.CommandContext(t.Context(), "git", "--git-dir="+r.Bare, "mktree")
		cmd.Stdin = strings.NewReader(lines)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	manifest := r.Git("--git-dir="+r.Bare, "rev-parse", "HEAD:"+PluginFile)
	tree := mktree("")
	if leaf {
		tree = mktree("100644 blob " + manifest + "\tf\n")
	}
	for range depth {
		var b strings.Builder
		for i := range 10 {
			fmt.Fprintf(&b, "040000 tree %s\td%d\n", tree, i)
		}
		tree = mktree(b.String())
	}
	root := mktree("100644 blob " + manifest + "\t" + PluginFile + "\n040000 tree " + tree + "\tx\n")
	commit := r.Git("--git-dir="+r.Bare, "-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m", "x", root)
	r.Git("--git-dir="+r.Bare, "update-ref", "HEAD", commit)
	return r
}

// Row 43: a few trees that list 10^9 files, or folders without any, are refused at once.
func TestTreesThatListWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, leaf := range []bool{false, true} {
		bomb := bombed(t, 9, leaf)
		begin := time.Now()
		_, err := install(t.Context(), newStore(t), false, Want{URL: bomb.URL()})
		if err == nil || !strings.Contains(err.Error(), "more files and folders than can be listed (20000 files are allowed)") || time.Since(begin) > 30*time.Second {
			t.Errorf("files %t: after %s: %v", leaf, time.Since(begin), err)
		}
	}
}

// packet is one line of git's protocol.
func packet(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

// smart serves one repository over git's old protocol: refs are the lines after the first, and pack is what a fetch gets.
func smart(t *testing.T, refs func(io.Writer), pack func(io.Writer)) string {
	t.Helper()
	const head = "1111111111111111111111111111111111111111"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if path.Base(r.URL.Path) == "refs" {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, packet("# service=git-upload-pack\n")+"0000"+packet(head+" HEAD\x00side-band-64k shallow multi_ack_detailed\n"))
			if refs != nil {
				refs(w)
			}
			_, _ = io.WriteString(w, packet(head+" refs/heads/main\n")+"0000")
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		_, _ = io.WriteString(w, packet("shallow "+head)+"0000")
		if bytes.HasSuffix(body, []byte("0009done\n")) {
			_, _ = io.WriteString(w, packet("NAK\n"))
			pack(w)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/o/r"
}

// sideband sends a pack in packets.
func sideband(w io.Writer, pack []byte) {
	for len(pack) > 0 {
		n := min(len(pack), 60_000)
		_, _ = io.WriteString(w, packet("\x01"+string(pack[:n])))
		pack = pack[n:]
	}
	_, _ = io.WriteString(w, "0000")
}

// packOf is a pack with one commit of size bytes, nearly all of them zeros.
func packOf(t *testing.T, size int) []byte {
	t.Helper()
	b := bytes.NewBufferString("PACK")
	_ = binary.Write(b, binary.BigEndian, [2]uint32{2, 1})
	c, n := byte(1<<4|size&15), size>>4
	for ; n > 0; n >>= 7 {
		b.WriteByte(c | 0x80)
		c = byte(n & 0x7f)
	}
	b.WriteByte(c)
	z, err := zlib.NewWriterLevel(b, zlib.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for left := size; left > 0; left -= len(zeros) {
		if _, err := z.Write(zeros[:min(left, len(zeros))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha1.Sum(b.Bytes()) //nolint:gosec // git's own
	return append(b.Bytes(), sum[:]...)
}

// Row 43: what a server sends takes neither memory nor time without end.
func TestServersThatSendWithoutEnd(t *testing.T) {
	endless := func(w io.Writer, line string) {
		for {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}
	many := strings.Repeat(packet(sha+" refs/heads/"+strings.Repeat("y", 900)+"\n"), 100)
	for name, c := range map[string]struct {
		refs, pack func(io.Writer)
		want       string
	}{
		"refs":    {refs: func(w io.Writer) { endless(w, many) }, want: "more than 64 MiB of memory"},
		"remarks": {pack: func(w io.Writer) { endless(w, packet("\x02"+strings.Repeat("z", 900)+"\n")) }, want: "more than 4 MiB of remarks"},
		"a complaint": {
			refs: func(w io.Writer) { _, _ = io.WriteString(w, packet("ERR \x1b[31m"+strings.Repeat("x", 60_000))) }, want: "xxx…",
		},
		"a large object": {pack: func(w io.Writer) { sideband(w, packOf(t, 100<<20)) }, want: "more than 64 MiB of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, func(o *Options) { o.Policy.PlainHTTP, o.Fetch.Memory = true, 64<<20 })
			_, err := install(t.Context(), s, false, Want{URL: smart(t, c.refs, c.pack)})
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("%v", err)
			}
			if len(staged(t, s)) > 0 {
				t.Error("something is left")
			}
		})
	}
}

// Row 33: a server that sends git elsewhere and answers nothing more is given up.
func TestRedirectThatHangs(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.UserAgent(), "git/") {
			select {
			case <-stop:
			case <-r.Context().Done():
			}
			return
		}
		http.Redirect(w, r, "/elsewhere/r/info/refs?service=git-upload-pack", http.StatusFound)
	}))
	defer s.Close()
	defer close(stop)
	store := newStore(t, func(o *Options) { o.Policy.PlainHTTP, o.Fetch.Lookup = true, time.Second })
	begin := time.Now()
	_, err := install(t.Context(), store, false, Want{URL: s.URL + "/o/r"})
	if err == nil || !strings.Contains(err.Error(), "it is redirected: ask 127.0.0.1") || !errors.Is(err, errSlow) || time.Since(begin) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}

// Git's last words don't say what is wrong with an object, its first ones do.
func TestRefusedObjectIsNamed(t *testing.T) {
	t.Parallel()
	const said = "error: object 9bc26ffb0934a4ffa1319d516ea88edbdf28b885: gitmodulesPath: disallowed submodule path: -x\nfatal: fsck error in packed object\nfatal: fetch-pack: invalid index-pack output\n"
	if got := NewFetcher(FetchOptions{Env: os.LookupEnv}).explain(said); got != "git refuses what it holds: gitmodulesPath: disallowed submodule path: -x" {
		t.Error(got)
	}
}

// A mirror that leads on and on is given up at once, and one that leads elsewhere too.
func TestMirrorThatRedirects(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if strings.HasPrefix(r.URL.Path, "/far/") {
			http.Redirect(w, r, "http://elsewhere.invalid/"+mirrorIndex, http.StatusFound)
			return
		}
		http.Redirect(w, r, r.URL.Path, http.StatusFound)
	}))
	defer s.Close()
	for at, want := range map[string]string{s.URL: "it leads on more often than can be meant", s.URL + "/far": "it leads elsewhere, to elsewhere.invalid"} {
		asked = 0
		if _, err := openMirror(t.Context(), at); err == nil || !strings.Contains(err.Error(), want) || asked > 2*maxRedirects {
			t.Errorf("%s: asked %d times: %v", at, asked, err)
		}
	}
}
