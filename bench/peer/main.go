// Command peer measures the built agent-env beside the Python peer, in one run on one machine, and prints a Markdown table.
//
// Figures are comparisons: both programs do the same bundle in turn, several times, and the best of each counts. CPU is of the
// whole process tree: the command makes itself the reaper of orphans, so that what a sandbox used is counted too.
//
//	go run ./bench/peer -binary bin/agent-env [-only REGEXP] [-rounds 3] [-out FILE]
//
// The peer comes from the script in $PEER_SH (default ../shared/tools/peer.sh); -no-peer measures this binary alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
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
	fl := flag.NewFlagSet("peer", flag.ContinueOnError)
	binary := fl.String("binary", "bin/agent-env", "the program to measure")
	only := fl.String("only", "", "measure the work whose name matches this regular expression")
	rounds := fl.Int("rounds", 3, "rounds of each; the best counts")
	out := fl.String("out", "", "write the table to this file too")
	noPeer := fl.Bool("no-peer", false, "measure the program alone")
	work := fl.String("work", "", "folder for bundles and state; a temporary one when empty")
	if err := fl.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	ours, err := filepath.Abs(*binary)
	if err != nil {
		return err
	}
	peer := ""
	if !*noPeer {
		if peer, err = peerBinary(ctx); err != nil {
			return err
		}
	}
	if *work == "" {
		if *work, err = os.MkdirTemp("", "bench-peer-"); err != nil {
			return err
		}
		defer os.RemoveAll(*work)
	}
	if err := becomeReaper(); err != nil {
		return err
	}

	b := &bench{ours: ours, peer: peer, work: *work, rounds: *rounds}
	var rows []row
	at, err := serveAsked(ctx)
	if err != nil {
		return err
	}
	for _, c := range append(workloads(), evals(at)...) {
		if !match.MatchString(c.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", c.name)
		r, err := b.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, r)
	}
	table := render(ctx, rows, ours, peer)
	fmt.Fprint(stdout, table)
	if *out != "" {
		return os.WriteFile(*out, []byte(table), 0o644)
	}
	return nil
}

// peerBinary installs the peer, if need be, and is the path of its agent-env.
func peerBinary(ctx context.Context) (string, error) {
	script := os.Getenv("PEER_SH")
	if script == "" {
		script = filepath.Join("..", "shared", "tools", "peer.sh")
	}
	cmd := exec.CommandContext(ctx, "bash", script)
	cmd.Stderr = os.Stderr
	outB, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("install the peer with %s: %w", script, err)
	}
	return filepath.Join(strings.TrimSpace(string(outB)), "agent-env"), nil
}

// row is the best figures.
type row struct {
	name       string
	ours, peer *usage
	base       *usage // what the same work costs without either: cp, bare bash
	baseName   string
	subtract   bool // base's CPU is taken off both before the ratio
}

func render(ctx context.Context, rows []row, ours, peer string) string {
	var b strings.Builder
	version := func(bin string) string {
		outB, err := exec.CommandContext(ctx, bin, "--version").Output()
		if err != nil {
			return bin
		}
		first, _, _ := strings.Cut(string(outB), "\n")
		return first
	}
	fmt.Fprintf(&b, "%s", version(ours))
	if peer != "" {
		fmt.Fprintf(&b, " beside %s", version(peer))
	}
	fmt.Fprintf(&b, "; %s, %d cores, %s\n\n", runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly))
	b.WriteString("| work | wall s: here / peer / ratio | CPU s: here / peer / ratio | memory MB: here / peer / ratio | baseline wall / CPU s, here ÷ baseline |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s ", r.name)
		p := r.peer
		if p == nil {
			fmt.Fprintf(&b, "| %s | %s | %.0f |", secs(r.ours.wall), secs(r.ours.cpu), r.ours.rssMB)
		} else {
			oc, pc := r.ours.cpu, p.cpu
			note := ""
			if r.subtract && r.base != nil {
				oc, pc, note = oc-r.base.cpu, pc-r.base.cpu, " (baseline taken off)"
			}
			fmt.Fprintf(&b, "| %s / %s / **%s** | %s / %s / **%s**%s | %.0f / %.0f / **%s** |",
				secs(r.ours.wall), secs(p.wall), ratio(p.wall.Seconds(), r.ours.wall.Seconds()),
				secs(r.ours.cpu), secs(p.cpu), ratio(pc.Seconds(), oc.Seconds()), note,
				r.ours.rssMB, p.rssMB, ratio(p.rssMB, r.ours.rssMB))
		}
		if r.base == nil {
			b.WriteString(" |\n")
		} else {
			fmt.Fprintf(&b, " %s: %s / %s, %.2fx wall |\n", r.baseName, secs(r.base.wall), secs(r.base.cpu), r.ours.wall.Seconds()/r.base.wall.Seconds())
		}
	}
	return b.String()
}

func secs(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.4f", d.Seconds())
	}
	return fmt.Sprintf("%.2f", d.Seconds())
}

// ratio is how many times less the divisor is.
func ratio(peer, ours float64) string {
	if ours <= 0 {
		return "∞"
	}
	if r := peer / ours; r < 10 {
		return fmt.Sprintf("%.1fx", r)
	}
	return fmt.Sprintf("%.0fx", peer/ours)
}
