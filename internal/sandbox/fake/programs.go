package fake

import (
	"context"
	"io"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// Program is what runs for a command. It returns soon after ctx ends, which stands for being killed.
type Program func(ctx context.Context, p *Proc) guest.Exit

// Proc is one running command.
type Proc struct {
	Argv    []string
	Env     map[string]string
	Dir     string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Machine *Machine
}

// Path is name seen from the command's folder.
func (p *Proc) Path(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(p.Dir, name)
}

// Code is the end of a program that answers n.
func Code(n int) guest.Exit { return guest.Exit{Code: n} }

// Builtins are the programs of every fake box: true, false, echo, cat, sleep, env, pwd, exit N and kill-self N.
func Builtins() map[string]Program {
	return map[string]Program{
		"true":  func(context.Context, *Proc) guest.Exit { return Code(0) },
		"false": func(context.Context, *Proc) guest.Exit { return Code(1) },
		"echo": func(_ context.Context, p *Proc) guest.Exit {
			io.WriteString(p.Stdout, strings.Join(p.Argv[1:], " ")+"\n")
			return Code(0)
		},
		"cat": cat,
		"env": func(_ context.Context, p *Proc) guest.Exit {
			for k, v := range p.Env {
				io.WriteString(p.Stdout, k+"="+v+"\n")
			}
			return Code(0)
		},
		"pwd": func(_ context.Context, p *Proc) guest.Exit {
			io.WriteString(p.Stdout, p.Dir+"\n")
			return Code(0)
		},
		"sleep":     sleep,
		"exit":      func(_ context.Context, p *Proc) guest.Exit { return Code(number(p.Argv)) },
		"kill-self": func(_ context.Context, p *Proc) guest.Exit { return guest.Exit{Signal: number(p.Argv)} },
	}
}

func number(argv []string) int {
	if len(argv) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(argv[1])
	return n
}

func cat(_ context.Context, p *Proc) guest.Exit {
	if len(p.Argv) == 1 {
		io.Copy(p.Stdout, p.Stdin)
		return Code(0)
	}
	code := 0
	for _, name := range p.Argv[1:] {
		b, err := p.Machine.Files.ReadFile(p.Path(name))
		if err != nil {
			io.WriteString(p.Stderr, "cat: "+err.Error()+"\n")
			code = 1
			continue
		}
		p.Stdout.Write(b)
	}
	return Code(code)
}

func sleep(ctx context.Context, p *Proc) guest.Exit {
	seconds, _ := strconv.ParseFloat(strings.TrimSuffix(strings.Join(p.Argv[1:], ""), "s"), 64)
	t := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer t.Stop()
	select {
	case <-t.C:
		return Code(0)
	case <-ctx.Done():
		return guest.Exit{Signal: int(syscall.SIGKILL)}
	}
}
