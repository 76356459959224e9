package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/requirement"
)

const (
	refsDir   = "refs"            // what refs sources had when they were asked last
	refsFresh = 300 * time.Second // how long that is taken for the truth
	askTime   = 5 * time.Second   // how long a source may take to answer when all are asked
)

var releaseForm = lazyregexp.New(`^v?[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}$`)

// IsRelease tells a ref that is a release's tag: v1.2.3 or 1.2.3. Tags of pre-releases are none.
func IsRelease(ref string) bool { return releaseForm().MatchString(ref) }

// IsPinned tells a ref that names a commit by its digits.
func IsPinned(ref string) bool { return hexForm().MatchString(ref) }

// Update is a row of the lock and what its source has now.
type Update struct {
	ID         string
	Bundle     bool
	Row        Row
	Latest     string // the commit that LatestRef means now; "" where nobody was asked
	LatestRef  string // the newest release's tag, else the ref of the row
	Behind     bool   // what is installed is not Latest
	Pinned     bool   // the row names a commit by its digits: nobody was asked
	Superseded bool   // what comes with the program takes its place: nobody was asked
	Err        error
}

// Outdated asks the sources of all rows of the lock what they have now, each source once in five minutes; what the mirror has is asked of it alone, as
// an update takes it from there. Errors are each row's own.
func (s *Store) Outdated(ctx context.Context) ([]Update, error) {
	l, err := s.Lock(ctx)
	if err != nil {
		return nil, err
	}
	work, err := s.stage(ctx)
	if err != nil {
		return nil, err
	}
	rows := standings(l)
	out := make([]Update, len(rows))
	asked := s.asking(ctx, work, false)
	each(len(rows), func(i int) { out[i] = s.outdated(ctx, rows[i], asked) })
	return out, errors.Join(ctx.Err(), work.close())
}

func (s *Store) outdated(ctx context.Context, st Standing, asked *asking) Update {
	u := Update{ID: st.ID, Bundle: st.Bundle, Row: st.Row, LatestRef: st.Row.RequestedRef}
	src, err := ParseSource(st.Row.SourceURL)
	if err == nil {
		err = CheckRef(u.LatestRef)
	}
	if err != nil {
		u.Err = err
		return u
	}
	if _, ok := s.superseding(src); ok {
		u.Superseded = true
		return u
	}
	if u.Pinned = IsPinned(u.LatestRef); u.Pinned {
		return u
	}
	refs, err := asked.refs(ctx, src, u.LatestRef)
	if err != nil {
		u.Err = err
		return u
	}
	if IsRelease(u.LatestRef) {
		u.LatestRef = newest(refs, u.LatestRef, func(requirement.Version) bool { return true })
	}
	r, ok := pick(refs, u.LatestRef)
	if !ok {
		u.Err = fmt.Errorf("%s has no branch and no tag %s any more", src, u.LatestRef)
		return u
	}
	u.Latest = r.Commit
	u.Behind = u.Latest != st.Row.ResolvedSHA
	return u
}

// Newest is the tag of the newest release of a source that is newer than ref, which is a release's too; ref itself when there is none. With
// compatible only releases count that the caret rule admits: 1.x for 1.2.3, 0.7.x for 0.7.1, nothing else for 0.0.3. The source is asked now.
func (s *Store) Newest(ctx context.Context, src Source, ref string, compatible bool) (_ string, err error) {
	if _, ok := s.superseding(src); ok || !IsRelease(ref) {
		return ref, nil
	}
	work, err := s.stage(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, work.close()) }()
	refs, err := s.asking(ctx, work, true).refs(ctx, src, ref)
	if err != nil {
		return "", err
	}
	return newest(refs, ref, func(v requirement.Version) bool { return !compatible || caret(ref, v) }), nil
}

// version is a release's tag as a version.
func version(tag string) (requirement.Version, bool) {
	if !IsRelease(tag) {
		return requirement.Version{}, false
	}
	v, err := requirement.ParseVersion(strings.TrimPrefix(tag, "v"))
	return v, err == nil
}

