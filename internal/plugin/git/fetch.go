package git

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/subprocess"
)

// How long git may take.
const (
	CloneTime  = 600 * time.Second
	LookupTime = 30 * time.Second
	localTime  = 120 * time.Second
)

// How a commit was brought here.
const (
	ByGit     = "git"
	ByArchive = "archive"
	ByMirror  = "mirror"
)

// FetchOptions are what a Fetcher works with.
type FetchOptions struct {
	Dir    string                      // a folder for work, on the file system of what is fetched; it is made when missing
	Home   string                      // the user's, for known_hosts
	Env    func(string) (string, bool) // as os.LookupEnv: PATH, proxies, SSH_AUTH_SOCK, GITHUB_TOKEN
	Allows func(Source) error          // asked before each request, redirects too
	Limits Limits                      // zero: DefaultLimits
	// Archive fetches archives where git is there too; only github.com serves them.
	Archive bool
	Lookup  time.Duration // for asking what refs there are; 0: LookupTime
	Memory  int64         // bytes that one git may hold of its own; 0: DefaultMemory
	SSH     string        // more options for ssh, with a blank before each
	// Hold is a lock on Dir that every git is handed too: what outlives this process for a moment, and still writes, holds it as well.
	Hold *os.File
	// GitHub is where api.github.com and codeload.github.com are, for tests.
	GitHub func(*http.Request)
}

// Fetcher brings commits here with the system's git, or as archives where there is none. Its methods may be called from several goroutines.
type Fetcher struct {
	o    FetchOptions
	git  string // "" where there is none
	home string // an empty folder that is git's HOME
}

// NewFetcher makes a Fetcher. It starts nothing.
func NewFetcher(o FetchOptions) *Fetcher {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits()
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Lookup == 0 {
		o.Lookup = LookupTime
	}
	f := &Fetcher{o: o, home: filepath.Join(o.Dir, "home")}
	if p, _ := o.Env("PATH"); !o.Archive {
		f.git = subprocess.Look(p, "git")
	}
	return f
}

var errNoGit = errors.New("there is no git here, and archives come from github.com alone; install git")

// Resolved is a ref and the commit that it means now.
type Resolved struct {
	Ref    string // as asked for; "" is the default branch
	Name   string // the ref's full name on the server (refs/tags/v1); "" for a commit asked for by its digits
	Commit string // 40 hex digits; a tag's own object never
	Tree   string // git's tree of the commit, where an archive is to be checked by it
	ahead  *ahead // of what was fetched already; nil for nothing
}

// Fetched is a commit whose files are in a folder.
type Fetched struct {
	Source   Source
	Ref      string
	Commit   string
	Tree     string // the digest of what is in Dir; see Sum
	By       string // ByGit, ByArchive or ByMirror
	Dir      string
	Files    int
	Bytes    int64
	Warnings []string
}

// begin makes the folder for work.
func (f *Fetcher) begin(s Source) error {
	if err := f.o.Allows(s); err != nil {
		return err
	}
	return os.MkdirAll(f.home, 0o700)
}

// Resolve asks the source which commit a ref means: a branch, a tag (an annotated one is looked through), "" for the default branch, or the
// digits of a commit, unless a ref is called so. All 40 digits need no question.
func (f *Fetcher) Resolve(ctx context.Context, s Source, ref string) (Resolved, error) {
	if err := CheckRef(ref); err != nil {
		return Resolved{}, err
	}
	if err := f.begin(s); err != nil {
		return Resolved{}, err
	}
	if fullSHA().MatchString(ref) && f.git != "" {
		return Resolved{Ref: ref, Commit: ref}, nil
	}
	if f.git == "" {
		return f.resolveArchive(ctx, s, ref)
	}
	refs, err := f.list(ctx, s, wanted(ref)...)
	if err != nil {
		return Resolved{}, err
	}
	if r, ok := pick(refs, ref); ok {
		return r, nil
	}
	if hexForm().MatchString(ref) {
		return f.short(ctx, s, ref)
	}
	if ref == "" {
		return Resolved{}, fmt.Errorf("%s has no default branch: it is empty", s)
	}
	return Resolved{}, fmt.Errorf("%s has no branch and no tag %s", s, diag.Repr(ref))
}

// wanted are the names under which a server may have a ref.
func wanted(ref string) []string {
	switch {
	case ref == "":
		return []string{"HEAD"}
	case strings.HasPrefix(ref, "refs/"):
		return []string{ref, ref + "^{}"}
	default:
		return []string{"refs/heads/" + ref, "refs/tags/" + ref, "refs/tags/" + ref + "^{}"}
	}
}

// pick finds what a ref means among those of a server: a branch before a tag, the commit of an annotated tag and not the tag.
func pick(refs map[string]string, ref string) (Resolved, bool) {
	for _, name := range wanted(ref) {
		if strings.HasSuffix(name, "^{}") {
			continue
		}
		commit, ok := refs[name]
		if !ok {
			continue
		}
		if peeled, ok := refs[name+"^{}"]; ok {
			commit = peeled
		}
		return Resolved{Ref: ref, Name: name, Commit: commit}, true
	}
	return Resolved{}, false
}

