// Package gittest makes git repositories for tests, and serves them as git's own web server does.
package gittest

import (
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// Repo is a bare repository with a work tree beside it, which is linked to it: what is committed is served, and nothing has to be pushed.
type Repo struct {
	t    testing.TB
	Bare string // what is served
	work string
}

// New makes an empty repository of a name in a folder of the test's.
func New(t testing.TB, name string) *Repo {
	t.Helper()
	dir := t.TempDir()
	r := &Repo{t, filepath.Join(dir, name+".git"), filepath.Join(dir, "work")}
	// As git init --bare and git worktree add write it; three processes less for each repository.
	link := filepath.Join(r.Bare, "worktrees", "work")
	for _, d := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(r.Bare, filepath.FromSlash(d)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{link, r.work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		filepath.Join(r.Bare, "HEAD"): "ref: refs/heads/main\n",
		filepath.Join(r.Bare, "config"): "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n" +
			"[remote \"origin\"]\n\turl = " + r.Bare + "\n",
		filepath.Join(link, "HEAD"):      "ref: refs/heads/main\n",
		filepath.Join(link, "commondir"): "../..\n",
		filepath.Join(link, "gitdir"):    filepath.Join(r.work, ".git") + "\n",
		filepath.Join(r.work, ".git"):    "gitdir: " + link + "\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Plugin makes a repository with one commit, a plugin with this id.
func Plugin(t testing.TB, id string, files ...string) *Repo {
	t.Helper()
	r := New(t, id)
	r.Commit(append([]string{"agentenv.plugin.yaml", "id: " + id + "\nname: Plugin " + id + "\nversion: 1.0.0\n"}, files...)...)
	return r
}

// Git runs git and answers what it prints.
func (r *Repo) Git(args ...string) string { return r.in(filepath.Dir(r.Bare), args...) }

func (r *Repo) in(dir string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-c", "protocol.file.allow=always", "-c", "core.autocrlf=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com",
		"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com", "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// InWork runs git in the work tree.
func (r *Repo) InWork(args ...string) string { return r.in(r.work, args...) }

// Path is a file of the work tree.
func (r *Repo) Path(name string) string { return filepath.Join(r.work, filepath.FromSlash(name)) }

// Commit writes files (name, content, …; a content that begins with #! is executable), commits all of the work tree on the branch it is on, and
// publishes it. It answers the commit.
func (r *Repo) Commit(files ...string) string {
	r.t.Helper()
	for i := 0; i+1 < len(files); i += 2 {
		p := r.Path(files[i])
		mode := os.FileMode(0o644)
		if strings.HasPrefix(files[i+1], "#!") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(files[i+1]), mode); err != nil {
			r.t.Fatal(err)
		}
	}
	r.InWork("add", "-A")
	r.InWork("commit", "-q", "--allow-empty", "-m", "change")
	return r.Publish()
}

// Publish answers the commit that the work tree is on, which is served with all branches and tags.
func (r *Repo) Publish() string {
	r.t.Helper()
	head, err := os.ReadFile(filepath.Join(r.Bare, "worktrees", "work", "HEAD"))
	if err != nil {
		r.t.Fatal(err)
	}
	if name, ok := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: "); ok {
		if commit, err := os.ReadFile(filepath.Join(r.Bare, filepath.FromSlash(name))); err == nil {
			return strings.TrimSpace(string(commit))
		}
	}
	return r.InWork("rev-parse", "HEAD")
}

// URL is the repository as a file URL.
func (r *Repo) URL() string { return "file://" + r.Bare }

// Server serves repositories over HTTP.
type Server struct {
	*httptest.Server
	Requests atomic.Int64
	// Before may answer a request itself, and then says so.
	Before func(w http.ResponseWriter, r *http.Request) bool
}

// Serve serves all repositories in folders below root, by the protocol that git's own web server speaks, until the test ends.
func Serve(t testing.TB, repos ...*Repo) *Server {
	t.Helper()
	root := t.TempDir()
	for _, r := range repos {
		if err := os.Symlink(r.Bare, filepath.Join(root, filepath.Base(r.Bare))); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	h := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + root},
	}
	s := &Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Requests.Add(1)
		if s.Before != nil && s.Before(w, r) {
			return
		}
		if p := r.Header.Get("Git-Protocol"); p != "" {
			own := *h
			own.Env = append(append([]string{}, h.Env...), "GIT_PROTOCOL="+p)
			own.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// Of is the URL of a repository at the server.
func (s *Server) Of(r *Repo) string { return s.URL + "/" + filepath.Base(r.Bare) }