// newest is the tag of the newest release that admits says yes to and that is newer than ref; ref when there is none.
func newest(refs map[string]string, ref string, admits func(requirement.Version) bool) string {
	best, ok := version(ref)
	if !ok {
		return ref
	}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		tag, ok := strings.CutPrefix(name, "refs/tags/")
		if v, is := version(tag); ok && is && v.Compare(best) > 0 && admits(v) {
			best, ref = v, tag
		}
	}
	return ref
}

// caret tells whether a version leaves the leftmost part of a release that isn't zero as it is.
func caret(ref string, v requirement.Version) bool {
	was := strings.Split(strings.TrimPrefix(ref, "v"), ".")
	is := strings.Split(v.Public(), ".")
	for i, part := range was {
		if i >= len(is) || strings.TrimLeft(part, "0") != strings.TrimLeft(is[i], "0") {
			return false
		}
		if strings.Trim(part, "0") != "" {
			return true
		}
	}
	return true
}

// asking asks each source once.
type asking struct {
	s    *Store
	dir  string
	hold *os.File
	now  bool // what was answered earlier doesn't count
	// mirror is the mirror of the policy, opened when it is needed first; nil without one.
	mirror func() (*mirror, error)
	mu     sync.Mutex
	of     map[string]*answer
}

func (s *Store) asking(ctx context.Context, work *staging, now bool) *asking {
	return &asking{s: s, dir: work.dir, hold: work.lock.File(), of: map[string]*answer{}, now: now, mirror: sync.OnceValues(func() (*mirror, error) {
		if s.o.Policy.Mirror == "" {
			return nil, nil
		}
		return openMirror(ctx, s.o.Policy.Mirror)
	})}
}

type answer struct {
	once sync.Once
	refs map[string]string
	err  error
}

// noted is an answer as it is kept.
type noted struct {
	At   time.Time         `json:"at"`
	Refs map[string]string `json:"refs"`
}

// refs are a source's branches and tags, annotated ones looked through, and HEAD; those that the mirror has, where ref is one of them.
func (a *asking) refs(ctx context.Context, src Source, ref string) (map[string]string, error) {
	if err := a.s.o.Policy.Allows(src); err != nil {
		return nil, err
	}
	m, err := a.mirror()
	if err != nil {
		return nil, err
	}
	if refs := m.refs(src, ref); refs != nil {
		return refs, nil
	}
	a.mu.Lock()
	got := a.of[src.String()]
	if got == nil {
		got = &answer{}
		a.of[src.String()] = got
	}
	a.mu.Unlock()
	got.once.Do(func() { got.refs, got.err = a.ask(ctx, src) })
	return got.refs, got.err
}

func (a *asking) ask(ctx context.Context, src Source) (map[string]string, error) {
	sum := sha256.Sum256([]byte(src.String()))
	name := hex.EncodeToString(sum[:16])
	file := filepath.Join(a.s.o.Dir, refsDir, name+".json")
	var have noted
	if b, err := os.ReadFile(file); err == nil && !a.now && json.Unmarshal(b, &have) == nil {
		if age := a.s.o.Now().Sub(have.At); age >= 0 && age < refsFresh {
			return have.Refs, nil
		}
	}
	o := a.s.o.Fetch
	o.Dir, o.Allows, o.Hold, o.Lookup = filepath.Join(a.dir, name), a.s.o.Policy.Allows, a.hold, askTime
	refs, err := NewFetcher(o).Refs(ctx, src)
	if err != nil {
		return nil, about(src, err)
	}
	b, err := json.Marshal(noted{a.s.o.Now(), refs})
	if err != nil {
		return nil, err
	}
	if err := atomicfile.MkdirAll(filepath.Dir(file)); err != nil {
		return nil, err
	}
	return refs, atomicfile.WriteBytes(file, 0o600, append(b, '\n'))
}
