// Command gateway measures `agent-env gateway` beside the Python peer's, in one run on one machine, and prints a Markdown table.
//
// Both stand in front of the same tiny environment: a Go one, or with -python one on FastMCP in the peer's Python. Each is driven by 1, 16 and 256 clients at /mcp, /step and /svc; the calls straight at the
// environment are measured too. CPU is the gateway process's own, from /proc.
//
//	go run ./bench/gateway -binary bin/agent-env [-python] [-clients 1,16,256] [-seconds 3] [-out FILE]
//
// The peer comes from the script in $PEER_SH (default ../shared/tools/peer.sh); -no-peer measures ours alone. With no arguments but -serve it is the environment.
package main

import (
	"context"
	_ "embed" // for server.py
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	fl := flag.NewFlagSet("gateway", flag.ContinueOnError)
	binary := fl.String("binary", "bin/agent-env", "the program to measure")
	counts := fl.String("clients", "1,16,256", "how many clients at once, comma-separated")
	seconds := fl.Float64("seconds", 3, "how long each row is driven")
	out := fl.String("out", "", "write the table to this file too")
	noPeer := fl.Bool("no-peer", false, "measure the program alone")
	inPython := fl.Bool("python", false, "have a Python environment behind the gateways")
	isServer := fl.Bool("serve", false, "be the environment")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if *isServer {
		return serve()
	}
	var clients []int
	for s := range strings.SplitSeq(*counts, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("-clients takes numbers, not %q", s)
		}
		clients = append(clients, n)
	}
	b := bench{clients: clients, length: time.Duration(*seconds * float64(time.Second)), inPython: *inPython}
	defer b.stop()
	table, err := b.measure(ctx, *binary, !*noPeer)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, table)
	if *out != "" {
		return os.WriteFile(*out, []byte(table), 0o644)
	}
	return nil
}

// bench is one run: the processes that it started, and what it measured.
type bench struct {
	clients  []int
	length   time.Duration
	inPython bool // the environment is one in Python
	started  []*exec.Cmd
	dir      string
}

// stop ends what was started.
func (b *bench) stop() {
	for _, c := range b.started {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	}
	os.RemoveAll(b.dir)
}

func (b *bench) measure(ctx context.Context, binary string, withPeer bool) (string, error) {
	var err error
	if b.dir, err = os.MkdirTemp("", "agent-env-bench-"); err != nil {
		return "", err
	}
	env, err := b.environment(ctx)
	if err != nil {
		return "", err
	}
	behind := []string{"INTERNAL_MCP_SERVERS=svc0=" + env.url + "/mcp", "REST_PROXY_URLS=mcp-svc0=" + env.url, "MCP_SERVER_NAME=bench"}
	ours, err := b.start(ctx, "/.well-known/agent-env.json", append(behind, "GATEWAY_TRAJECTORY_FILE="+filepath.Join(b.dir, "ours.jsonl")), binary, "gateway", "--open")
	if err != nil {
		return "", err
	}
	gateways := []process{ours}
	if withPeer {
		python, path, err := peerGateway(ctx, b.dir)
		if err != nil {
			return "", err
		}
		peer, err := b.start(ctx, "/.well-known/agent-env.json", append(behind, "PYTHONPATH="+path, "GATEWAY_TRAJECTORY_FILE="+filepath.Join(b.dir, "peer.jsonl")), python, "-m", "gateway.entrypoint")
		if err != nil {
			return "", err
		}
		gateways = append(gateways, peer)
	}
	time.Sleep(time.Second) // the peer discovers its tools after it serves its card
	return b.table(ctx, env, gateways)
}

//go:embed server.py
var pythonServer []byte

// environment starts the environment that stands behind the gateways.
func (b *bench) environment(ctx context.Context) (process, error) {
	name := []string{"ENVIRONMENT_NAME=svc0"}
	if !b.inPython {
		self, err := os.Executable()
		if err != nil {
			return process{}, err
		}
		return b.start(ctx, "/.well-known/agent-env.json", name, self, "-serve")
	}
	bin, err := peerBin(ctx)
	if err != nil {
		return process{}, err
	}
	script := filepath.Join(b.dir, "server.py")
	if err := os.WriteFile(script, pythonServer, 0o600); err != nil {
		return process{}, err
	}
	return b.start(ctx, "/.well-known/agent-env.json", name, filepath.Join(bin, "python"), "-B", script)
}

