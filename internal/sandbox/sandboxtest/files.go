package sandboxtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// put writes one file into the box.
func put(t *testing.T, b guest.Box, name, text string) {
	t.Helper()
	a := pack(t, &tar.Header{Typeflag: tar.TypeReg, Name: path.Base(name), Mode: 0o644, Size: int64(len(text))}, text)
	if err := b.Extract(t.Context(), path.Dir(name), a); err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
}

// pack makes a tar of headers, each followed by its text when it is a regular file.
func pack(t *testing.T, entries ...any) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		var err error
		switch e := e.(type) {
		case *tar.Header:
			err = w.WriteHeader(e)
		case string:
			_, err = io.WriteString(w, e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func readFile(t *testing.T, s *suite) {
	box := s.box(t)
	put(t, box, "/tmp/ten", "0123456789")
	if b, err := box.ReadFile(t.Context(), "/tmp/ten", 10); err != nil || string(b) != "0123456789" {
		t.Errorf("a file at the limit: %q, %v", b, err)
	}
	if b, err := box.ReadFile(t.Context(), "/tmp/ten", 9); !errors.Is(err, guest.ErrTooBig) || b != nil {
		t.Errorf("a file above the limit: %q, %v, want ErrTooBig", b, err)
	}
	put(t, box, "/tmp/none", "")
	if b, err := box.ReadFile(t.Context(), "/tmp/none", 0); err != nil || len(b) != 0 {
		t.Errorf("an empty file: %q, %v", b, err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	put(t, box, "/tmp/big", big)
	if b, err := box.ReadFile(t.Context(), "/tmp/big", 1<<21); err != nil || string(b) != big {
		t.Errorf("a file of 1 MiB: %d bytes, %v", len(b), err)
	}
	if _, err := box.ReadFile(t.Context(), "/no/such", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v, want fs.ErrNotExist", err)
	}
	if _, err := box.ReadFile(t.Context(), "/tmp", 10); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a folder: %v, want EISDIR", err)
	}
	if !s.f.Real {
		return
	}
	output(t, box, argv("mkfifo", "/tmp/pipe"), guest.Limits{})
	for _, name := range []string{"/dev/zero", "/tmp/pipe", "/dev/ptmx"} {
		if _, err := box.ReadFile(t.Context(), name, 10); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s, which is no regular file: %v, want fs.ErrInvalid", name, err)
		}
	}
	if b, err := box.ReadFile(t.Context(), "/proc/uptime", 100); err != nil || len(b) == 0 {
		t.Errorf("a file without a size: %q, %v", b, err)
	}
}

func stat(t *testing.T, s *suite) {
	box := s.box(t)
	when := time.Unix(1700000000, 0)
	err := box.Extract(t.Context(), "/app", pack(t,
		&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o640, Size: 3, ModTime: when}, "abc",
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "f"},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "dangling", Linkname: "nowhere"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/app/f", "/app/l"} {
		info, err := box.Stat(t.Context(), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if info.Name() != path.Base(name) || info.Size() != 3 || info.Mode() != 0o640 || !info.ModTime().Equal(when) || info.IsDir() || info.Sys() != nil {
			t.Errorf("%s: %+v", name, info)
		}
	}
	if info, err := box.Stat(t.Context(), "/app"); err != nil || !info.IsDir() || !info.Mode().IsDir() {
		t.Errorf("a folder: %+v, %v", info, err)
	}
	for _, name := range []string{"/app/dangling", "/nope"} {
		if _, err := box.Stat(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want fs.ErrNotExist", name, err)
		}
	}
}

// entry is what a tar said of one name.
type entry struct {
	kind byte
	mode int64
	link string
	text string
}

func tree(t *testing.T, b guest.Box, name string) map[string]entry {
	t.Helper()
	r, err := b.Tree(t.Context(), name)
	if err != nil {
		t.Fatalf("tree of %s: %v", name, err)
	}
	defer r.Close()
	got := map[string]entry{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatalf("tree of %s: %v", name, err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = entry{h.Typeflag, h.Mode & 0o7777, h.Linkname, string(text)}
	}
}

func treeAndExtract(t *testing.T, s *suite) {
	box := s.box(t)
	when := time.Unix(1700000000, 0)
	err := box.Extract(t.Context(), "/app/in", pack(t,
		&tar.Header{Typeflag: tar.TypeDir, Name: "empty/", Mode: 0o700, ModTime: when},
		&tar.Header{Typeflag: tar.TypeReg, Name: "bin/tool", Mode: 0o755, Size: 4, ModTime: when}, "tool",
		&tar.Header{Typeflag: tar.TypeReg, Name: "./data", Mode: 0o600, Size: 4, ModTime: when}, "data",
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "bin/tool", ModTime: when},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: "/etc/hostname", ModTime: when},
		&tar.Header{Typeflag: tar.TypeDir, Name: "readonly/", Mode: 0o555, ModTime: when},
		&tar.Header{Typeflag: tar.TypeReg, Name: "readonly/inside", Mode: 0o444, Size: 1, ModTime: when}, "x",
	))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]entry{
		"./": {tar.TypeDir, 0o755, "", ""}, "bin/": {tar.TypeDir, 0o755, "", ""}, "empty/": {tar.TypeDir, 0o700, "", ""},
		"bin/tool": {tar.TypeReg, 0o755, "", "tool"}, "data": {tar.TypeReg, 0o600, "", "data"},
		"link": {tar.TypeSymlink, 0o777, "bin/tool", ""}, "out": {tar.TypeSymlink, 0o777, "/etc/hostname", ""},
		"readonly/": {tar.TypeDir, 0o555, "", ""}, "readonly/inside": {tar.TypeReg, 0o444, "", "x"},
	}
	compare(t, tree(t, box, "/app/in"), want)
	// What was packed unpacks to the same.
	r, err := box.Tree(t.Context(), "/app/in")
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Extract(t.Context(), "/app/copy", r); err != nil {
		t.Fatal(err)
	}
	r.Close()
	compare(t, tree(t, box, "/app/copy"), want)
	if info, err := box.Stat(t.Context(), "/app/copy/bin/tool"); err != nil || !info.ModTime().Equal(when) {
		t.Errorf("the copy's time: %+v, %v", info, err)
	}
	compare(t, tree(t, box, "/app/in/bin/tool"), map[string]entry{"tool": {tar.TypeReg, 0o755, "", "tool"}})
	if _, err := box.Tree(t.Context(), "/no/such"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tree of nothing: %v, want fs.ErrNotExist", err)
	}
	if err := box.Extract(t.Context(), "/app/bad", strings.NewReader(strings.Repeat("no archive ", 100))); err == nil {
		t.Error("what is no archive was taken for one")
	}
	broken := errors.New("the source broke")
	if err := box.Extract(t.Context(), "/app/bad", io.MultiReader(pack(t), &failing{broken})); !errors.Is(err, broken) {
		t.Errorf("a broken source: %v", err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func compare(t *testing.T, got, want map[string]entry) {
	t.Helper()
	for name, w := range want {
		if g, ok := got[name]; !ok || g != w {
			t.Errorf("%q is %+v, want %+v", name, g, w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%q is too many", name)
		}
	}
}

func oddNames(t *testing.T, s *suite) {
	box := s.box(t)
	names := []string{
		"space in it", "  edges  ", "uml\u00e4ut", "combining a\u0308", "\u65e5\u672c", "emoji \U0001f600", "new\nline", "quote\"'`$", "back\\slash", "-dash", "*?[",
		strings.Repeat("x", 255), "deep/" + strings.Repeat("d/", 40) + "file",
	}
	if s.f.Real {
		names = append(names, "not utf-8 \xff\xfe")
	}
	var entries []any
	for i, name := range names {
		text := fmt.Sprint(i)
		entries = append(entries, &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}, text)
	}
	if err := box.Extract(t.Context(), "/app/odd names", pack(t, entries...)); err != nil {
		t.Fatal(err)
	}
	got := tree(t, box, "/app/odd names")
	for i, name := range names {
		if got[name].text != fmt.Sprint(i) {
			t.Errorf("%q came back as %+v", name, got[name])
		}
	}
	if b, err := box.ReadFile(t.Context(), "/app/odd names/new\nline", 10); err != nil || string(b) != "6" {
		t.Errorf("read: %q, %v", b, err)
	}
}

func extractRefusesEscapes(t *testing.T, s *suite) {
	box := s.box(t)
	put(t, box, "/app/outside/keep", "kept")
	reg := func(name string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 3}
	}
	for name, entries := range map[string][]any{
		"up":             {reg("../outside/keep"), "bad"},
		"up in between":  {reg("a/../../outside/keep"), "bad"},
		"absolute":       {reg("/app/outside/keep"), "bad"},
		"through a link": {&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../outside"}, reg("l/keep"), "bad"},
		"through an absolute link": {
			&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/app/outside"}, reg("l/keep"), "bad",
		},
		"a folder through a link": {
			&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/app/outside"}, &tar.Header{Typeflag: tar.TypeDir, Name: "l/new/", Mode: 0o755},
		},
		"a folder over a link": {
			&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/app/outside"}, &tar.Header{Typeflag: tar.TypeDir, Name: "l/", Mode: 0o777}, reg("l/keep"), "bad",
		},
		"a hard link out": {&tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "../outside/keep"}, reg("h"), "bad"},
		"a device":        {&tar.Header{Typeflag: tar.TypeBlock, Name: "d", Devmajor: 8}},
		"through a file":  {reg("f"), "abc", reg("f/g"), "bad"},
		"no name":         {reg(""), "bad"},
	} {
		err := box.Extract(t.Context(), "/app/inside", pack(t, entries...))
		if err == nil {
			t.Errorf("%s was unpacked", name)
		}
		if b, err := box.ReadFile(t.Context(), "/app/outside/keep", 10); err != nil || string(b) != "kept" {
			t.Fatalf("%s: the file outside is %q, %v", name, b, err)
		}
	}
	if names := tree(t, box, "/app/outside"); len(names) != 2 {
		t.Errorf("outside there is now %v", names)
	}
}

func extractReplaces(t *testing.T, s *suite) {
	box := s.box(t)
	put(t, box, "/app/f", "a long first text")
	put(t, box, "/app/f", "second")
	if b, err := box.ReadFile(t.Context(), "/app/f", 100); err != nil || string(b) != "second" {
		t.Errorf("replaced: %q, %v", b, err)
	}
	// A link with the name of a file is replaced, not followed.
	if err := box.Extract(t.Context(), "/app", pack(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "f"})); err != nil {
		t.Fatal(err)
	}
	put(t, box, "/app/l", "third")
	if b, err := box.ReadFile(t.Context(), "/app/f", 100); err != nil || string(b) != "second" {
		t.Errorf("the link's target: %q, %v", b, err)
	}
	if b, err := box.ReadFile(t.Context(), "/app/l", 100); err != nil || string(b) != "third" {
		t.Errorf("the link's place: %q, %v", b, err)
	}
}

func treeKeepsEverything(t *testing.T, s *suite) {
	box := s.box(t)
	r := output(t, box, sh(`mkdir -p /app/t/sub && cd /app/t && echo one >a && ln a sub/b && chmod 4750 a && mkfifo pipe && chmod 1777 sub
		truncate -s 3000000 sparse && python3 -c "import os; os.setxattr('a', 'user.note', b'\x00value')" 2>/dev/null || true`), guest.Limits{})
	if !r.Exit.OK() {
		t.Fatalf("%+v %s", r.Exit, r.Stderr.String())
	}
	got := tree(t, box, "/app/t")
	if e := got["a"]; e.mode != 0o4750 || e.text != "one\n" {
		t.Errorf("a: %+v", e)
	}
	if e := got["sub/b"]; e.kind != tar.TypeLink || e.link != "a" {
		t.Errorf("sub/b: %+v", e)
	}
	if e := got["pipe"]; e.kind != tar.TypeFifo {
		t.Errorf("pipe: %+v", e)
	}
	if e := got["sub/"]; e.mode != 0o1777 {
		t.Errorf("sub: %+v", e)
	}
	if e := got["sparse"]; len(e.text) != 3000000 {
		t.Errorf("sparse: %d bytes", len(e.text))
	}
	stream, err := box.Tree(t.Context(), "/app/t")
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Extract(t.Context(), "/app/u", stream); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	r = output(t, box, sh(`cd /app/u && stat -c '%a %h' a && [ a -ef sub/b ] && [ -p pipe ] && echo same`), guest.Limits{})
	if r.Stdout.String() != "4750 2\nsame\n" {
		t.Errorf("unpacked: %q %q", r.Stdout.String(), r.Stderr.String())
	}
}

func dialAndListen(t *testing.T, s *suite) {
	box := s.box(t)
	l, err := box.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(c, io.LimitReader(c, 5))
			c.Close()
		}
		served <- err
	}()
	c, err := box.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Errorf("echo: %q, %v", b, err)
	}
	c.Close()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, err := box.Listen(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen twice: %v, want EADDRINUSE", err)
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept on a closed listener: %v, want net.ErrClosed", err)
	}
	if !s.f.Real {
		return
	}
	// The same port is another one outside.
	if out, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
		out.Close()
		t.Errorf("a port of the box can be reached from outside")
	}
}

