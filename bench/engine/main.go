// Command engine measures sandboxes beside the Docker engine's own program, in one run on one machine, and prints a Markdown table.
//
// Every kind does the same work in turn, so that noise of the machine meets all: a sandbox is made and its first command has ended; a
// command is run in one that is there. What is removed afterwards doesn't count. The image is a static busybox in an otherwise empty one.
//
//	go run -tags guest_embed ./bench/engine [-n 1000] [-engine-n 100] [-out FILE]
//
// It needs the docker program, an engine that it reaches (DOCKER_HOST), and busybox-static.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/docker"
	"agentenv.internal/agentenv/internal/sandbox/local"
)

func main() {
	pid1.Dispatch()
	nethost.Dispatch()
	if addr := os.Getenv(clientVar); addr != "" {
		os.Exit(client(addr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	fl := flag.NewFlagSet("engine", flag.ContinueOnError)
	n := fl.Int("n", 1000, "how often a local sandbox is started and a command run")
	engineN := fl.Int("engine-n", 100, "how often the engine does the same")
	out := fl.String("out", "", "write the table to this file too")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if *n < 1 || *engineN < 1 {
		return errors.New("-n and -engine-n are at least 1")
	}
	state, err := os.MkdirTemp("", "bench-engine-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	b, err := open(ctx, state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	starts := []series{
		{name: "`local`", run: b.startLocal},
		{name: "`docker` of this program", run: b.startDocker, engine: true},
		{name: "`local`, allow_all", run: func(ctx context.Context) (time.Duration, error) { return start(ctx, b.local, sandbox.NetAllowAll) }, engine: true},
		{name: "`docker` of this program, allow_all", run: func(ctx context.Context) (time.Duration, error) { return start(ctx, b.docker, sandbox.NetAllowAll) }, engine: true},
		{name: "`docker run --network none`", run: func(ctx context.Context) (time.Duration, error) { return b.dockerRun(ctx, "none") }, engine: true},
		{name: "`docker run`", run: func(ctx context.Context) (time.Duration, error) { return b.dockerRun(ctx, "bridge") }, engine: true},
	}
	if err := measure(ctx, starts, *n, *engineN); err != nil {
		return err
	}
	execs, end, err := b.execs(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(measure(ctx, execs, *n, *engineN), end()); err != nil {
		return err
	}
	ways, err := b.ways(ctx)
	if err != nil {
		return err
	}
	table := fmt.Sprintf("%s, %d cores, %s; the engine is %s\n\n%s\n%s\n%s", runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), b.version,
		render("start to the end of a first command", starts), render("a command in a sandbox that is there", execs), ways)
	if _, err := io.WriteString(stdout, table); err != nil {
		return err
	}
	if *out != "" {
		return os.WriteFile(*out, []byte(table), 0o644)
	}
	return nil
}

// series is one kind of doing the work.
type series struct {
	name   string
	run    func(context.Context) (time.Duration, error)
	engine bool // it is slow, and done less often
	took   []time.Duration
}

// measure runs the kinds in turn, the slow ones spread over the run.
func measure(ctx context.Context, all []series, n, engineN int) error {
	for i := range max(n, engineN) {
		for j := range all {
			s := &all[j]
			times := n
			if s.engine {
				times = engineN
			}
			if len(s.took)*max(n, engineN) > i*times || len(s.took) == times {
				continue
			}
			d, err := s.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			s.took = append(s.took, d)
		}
	}
	return nil
}

func render(work string, all []series) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | times | p50 ms | p99 ms | longest ms | p50 beside the last |\n|---|---|---|---|---|---|\n", work)
	last := all[len(all)-1]
	base := quantile(last.took, 0.5)
	for _, s := range all {
		p50 := quantile(s.took, 0.5)
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %.1fx less |\n", s.name, len(s.took), ms(p50), ms(quantile(s.took, 0.99)), ms(quantile(s.took, 1)), float64(base)/float64(p50))
	}
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d.Microseconds())/1000) }

