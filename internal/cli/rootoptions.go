package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/plugin"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/term"
)

// rootOptions are the options that plugins add to this command line.
type rootOptions struct {
	p      *verb.Program
	all    []*rootOption
	called bool
}

// rootOption is one of them, and what people wrote of it.
type rootOption struct {
	app.RootOption
	written []string
}

// attachOptions adds the options of plugins to root, and tells what of their commands and options can't be used. It does nothing where no plugin has
// options: for each command of such a machine the options' callbacks are called, whether they are given or not.
func attachOptions(ctx context.Context, p *verb.Program, root *cobra.Command, args []string) (*rootOptions, error) {
	r := &rootOptions{p: p}
	if !app.HasRootOptions(p.Env) {
		return r, nil
	}
	p.Streams.Verbose = slices.Contains(args, "-v") || slices.Contains(args, "--verbose") // the log begins before flags are read
	found, _, _ := root.Find(args)
	if len(args) > 0 && (strings.HasPrefix(args[0], "__") || args[0] == "completion") || found != nil && found.Hidden {
		return r, nil
	}
	a, err := p.App()
	if err != nil {
		return r, nil //nolint:nilerr // a command that needs the program is told
	}
	options, bad, err := a.RootOptions(ctx, plugin.Taken(root))
	if err != nil {
		p.Streams.Problem("Warning: the options that plugins add can't be used: %s", term.Clean(err.Error()))
		return r, ctx.Err()
	}
	for _, c := range bad {
		p.Streams.Problem("Warning: %s", term.Clean(fmt.Sprintf("%s %s: %s %s: %s: %s", c.Package, c.Version, dist.GroupWord(c.Group), c.Name, c.Status, c.Reason)))
	}
	for _, o := range options {
		own := &rootOption{RootOption: o}
		r.all = append(r.all, own)
		own.attach(root.PersistentFlags())
	}
	before := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if err := before(cmd, args); err != nil || root.Flags().Changed("version") {
			return err
		}
		return r.call(cmd.Context())
	}
	return r, nil
}

// attach makes the option's flags.
func (o *rootOption) attach(flags *pflag.FlagSet) {
	var long, short []string
	for _, f := range o.Flags {
		if name, ok := strings.CutPrefix(f, "--"); ok {
			long = append(long, name)
		} else if len(f) == 2 {
			short = append(short, f[1:])
		}
	}
	if len(long) == 0 && len(short) > 0 {
		long = short[:1]
	}
	for i, name := range long {
		usage := o.Help
		if usage == "" {
			usage = "an option of " + o.By
		}
		v := &writtenFlag{o, "--" + name}
		if len(name) == 1 {
			v.flag = "-" + name
		}
		letter := ""
		if i < len(short) {
			letter = short[i]
		}
		f := flags.VarPF(v, name, letter, usage)
		f.Hidden = i > 0
		if !o.Value {
			f.NoOptDefVal = "true"
		}
	}
}

// writtenFlag notes what is written of a flag, to be read by the plugin.
type writtenFlag struct {
	o    *rootOption
	flag string
}

func (w *writtenFlag) String() string { return "" }

func (w *writtenFlag) Type() string {
	if w.o.Value {
		return w.o.Metavar
	}
	return "bool"
}

func (w *writtenFlag) Set(s string) error {
	switch {
	case w.o.Value:
		w.o.written = append(w.o.written, w.flag, s)
	case s != "true":
		return errors.New("it takes no value")
	default:
		w.o.written = append(w.o.written, w.flag)
	}
	return nil
}

// call calls every option's callback. One that fails while its option isn't given is told and passed over; else the command ends.
func (r *rootOptions) call(ctx context.Context) error {
	if r.called {
		return nil
	}
	r.called = true
	for _, o := range r.all {
		code, said, err := o.run(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && code == app.Through {
			for _, line := range said {
				r.p.Streams.Problem("%s", line)
			}
			continue
		}
		why := fmt.Sprintf("it ended with exit code %d", code)
		if err != nil {
			why = term.Clean(err.Error())
		} else if len(said) > 0 {
			why = strings.TrimPrefix(said[len(said)-1], "Error: ")
		}
		switch {
		case len(o.written) == 0:
			r.p.Streams.Problem("Warning: %s: the option %s does nothing: %s", term.Clean(o.By), o.Flags[0], why)
		case err == nil && code == verb.Done:
			for _, line := range said {
				r.p.Streams.Problem("%s", line)
			}
			return verb.Exit(verb.Done)
		default:
			return &verb.ExitError{Code: max(code, verb.Refused), Err: fmt.Errorf("the option %s of %s: %s", o.Flags[0], o.By, why)}
		}
	}
	return nil
}

const maxSaidByOption = 64 << 10

// run calls the option's callback and answers what it said on stderr, a clean line each.
func (o *rootOption) run(ctx context.Context) (int, []string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer read.Close()
	said := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(read, maxSaidByOption))
		_, _ = io.Copy(io.Discard, read)
		said <- b
	}()
	code, err := o.Run(ctx, append([]string{}, o.written...), [3]*os.File{os.Stdin, os.Stdout, write}, os.Environ())
	err = errors.Join(err, write.Close())
	_ = read.SetReadDeadline(time.Now().Add(time.Second)) // what the plugin left running doesn't hold the command
	var lines []string
	for line := range strings.Lines(string(<-said)) {
		if line = term.Clean(strings.TrimRight(line, "\r\n")); line != "" {
			lines = append(lines, line)
		}
	}
	return code, slices.Clip(lines), err
}
