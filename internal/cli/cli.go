// Package cli is the command line: it parses arguments, asks people, prints results and turns errors into exit codes.
//
// Each noun has a package with one file per verb; `run` and what has no noun stand here. Package verb holds what they share. Nothing here
// decides what a bundle means or does: a command calls internal/app and shows what came of it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

// Main runs one command line and answers its exit code. The first Ctrl-C or SIGTERM cancels the command, the second makes Main return
// while the command still unwinds: its caller must then end the process.
func Main(ctx context.Context, args []string, s *term.Streams, env func(string) (string, bool)) int {
	p := verb.NewProgram(s, env)
	sig, ctx := watchSignals(ctx, p.Cancelled)
	defer sig.stop()
	done := make(chan error, 1)
	go func() { done <- execute(ctx, p, args) }()
	select {
	case err := <-done:
		if _, ok := errors.AsType[*verb.Again](err); ok {
			return report(s, rerun(s, args))
		}
		if killed, ok := errors.AsType[*verb.Killed](err); ok {
			return die(killed.Signal)
		}
		return report(s, sig.error(err))
	case <-sig.second:
		for _, line := range p.Aborted() {
			s.Problem("%s", line)
		}
		return report(s, sig.error(nil))
	}
}

func execute(ctx context.Context, p *verb.Program, args []string) (err error) {
	root := newRoot(p)
	root.SetArgs(args)
	root.SetIn(p.Streams.In)
	root.SetOut(p.Streams.Out)
	root.SetErr(p.Streams.Err)
	defer func() {
		err = errors.Join(err, p.Close(ctx))
	}()
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("this is a fault of the program, not yours: %v; please report it with what --verbose tells", fault)
			p.Streams.Detail("%s", debug.Stack())
		}
	}()
	options, err := attachOptions(ctx, p, root, args)
	if err != nil {
		return err
	}
	if done, err := pluginCommand(ctx, p, root, options, args); done {
		return err
	}
	if err := root.ExecuteContext(ctx); err != nil {
		return err
	}
	return p.Streams.Failed()
}

// report prints what has not been said yet, `Error: ` before its first line alone, and answers the exit code.
func report(s *term.Streams, err error) int {
	if err == nil {
		return verb.Done
	}
	if list, ok := diag.From(err); ok {
		for _, w := range list.Of(diag.Warning) {
			s.Problem("Warning: %s", w)
		}
		defer func() {
			for _, h := range list.Of(diag.Hint) {
				s.Problem("Hint: %s", h)
			}
		}()
	}
	if text := message(err); text != "" {
		s.Problem("%s%s", s.ErrColors().Red("Error: "), text)
	}
	return verb.Code(err)
}

// message is an error's text for people, without what could move a terminal's cursor; "" when it only carries an exit code.
func message(err error) string {
	var lines []string
	for _, e := range flatten(err) {
		if verb.Silent(e) {
			continue
		}
		for line := range strings.SplitSeq(e.Error(), "\n") {
			lines = append(lines, term.Clean(line))
		}
	}
	return strings.Join(lines, "\n")
}

// flatten takes joined errors apart, so that each has its own line.
func flatten(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}