// quantile is the value that a share of all does not exceed.
func quantile(all []time.Duration, share float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

const tag = "agentenv-bench-busybox:latest"

// bench is what the work is done with.
type bench struct {
	local   *local.Provider
	docker  *docker.Provider
	version string
}

func open(ctx context.Context, state string) (*bench, error) {
	l, err := local.New(local.Options{StateRoot: state})
	if err != nil {
		return nil, err
	}
	d, err := docker.New(docker.Options{StateRoot: state, Image: tag, Guest: local.GuestProgram, Env: os.LookupEnv})
	if err != nil {
		return nil, err
	}
	b := &bench{local: l, docker: d}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) close() error { return errors.Join(b.docker.Close(), b.local.Close()) }

// prepare builds the image and does each kind once, for what only the first of all has to do.
func (b *bench) prepare(ctx context.Context) error {
	version, err := dockerSays(ctx, "version", "--format", "{{.Server.Version}}")
	if err != nil {
		return err
	}
	b.version = strings.TrimSpace(version)
	image, err := busyboxContext()
	if err != nil {
		return err
	}
	if _, err := b.docker.Build(ctx, sandbox.Build{Context: image, Tag: tag}); err != nil {
		return err
	}
	for _, f := range []func(context.Context) (time.Duration, error){b.startLocal, b.startDocker} {
		if _, err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

func busyboxContext() (io.Reader, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("apt-get install busybox-static: %w", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		text []byte
	}{
		{"busybox", program},
		{"Dockerfile", []byte("FROM scratch\nCOPY busybox /bin/busybox\nRUN [\"/bin/busybox\", \"--install\", \"/bin\"]\n")},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.text)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	return &b, w.Close()
}

func (b *bench) startLocal(ctx context.Context) (time.Duration, error) {
	return start(ctx, b.local, sandbox.NetNone)
}

func (b *bench) startDocker(ctx context.Context) (time.Duration, error) {
	return start(ctx, b.docker, sandbox.NetNone)
}

// start makes a box, runs a command in it, and removes it outside of the time.
func start(ctx context.Context, p sandbox.Provider, network string) (took time.Duration, err error) {
	begin := time.Now()
	info, err := p.Create(ctx, sandbox.Spec{Tied: true, Network: network})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Destroy(context.WithoutCancel(ctx), info.ID)) }()
	box, err := p.Connect(ctx, info.ID)
	if err != nil {
		return 0, err
	}
	defer box.Close()
	if err := once(ctx, box); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// once runs the command that all kinds run.
func once(ctx context.Context, box guest.Box) error {
	exit, err := box.Exec(ctx, guest.Command{Argv: []string{"true"}}, [3]*os.File{})
	if err == nil && !exit.OK() {
		err = fmt.Errorf("the command ended with %d", exit.Status())
	}
	return err
}

func (b *bench) dockerRun(ctx context.Context, network string) (time.Duration, error) {
	const name = "agentenv-bench"
	begin := time.Now()
	_, err := dockerSays(ctx, "run", "--name", name, "--network", network, tag, "true")
	took := time.Since(begin)
	_, rmErr := dockerSays(context.WithoutCancel(ctx), "rm", "-f", name)
	return took, errors.Join(err, rmErr)
}

// execs are the kinds of running a command in what is there, and the end of that.
func (b *bench) execs(ctx context.Context) ([]series, func() error, error) {
	var ends []func() error
	end := func() error {
		var errs []error
		for _, f := range slices.Backward(ends) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	var all []series
	for _, kind := range []struct {
		name   string
		p      sandbox.Provider
		engine bool
	}{{"`local`", b.local, false}, {"`docker` of this program", b.docker, true}} {
		info, err := kind.p.Create(ctx, sandbox.Spec{Tied: true})
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		ends = append(ends, func() error { return kind.p.Destroy(context.WithoutCancel(ctx), info.ID) })
		box, err := kind.p.Connect(ctx, info.ID)
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		ends = append(ends, box.Close)
		all = append(all, series{name: kind.name, engine: kind.engine, run: timed(func(ctx context.Context) error { return once(ctx, box) })})
	}
	const name = "agentenv-bench-exec"
	if _, err := dockerSays(ctx, "run", "-d", "--name", name, "--network", "none", tag, "sleep", "100000"); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	ends = append(ends, func() error {
		_, err := dockerSays(context.WithoutCancel(ctx), "rm", "-f", name)
		return err
	})
	all = append(all, series{name: "`docker exec`", engine: true, run: timed(func(ctx context.Context) error {
		_, err := dockerSays(ctx, "exec", name, "true")
		return err
	})})
	return all, end, nil
}

func timed(f func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := f(ctx)
		return time.Since(begin), err
	}
}

// dockerSays runs Docker's own program.
func dockerSays(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(b), nil
}
