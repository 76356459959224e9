package git

import (
	"context"
	"strings"
)

// ahead is a fetch of what a ref most likely means, while the server is still asked what it means: on a slow line that saves the half of the time. Who
// began it closes it.
type ahead struct {
	ref    string
	cancel context.CancelFunc
	ended  chan struct{}
	// Once ended is closed:
	bare   string
	done   func()
	commit string // what was fetched; "" when nothing was
}

// aheadRef is where the fetched commit is noted in the bare repository.
const aheadRef = "refs/agentenv/ahead"

// guess is the name that a ref most likely has on the server: a release is a tag, anything else a branch.
func guess(ref string) string {
	switch {
	case ref == "":
		return "HEAD"
	case strings.HasPrefix(ref, "refs/"):
		return ref
	case IsRelease(ref):
		return "refs/tags/" + ref
	default:
		return "refs/heads/" + ref
	}
}

// fetchAhead begins to fetch what a ref most likely means; Fetch uses it when it is what the ref was found to mean. It asks nothing where that can't be
// guessed, or no git is here.
func (f *Fetcher) fetchAhead(ctx context.Context, s Source, ref string) (*ahead, error) {
	if f.git == "" || hexForm().MatchString(ref) || CheckRef(ref) != nil {
		return nil, nil
	}
	if err := f.begin(s); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead{ref: ref, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		bare, done, err := f.bare(ctx)
		if err != nil {
			return
		}
		a.bare, a.done = bare, done
		if err := f.fetchRefs(ctx, s, bare, "+"+guess(ref)+":"+aheadRef); err != nil {
			return // whoever resolves the ref is told why
		}
		out, err := f.run(ctx, command{dir: bare, args: []string{"rev-parse", "--verify", "-q", aheadRef + "^{commit}"}, limit: localTime})
		if err == nil {
			a.commit = strings.TrimSpace(string(out))
		}
	}()
	return a, nil
}

// take waits for the fetch and answers its repository when it holds a commit. The caller ends what it takes.
func (a *ahead) take(commit string) (bare string, done func(), ok bool) {
	if a == nil {
		return "", nil, false
	}
	<-a.ended
	if a.commit != commit || a.done == nil {
		return "", nil, false
	}
	bare, done, a.done = a.bare, a.done, nil
	return bare, done, true
}

// close ends the fetch.
func (a *ahead) close() {
	if a == nil {
		return
	}
	a.cancel()
	<-a.ended
	if a.done != nil {
		a.done()
	}
}
