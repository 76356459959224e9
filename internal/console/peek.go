package console

import (
	"context"
	"errors"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace"
)

// Looks are kept for a while, so that showing a plan and installing it are one question to each source.
const (
	lookFresh = 10 * time.Minute
	maxLooks  = 64
)

// look is what a repository was at a ref.
type look struct {
	at        time.Time
	view      gitplugins.PeekView
	plan      *gitplugins.Plan // nil where a member could not be looked at
	questions []question
}

// looks are the last looks, by source and ref.
type looks struct {
	mu sync.Mutex
	of map[string]look
}

func lookKey(src git.Source, ref string) string { return src.String() + " " + ref }

func (l *looks) get(key string, now time.Time) (look, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got, ok := l.of[key]
	if age := now.Sub(got.at); !ok || age < 0 || age > lookFresh {
		return look{}, false
	}
	return got, true
}

func (l *looks) put(key string, v look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.of) >= maxLooks {
		oldest := ""
		for k, x := range l.of {
			if oldest == "" || x.at.Before(l.of[oldest].at) {
				oldest = k
			}
		}
		delete(l.of, oldest)
	}
	l.of[key] = v
}

// explain adds to a consent that is lacking the plan of a look at the same source and ref.
func (l *looks) explain(err error, url, ref string) error {
	ack, ok := errors.AsType[*gitplugins.NeedsAck](err)
	if !ok || ack.Plan != nil {
		return err
	}
	src, perr := git.ParseSource(url)
	if perr != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen, ok := l.of[lookKey(src, ref)]; ok && seen.plan != nil {
		return &gitplugins.NeedsAck{Sources: ack.Sources, Plan: seen.plan}
	}
	return err
}

func (s *Server) peek(ctx context.Context, c *call) (any, error) {
	url, ref, again := c.body.text("url"), c.body.text("ref"), c.body.flag("again")
	c.body.required("url")
	if err := c.body.done(); err != nil {
		return nil, err
	}
	v, err := s.look(ctx, c.plugins, url, ref, again)
	if err != nil {
		return nil, err
	}
	out := struct {
		gitplugins.PeekView
		Digest    *string          `json:"plan_digest"`
		Plan      *gitplugins.Plan `json:"plan"`
		NeedsAck  bool             `json:"needs_ack"`
		Questions []question       `json:"questions"`
	}{v.view, nil, nil, false, v.questions}
	if v.plan != nil {
		if out.Plan, err = c.plugins.Judge(ctx, v.plan); err != nil {
			return nil, err
		}
		out.Digest = &out.Plan.Digest
		if !s.o.FetchOnly {
			if out.NeedsAck, err = c.plugins.Lacks(ctx, v.plan); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// look looks at a repository, or answers an earlier look; again looks anew.
func (s *Server) look(ctx context.Context, p *gitplugins.Plugins, url, ref string, again bool) (look, error) {
	src, err := git.ParseSource(url)
	if err != nil {
		return look{}, err
	}
	if err := p.Allows(ctx, src); err != nil { // also of what was looked at before
		return look{}, err
	}
	key := lookKey(src, ref)
	if seen, ok := s.looked.get(key, s.o.Now()); ok && !again {
		return seen, nil
	}
	k, err := p.Look(ctx, url, ref)
	if err != nil {
		return look{}, err
	}
	defer func() { _ = k.Close() }() // files are let go of
	v := look{at: s.o.Now(), view: gitplugins.ViewPeek(k), questions: []question{}}
	if v.plan, err = p.Plan(ctx, k); err != nil {
		return look{}, err
	}
	if k.Pack != nil {
		names, err := p.DelegateNames(ctx)
		if err != nil {
			return look{}, err
		}
		v.questions = questions(workspace.Questions(k.Pack, names))
	}
	s.looked.put(key, v)
	return v, nil
}
