package git

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// hub answers as api.github.com and codeload.github.com do, for one repository o/r.
type hub struct {
	commit, tree string
	tgz          []byte
	asked        []string
	tokens       []string
}

func (h *hub) options(t *testing.T) func(*Options) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked = append(h.asked, r.Header.Get("X-Host")+r.URL.Path)
		h.tokens = append(h.tokens, r.Header.Get("Authorization"))
		switch {
		case strings.HasPrefix(r.URL.Path, "/repos/o/r/commits/") && !strings.HasSuffix(r.URL.Path, "none"):
			fmt.Fprintf(w, `{"sha": %q, "commit": {"tree": {"sha": %q}}}`, h.commit, h.tree)
		case r.URL.Path == "/o/r/tar.gz/"+h.commit:
			_, _ = w.Write(h.tgz)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) {
		o.Fetch.Archive = true
		o.Fetch.GitHub = func(r *http.Request) {
			r.Header.Set("X-Host", r.URL.Host)
			r.URL.Scheme, r.URL.Host = u.Scheme, u.Host
		}
		o.Fetch.Env = func(name string) (string, bool) {
			if name == "GITHUB_TOKEN" {
				return "t0ken", true
			}
			return os.LookupEnv(name)
		}
	}
}

// Rows 19, 21, 34, 47: an archive holds the same bytes as git's way, and only github.com is asked for one.
func TestArchive(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "arc", "bin/x", "#!/bin/sh\n", "a/b/c.txt", "1\r\n", "a.txt", "2", "a-b/z", "3")
	h := &hub{commit: r.InWork("rev-parse", "HEAD"), tree: r.InWork("rev-parse", "HEAD^{tree}")}
	out := r.Path("out.tgz")
	r.InWork("archive", "--format=tar.gz", "--prefix=r-"+h.commit+"/", "-o", out, "HEAD")
	tgz, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	h.tgz = tgz
	s := newStore(t, h.options(t))
	mustInstall(t, s, false, Want{URL: "https://github.com/o/r.git", Ref: "v1"})
	byGit := newStore(t)
	mustInstall(t, byGit, false, Want{URL: r.URL()})
	got, want := row(t, s, "arc"), row(t, byGit, "arc")
	if got.TreeSHA256 != want.TreeSHA256 || got.ResolvedSHA != want.ResolvedSHA || got.Fetch != ByArchive {
		t.Errorf("by archive %+v, by git %+v", got, want)
	}
	if asked := strings.Join(h.asked, " "); asked != "api.github.com/repos/o/r/commits/v1 codeload.github.com/o/r/tar.gz/"+h.commit {
		t.Errorf("asked for %s", asked)
	}
	if h.tokens[0] != "Bearer t0ken" {
		t.Errorf("tokens %q", h.tokens)
	}
	for _, u := range []string{"https://intranet.example/github.com/evil/r", "https://notgithub.com/o/r", "https://github.com:8443/o/r", "https://github.com/o/r/x", r.URL()} {
		if _, err := install(t.Context(), s, false, Want{URL: u}); !errors.Is(err, errNoGit) {
			t.Errorf("%s: %v", u, err)
		}
	}
	if _, err := install(t.Context(), s, false, Want{URL: "https://github.com/o/r", Ref: "none"}); err == nil || !strings.Contains(err.Error(), "has no none") {
		t.Errorf("a ref that isn't there: %v", err)
	}
	h.tree = sha
	other := newStore(t, h.options(t))
	if _, err := install(t.Context(), other, false, Want{URL: "https://github.com/o/r"}); err == nil || !strings.Contains(err.Error(), "isn't what the commit holds") {
		t.Errorf("an archive of something else: %v", err)
	}
}

// Rows 41, 42, 43: members of an archive that would leave it, or be no files, refuse the install.
func TestHostileArchive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		add  func(w *tar.Writer)
		want string
	}{
		"upward":    {member("r/a/../../../x", tar.TypeReg, ""), "leaves the folder"},
		"absolute":  {member("/abs", tar.TypeReg, ""), "absolute"},
		"link":      {member("r/l", tar.TypeSymlink, "/etc/passwd"), "l"},
		"hard link": {member("r/h", tar.TypeLink, "/etc/passwd"), "h"},
		"device":    {member("r/d", tar.TypeChar, ""), "d"},
		"backslash": {member(`r/a\b`, tar.TypeReg, ""), "backslash"},
		"two":       {member("other/x", tar.TypeReg, ""), "doesn't hold one folder"},
		"bomb": {func(w *tar.Writer) {
			_ = w.WriteHeader(&tar.Header{Name: "r/zeros", Typeflag: tar.TypeReg, Mode: 0o644, Size: 4 << 20})
			_, _ = w.Write(make([]byte, 4<<20))
		}, "larger than allowed"},
	} {
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		w := tar.NewWriter(z)
		member("r/"+PluginFile, tar.TypeReg, "")(w)
		c.add(w)
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		h := &hub{commit: sha, tree: sha, tgz: buf.Bytes()}
		s := newStore(t, h.options(t), func(o *Options) { o.Fetch.Limits = Limits{1 << 20, 1 << 20, 50, 32} })
		if _, err := install(t.Context(), s, false, Want{URL: "https://github.com/o/r"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if len(staged(t, s)) > 0 || lockBytes(t, s) != "" {
			t.Errorf("%s: something is left", name)
		}
	}
}

func member(name string, kind byte, target string) func(*tar.Writer) {
	return func(w *tar.Writer) {
		_ = w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Linkname: target, Mode: 0o6755})
	}
}
