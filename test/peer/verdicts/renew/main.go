// Command renew asks the Python peer for its verdicts and writes testdata/verdicts.json. It asks for each input whose verdict is missing or was given
// on another state of the input; -all asks for every one anew, which takes two minutes of CPU, or half an hour with -each.
//
//	go run ./test/peer/verdicts/renew -peer "$(../shared/tools/peer.sh)"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"sync"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/test/peer/verdicts"
)

type options struct {
	peer, file, match string
	all, each, show   bool
	jobs              int
}

func main() {
	var o options
	flag.StringVar(&o.peer, "peer", "", "the peer's bin `FOLDER`")
	flag.StringVar(&o.file, "file", "test/peer/verdicts/testdata/verdicts.json", "where the verdicts are kept")
	flag.StringVar(&o.match, "match", "", "only inputs whose name matches this `REGEXP`")
	flag.BoolVar(&o.all, "all", false, "ask for every verdict anew")
	flag.BoolVar(&o.each, "each", false, "start the peer for each input, in place of forking one that was started")
	flag.BoolVar(&o.show, "show", false, "show what the peer says")
	flag.IntVar(&o.jobs, "jobs", 2, "how many runs at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := renew(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "renew:", err)
		os.Exit(1)
	}
}

func renew(ctx context.Context, o options) error {
	only, err := regexp.Compile(o.match)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.peer, "agent-env")); o.peer == "" || err != nil {
		return fmt.Errorf("no agent-env in -peer %q", o.peer)
	}
	had, err := verdicts.Load(o.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r := renewer{show: o.show, had: had, out: map[string]verdicts.Golden{}}
	todo := make(chan verdicts.Input)
	g, ctx := errgroup.WithContext(ctx)
	for range o.jobs {
		g.Go(func() error { return r.work(ctx, o, todo) })
	}
	g.Go(func() error {
		defer close(todo)
		for _, in := range verdicts.Inputs() {
			old, ok := had[in.Name]
			if !only.MatchString(in.Name) || !o.all && ok && old.Input == in.Digest() {
				r.keep(in.Name, old, ok)
				continue
			}
			select {
			case todo <- in:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "asked for %d of %d verdicts, %d changed\n", r.asked, len(verdicts.Inputs()), r.changed)
	return verdicts.Save(o.file, r.out)
}

// renewer collects verdicts.
type renewer struct {
	show bool
	had  map[string]verdicts.Golden

	mu             sync.Mutex
	out            map[string]verdicts.Golden
	asked, changed int
}

func (r *renewer) keep(name string, g verdicts.Golden, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		r.out[name] = g
	}
}

// work asks for verdicts until there is nothing to do.
func (r *renewer) work(ctx context.Context, o options, todo <-chan verdicts.Input) error {
	start := verdicts.Program(filepath.Join(o.peer, "agent-env"))
	if !o.each {
		f, err := newForker(ctx, o.peer)
		if err != nil {
			return err
		}
		defer f.close()
		start = f.start
	}
	for in := range todo {
		if err := r.ask(ctx, start, in); err != nil {
			return err
		}
	}
	return nil
}

func (r *renewer) ask(ctx context.Context, start verdicts.Start, in verdicts.Input) error {
	home, err := os.MkdirTemp("", "verdict")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return err
	}
	exit, stderr, err := in.Run(ctx, start, home, []string{"run"})
	if err != nil {
		return err
	}
	g := verdicts.GoldenOf(in, exit, stderr, home)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if !reflect.DeepEqual(r.had[in.Name], g) {
		r.changed++
	}
	r.out[in.Name] = g
	if r.show {
		fmt.Fprintf(os.Stderr, "== %s: exit %d\n%s\n", in.Name, exit, stderr)
	}
	return nil
}