func (b *bench) table(ctx context.Context, env process, gateways []process) (string, error) {
	var t strings.Builder
	t.WriteString("| clients | path | direct calls/s, p50 ms | ours calls/s, p50 ms, CPU ms a call | peer's calls/s, p50 ms, CPU ms a call | calls/s | CPU |\n|---|---|---|---|---|---|---|\n")
	for _, n := range b.clients {
		direct, err := drive(ctx, env, env.url+"/mcp", viaMCP, n, b.length)
		if err != nil {
			return "", err
		}
		for _, w := range []struct {
			name, path string
			via        kind
		}{{"/mcp", "/mcp", viaMCP}, {"/step", "/step", viaStep}, {"/svc", "/svc/mcp-svc0/mcp", viaMCP}} {
			var rows []result
			for i, g := range gateways {
				r, err := drive(ctx, g, g.url+w.path, w.via, n, b.length)
				if err != nil && i > 0 && ctx.Err() == nil {
					rows = append(rows, result{failed: true})
					continue
				}
				if err != nil {
					return "", fmt.Errorf("%s with %d clients: %w", w.name, n, err)
				}
				rows = append(rows, r)
			}
			fmt.Fprintf(&t, "| %d | %s | %.0f, %.2f | %.0f, %.2f, %.3f |", n, w.name, direct.rate, direct.p50, rows[0].rate, rows[0].p50, rows[0].cpu)
			switch {
			case len(rows) > 1 && rows[1].failed:
				t.WriteString(" calls fail | | |\n")
			case len(rows) > 1:
				fmt.Fprintf(&t, " %.0f, %.2f, %.2f | %.1fx | 1/%.0f |\n", rows[1].rate, rows[1].p50, rows[1].cpu, rows[0].rate/rows[1].rate, rows[1].cpu/rows[0].cpu)
			default:
				t.WriteString(" | | |\n")
			}
		}
	}
	return t.String(), nil
}

// process is one that is measured.
type process struct {
	url string
	pid int
}

// start runs a program that listens where MCP_PORT says, and waits until it answers.
func (b *bench) start(ctx context.Context, ready string, env []string, name string, args ...string) (process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return process{}, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return process{}, err
	}
	log, err := os.Create(filepath.Join(b.dir, filepath.Base(name)+port+".log"))
	if err != nil {
		return process{}, err
	}
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "MCP_HOST=127.0.0.1", "MCP_PORT="+port), env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return process{}, err
	}
	b.started = append(b.started, cmd)
	p := process{"http://" + addr, cmd.Process.Pid}
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if resp, err := http.Get(p.url + ready); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return p, nil
			}
		}
	}
	said, _ := os.ReadFile(log.Name())
	return p, fmt.Errorf("%s doesn't answer; it said:\n%s", name, said)
}

// peerBin is the folder of the peer's programs.
func peerBin(ctx context.Context) (string, error) {
	script := os.Getenv("PEER_SH")
	if script == "" {
		script = "../shared/tools/peer.sh"
	}
	out, err := exec.CommandContext(ctx, "bash", script).Output()
	if err != nil {
		return "", fmt.Errorf("install the peer with %s (or use -no-peer): %w", script, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// peerGateway finds the peer's Python, and makes a folder to import its gateway from.
func peerGateway(ctx context.Context, dir string) (python, path string, err error) {
	bin, err := peerBin(ctx)
	if err != nil {
		return "", "", err
	}
	found, err := filepath.Glob(filepath.Join(bin, "..", "lib", "python3.*", "site-packages", "agent_env", "env", "gateway"))
	if err != nil || len(found) != 1 {
		return "", "", errors.New("the peer holds no gateway")
	}
	path = filepath.Join(dir, "python")
	if err := os.Mkdir(path, 0o755); err != nil {
		return "", "", err
	}
	return filepath.Join(bin, "python"), path, os.Symlink(found[0], filepath.Join(path, "gateway"))
}