func dialRefused(t *testing.T, s *suite) {
	box := s.box(t)
	if _, err := box.Dial(t.Context(), "tcp", "127.0.0.1:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial where nobody listens: %v, want ECONNREFUSED", err)
	}
}

// serverInside reaches a unix and a TCP server that a command of the box runs.
func serverInside(t *testing.T, s *suite) {
	box := s.box(t)
	if r := output(t, box, sh("command -v python3"), guest.Limits{}); !r.Exit.OK() {
		t.Skip("no python3 in the box to serve with")
	}
	put(t, box, "/app/server.py", `
import socket, threading
def serve(s):
    while True:
        c, _ = s.accept()
        c.sendall(b"hi from " + s.family.name.encode())
        c.close()
t = socket.socket(socket.AF_INET, socket.SOCK_STREAM); t.bind(("127.0.0.1", 8123)); t.listen()
u = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); u.bind("/app/sock"); u.listen()
threading.Thread(target=serve, args=(t,)).start(); print("up", flush=True); serve(u)
`)
	output(t, box, sh("python3 /app/server.py >/app/log 2>&1 &"), guest.Limits{})
	eventually(t, "the server is up", func() bool {
		b, err := box.ReadFile(t.Context(), "/app/log", 1000)
		return err == nil && slices.Equal(b, []byte("up\n"))
	})
	for _, c := range []struct{ network, addr, want string }{
		{"tcp", "127.0.0.1:8123", "hi from AF_INET"}, {"tcp", "localhost:8123", "hi from AF_INET"}, {"unix", "/app/sock", "hi from AF_UNIX"},
	} {
		conn, err := box.Dial(t.Context(), c.network, c.addr)
		if err != nil {
			t.Errorf("dial %s: %v", c.addr, err)
			continue
		}
		if b, err := io.ReadAll(conn); err != nil || string(b) != c.want {
			t.Errorf("%s: %q, %v", c.addr, b, err)
		}
		conn.Close()
	}
}