// Refs are the branches and tags of a source with the commits that they mean: by full name, annotated tags looked through.
func (f *Fetcher) Refs(ctx context.Context, s Source) (map[string]string, error) {
	if err := f.begin(s); err != nil {
		return nil, err
	}
	if f.git == "" {
		return nil, errNoGit
	}
	refs, err := f.list(ctx, s)
	if err != nil {
		return nil, err
	}
	for name, commit := range refs {
		if tag, ok := strings.CutSuffix(name, "^{}"); ok {
			refs[tag] = commit
			delete(refs, name)
		}
	}
	return refs, nil
}

// list asks a server for refs: those of the names, or all.
func (f *Fetcher) list(ctx context.Context, s Source, names ...string) (map[string]string, error) {
	var out []byte
	err := f.following(ctx, s, func(s Source) error {
		var err error
		out, err = f.run(ctx, command{source: s, args: append([]string{"ls-remote", "-q", "--", s.String()}, names...), limit: f.o.Lookup})
		return err
	})
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.SplitSeq(string(out), "\n") {
		commit, name, ok := strings.Cut(line, "\t")
		if ok && fullSHA().MatchString(commit) {
			refs[name] = commit
		}
	}
	return refs, nil
}

// short finds the commit that begins with some digits, among all that branches and tags lead to.
func (f *Fetcher) short(ctx context.Context, s Source, digits string) (Resolved, error) {
	bare, done, err := f.bare(ctx)
	if err != nil {
		return Resolved{}, err
	}
	defer done()
	if err := f.fetchAll(ctx, s, bare); err != nil {
		return Resolved{}, err
	}
	out, err := f.run(ctx, command{dir: bare, args: []string{"rev-parse", "--verify", "-q", strings.ToLower(digits) + "^{commit}"}, limit: localTime})
	if fail, ok := errors.AsType[*Failure](err); ok {
		if strings.Contains(fail.Text, "ambiguous") {
			return Resolved{}, fmt.Errorf("%s: several objects begin with %s; give more digits", s, digits)
		}
		return Resolved{}, fmt.Errorf("%s has no branch, tag or commit %s", s, digits)
	}
	if err != nil {
		return Resolved{}, err
	}
	return Resolved{Ref: digits, Commit: strings.TrimSpace(string(out))}, nil
}

// bare makes an empty repository, which done removes.
func (f *Fetcher) bare(ctx context.Context) (dir string, done func(), err error) {
	dir, err = os.MkdirTemp(f.o.Dir, "repository-")
	if err != nil {
		return "", nil, err
	}
	done = func() { _ = os.RemoveAll(dir) } // a leftover is swept later
	if _, err = f.run(ctx, command{args: []string{"init", "-q", "--bare", "--template=", "--", dir}, limit: localTime}); err != nil {
		done()
		return "", nil, err
	}
	return dir, done, nil
}

func (f *Fetcher) fetchAll(ctx context.Context, s Source, bare string) error {
	return f.fetchRefs(ctx, s, bare, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
}

func (f *Fetcher) fetchRefs(ctx context.Context, s Source, bare string, args ...string) error {
	return f.following(ctx, s, func(s Source) error {
		options := []string{"fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance"}
		if len(args) == 1 {
			options = append(options, "--depth=1")
		}
		return f.watched(ctx, bare, func(ctx context.Context) error {
			_, err := f.run(ctx, command{source: s, dir: bare, args: append(append(options, "--", s.String()), args...), limit: CloneTime})
			return err
		})
	})
}

// watched ends work when more was downloaded than allowed.
func (f *Fetcher) watched(ctx context.Context, bare string, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tooMuch := fmt.Errorf("it is larger than %d MiB packed", f.o.Limits.Packed>>20)
	over := func() bool {
		var n int64
		_ = filepath.WalkDir(bare, func(_ string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if fi, err := d.Info(); err == nil {
					n += fi.Size()
				}
			}
			return nil
		})
		return n > f.o.Limits.Packed
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if over() {
					cancel(tooMuch)
					return
				}
			}
		}
	}()
	err := work(ctx)
	cancel(nil)
	<-ended
	if err == nil && over() {
		return tooMuch
	}
	return err
}

