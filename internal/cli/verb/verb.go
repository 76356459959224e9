// Package verb is what every command of the command line is given, and the ways in which it may answer: a result on stdout, as text or
// as JSON, and an error that knows its exit code.
//
// Words: a verb is one command; a usage error is a command line that can't be meant.
package verb

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/diag"
)

// Exit codes. They are part of the program's interface.
const (
	Done        = 0   // done
	Refused     = 1   // refused, or something failed
	Usage       = 2   // the command line can't be meant
	BelowScore  = 3   // a score below --fail-under
	Interrupted = 130 // Ctrl-C
	Signalled   = 128 // and the signal's number: SIGHUP, SIGTERM, Ctrl-\
)

// ExitError carries an exit code. A nil Err means that everything has been said.
type ExitError struct {
	Code  int
	Err   error
	Final bool // a signal that came doesn't change the code
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Exit ends the command with a code and without a message.
func Exit(code int) error { return &ExitError{Code: code} }

// Final ends the command with a code although a signal came: it was how the command was meant to end.
func Final(code int) error { return &ExitError{Code: code, Final: true} }

// Usagef is a usage error: the message says what can be typed instead.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// Silent tells whether an error has nothing to say: nil, or an exit code alone.
func Silent(err error) bool {
	e, ok := errors.AsType[*ExitError](err)
	return err == nil || ok && e.Err == nil
}

// Code is the exit code of an error; nil is Done.
func Code(err error) int {
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	if err == nil {
		return Done
	}
	return Refused
}

// NoArgs refuses arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no arguments, but got %s", cmd.CommandPath(), strings.Join(args, " "))
	}
	return nil
}

// Args wants arguments: as many as names has, and any number more when the last name ends with "…".
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		more := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "…")
		switch {
		case len(args) < len(names):
			return Usagef("%s needs %s; see %s --help", cmd.CommandPath(), strings.Join(names[len(args):], " "), cmd.CommandPath())
		case len(args) > len(names) && !more:
			return Usagef("%s takes %s alone, but also got %s", cmd.CommandPath(), strings.Join(names, " "), strings.Join(args[len(names):], " "))
		}
		return nil
	}
}

// Pairs takes the KEY=VALUE texts of a flag apart; of a key that is there twice the last one counts.
func Pairs(flag string, list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range list {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return nil, Usagef("%s takes KEY=VALUE, not %q", flag, text)
		}
		out[k] = v
	}
	return out, nil
}

// Group is a command that only holds others: alone it prints its help and is a usage error.
func Group(name, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Unknown(cmd, args[0])
			}
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return Exit(Usage)
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

// Unknown is the usage error for a command that parent lacks.
func Unknown(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := diag.Nearest(name, names); near != "" {
		return Usagef("%s has no command %q; did you mean %q?", parent.CommandPath(), name, near)
	}
	return Usagef("%s has no command %q; see %s --help", parent.CommandPath(), name, parent.CommandPath())
}
