package verb

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/term"
)

// stopped is the cause of a context that a signal ended.
type stopped struct{ sig os.Signal }

func (s stopped) Error() string     { return s.sig.String() }
func (s stopped) Signal() os.Signal { return s.sig }

func TestOffer(t *testing.T) {
	refusal := errors.New("refused")
	unmet := func() *bundlerun.UnmetRequirements {
		return &bundlerun.UnmetRequirements{Refusal: refusal, Install: []string{"agentenv-acme>=1.2", "b"}, Only: true}
	}
	broken := errors.New("nothing satisfies it")
	for name, c := range map[string]struct {
		input   string
		err     error
		change  func(*Program)
		dryRun  bool
		signal  os.Signal
		fails   error
		asked   bool
		install bool
		want    func(error) bool
		says    string
	}{
		"yes":            {input: "y\n", asked: true, install: true, want: isAgain},
		"yes, and fails": {input: "yes\n", asked: true, install: true, fails: broken, want: func(e error) bool { return errors.Is(e, broken) }},
		"no":             {input: "n\n", asked: true, want: func(e error) bool { return errors.Is(e, refusal) }},
		"nothing":        {input: "\n", asked: true, want: func(e error) bool { return errors.Is(e, refusal) }},
		"end of input":   {input: "", asked: true, want: func(e error) bool { return Code(e) == Refused && Silent(e) }, says: "Aborted!\n"},
		"Ctrl-C":         {input: "y\n", signal: os.Interrupt, asked: true, want: func(e error) bool { return Code(e) == Refused && Silent(e) }, says: "Aborted!\n"},
		"SIGTERM": {input: "y\n", signal: syscall.SIGTERM, asked: true, want: func(e error) bool {
			k, ok := errors.AsType[*Killed](e)
			return ok && k.Signal == syscall.SIGTERM
		}},
		"a dry run":       {input: "y\n", dryRun: true, want: func(e error) bool { return errors.Is(e, refusal) }},
		"off a terminal":  {input: "y\n", change: func(p *Program) { p.Streams.InTTY = false }, want: func(e error) bool { return errors.Is(e, refusal) }},
		"no installer":    {input: "y\n", change: func(p *Program) { p.Install = nil }, want: func(e error) bool { return errors.Is(e, refusal) }},
		"run again":       {input: "y\n", change: func(p *Program) { p.Env = func(n string) (string, bool) { return "1", n == RerunVariable } }, want: func(e error) bool { return errors.Is(e, refusal) }},
		"other problems":  {input: "y\n", err: &bundlerun.UnmetRequirements{Refusal: refusal, Install: []string{"b"}}, want: func(e error) bool { return errors.Is(e, refusal) }},
		"agent-env alone": {input: "y\n", err: &bundlerun.UnmetRequirements{Refusal: refusal, Only: true}, want: func(e error) bool { return errors.Is(e, refusal) }},
		"another error":   {input: "y\n", err: broken, want: func(e error) bool { return errors.Is(e, broken) }},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, stderr := term.Buffers(c.input)
			s.InTTY, s.ErrTTY = true, true
			p := NewProgram(s, func(string) (string, bool) { return "", false })
			var installed []string
			p.Install = func(_ context.Context, requirements []string) error {
				installed = requirements
				return c.fails
			}
			if c.change != nil {
				c.change(p)
			}
			err := c.err
			if err == nil {
				err = unmet()
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.signal != nil {
				cancel(stopped{c.signal})
			}
			if got := p.Offer(ctx, err, c.dryRun); !c.want(got) {
				t.Errorf("answers %v", got)
			}
			const question = "Install agentenv-acme>=1.2, b with agent-env plugin add? [y/N]: "
			if asked := strings.HasPrefix(stderr.String(), question); asked != c.asked || !c.asked && stderr.Len() > 0 {
				t.Errorf("says %q", stderr)
			}
			if c.says != "" && !strings.HasSuffix(stderr.String(), c.says) {
				t.Errorf("says %q", stderr)
			}
			if want := c.install; want != slices.Equal(installed, []string{"agentenv-acme>=1.2", "b"}) || !want && installed != nil {
				t.Errorf("installs %q", installed)
			}
		})
	}
}

func isAgain(err error) bool {
	_, ok := errors.AsType[*Again](err)
	return ok
}