// Fetch brings the files of a commit into dst, an empty folder, and answers the digest of what is there. Symbolic links, names that some
// file system takes differently, and trees beyond the limits are refused; submodules are left out, and large files of LFS stay pointers,
// both with a warning. No hook, filter or attribute of the repository has a say.
func (f *Fetcher) Fetch(ctx context.Context, s Source, r Resolved, dst string) (Fetched, error) {
	if err := f.begin(s); err != nil {
		return Fetched{}, err
	}
	out := Fetched{Source: s, Ref: r.Ref, Commit: r.Commit, Dir: dst, By: ByGit}
	var files []entry
	var err error
	if f.git == "" {
		out.By = ByArchive
		files, err = f.fetchArchive(ctx, s, r, dst)
	} else {
		files, out.Warnings, err = f.fetchGit(ctx, s, r, dst)
	}
	if err != nil {
		return Fetched{}, about(s, err)
	}
	for _, e := range files {
		out.Files++
		out.Bytes += e.size
	}
	out.Tree = treeSum(files)
	return out, nil
}

// about names the source of an error, once.
func about(s Source, err error) error {
	if strings.Contains(err.Error(), s.String()) {
		return err
	}
	return fmt.Errorf("%s: %w", s, err)
}

func (f *Fetcher) fetchGit(ctx context.Context, s Source, r Resolved, dst string) ([]entry, []string, error) {
	bare, done, ok := r.ahead.take(r.Commit)
	var err error
	if !ok {
		if bare, done, err = f.bare(ctx); err != nil {
			return nil, nil, err
		}
		err = f.fetchRefs(ctx, s, bare, r.Commit)
	}
	defer done()
	if fail, ok := errors.AsType[*Failure](err); ok && (strings.Contains(fail.Text, "unadvertised object") || strings.Contains(fail.Text, "not our ref")) {
		// A server of the old protocol gives only what refs name: everything is fetched, which is slow.
		if err := f.fetchAll(ctx, s, bare); err != nil {
			return nil, nil, err
		}
		if _, err := f.run(ctx, command{dir: bare, args: []string{"cat-file", "-e", r.Commit + "^{commit}"}, limit: localTime}); err != nil {
			return nil, nil, fmt.Errorf("it has no commit %s that a branch or a tag leads to", r.Commit)
		}
	} else if err != nil {
		return nil, nil, err
	}
	files, warnings, err := f.tree(ctx, bare, r.Commit)
	if err != nil {
		return nil, nil, err
	}
	if err := checkFiles(files, f.o.Limits); err != nil {
		return nil, nil, err
	}
	pointers, err := f.write(ctx, bare, files, dst)
	if err != nil {
		return nil, nil, err
	}
	if len(pointers) > 0 {
		warnings = append(warnings, "files of git LFS are only pointers: "+someOf(pointers))
	}
	return files, warnings, nil
}

// write writes the files of a commit below dst and notes their digests. It answers which of them are pointers of LFS.
func (f *Fetcher) write(ctx context.Context, bare string, files []entry, dst string) (pointers []string, err error) {
	root, err := os.OpenRoot(dst)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var ask bytes.Buffer
	for _, e := range files {
		ask.WriteString(e.sha)
		ask.WriteByte('\n')
	}
	made := map[string]bool{".": true}
	read := func(r io.Reader) error {
		in := bufio.NewReaderSize(r, 256<<10)
		for i := range files {
			if err := ctx.Err(); err != nil {
				return err
			}
			head, err := in.ReadString('\n')
			if err != nil {
				return fmt.Errorf("git ended before all files were read: %w", err)
			}
			if want := fmt.Sprintf("%s blob %d\n", files[i].sha, files[i].size); head != want {
				return fmt.Errorf("git answered %s where %s was asked for", diag.Repr(strings.TrimSpace(head)), diag.Repr(strings.TrimSpace(want)))
			}
			if err := mkdirs(root, path.Dir(files[i].path), made); err != nil {
				return err
			}
			pointer, err := writeFile(root, &files[i], io.LimitReader(in, files[i].size))
			if err != nil {
				return err
			}
			if pointer {
				pointers = append(pointers, files[i].path)
			}
			if _, err := in.Discard(1); err != nil {
				return err
			}
		}
		return nil
	}
	_, err = f.run(ctx, command{dir: bare, args: []string{"cat-file", "--batch", "--buffer"}, stdin: &ask, read: read, limit: CloneTime})
	return pointers, err
}

func mkdirs(root *os.Root, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := mkdirs(root, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	return root.Mkdir(dir, 0o755)
}

const pointerHead = "version https://git-lfs.github.com/spec/"

// writeFile writes one new file and notes its digest in e.
func writeFile(root *os.Root, e *entry, r io.Reader) (pointer bool, err error) {
	mode := os.FileMode(0o644)
	if e.exec {
		mode = 0o755
	}
	out, err := root.OpenFile(e.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	h := sha256.New()
	head := &bounded{max: len(pointerHead)}
	n, err := io.Copy(io.MultiWriter(out, h, head), r)
	if err != nil {
		return false, err
	}
	if n != e.size {
		return false, fmt.Errorf("%s has %d bytes and not %d", diag.Repr(e.path), n, e.size)
	}
	h.Sum(e.sum[:0])
	return head.buf.String() == pointerHead, nil
}
