package cli

import (
	"errors"
	"fmt"
	"io/fs"
	neturl "net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/sdk/conformance"
)

type conformOptions struct {
	fixture, expect string
	wait            verb.Duration
	json            *bool
}

func newConform(p *verb.Program) *cobra.Command {
	var o conformOptions
	cmd := &cobra.Command{
		Use:   "conform URL",
		Short: "Check a server against every row of the environments' protocol",
		Long: `Checks the server at URL (its base, without a path of the protocol) from outside: an environment server, a gateway or an agent. Every row of
the protocol is a named check. Rows that need to know how to make the server fail, or to tell who called, take it from --fixture, a JSON file; without
it they are not checked, and say so.

--expect-failures names rows that are known to fail, with reasons: {"failures":[{"row":"E13","reason":"..."}]}. Such a row that passes is a problem
too. Exits 1 when there is a problem.

The checks reset the environment's data and clock: don't point them at a server that somebody uses.`,
		Example: `  agent-env conform http://127.0.0.1:18765
  agent-env conform http://127.0.0.1:18765 --fixture notes.json --json`,
		Args: verb.Args("URL"),
		RunE: func(cmd *cobra.Command, args []string) error { return conform(cmd, p, args[0], o) },
	}
	cmd.Flags().StringVar(&o.fixture, "fixture", "", "`FILE` that says how to make the server do what rows are about")
	cmd.Flags().StringVar(&o.expect, "expect-failures", "", "`FILE` of rows that are known to fail, with reasons")
	cmd.Flags().Var(&o.wait, "wait", "wait up to `DURATION` for a server that can't be reached yet")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// conformity is what --json prints.
type conformity struct {
	verb.Format
	OK bool `json:"ok"`
	conformance.Report
}

func conform(cmd *cobra.Command, p *verb.Program, url string, o conformOptions) error {
	if err := checkURL(url); err != nil {
		return err
	}
	t := conformance.Target{URL: url, Wait: time.Duration(o.wait)}
	err := errors.Join(
		readInto(o.fixture, conformance.ParseFixture, &t.Fixture),
		readInto(o.expect, conformance.ParseExpectations, &t.Expect))
	if err != nil {
		return err
	}
	r, err := conformance.Run(cmd.Context(), t)
	if err != nil {
		return err
	}
	ok := r.Problems() == 0
	if *o.json {
		if err := p.Streams.JSON(conformity{verb.V1(), ok, r}); err != nil {
			return err
		}
	} else {
		printConformity(p.Streams, r)
	}
	if !ok {
		return verb.Exit(verb.Refused)
	}
	return nil
}

// checkURL refuses what no server can be reached at, before anything is sent.
func checkURL(url string) error {
	u, err := neturl.Parse(url)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return verb.Usagef("URL is where the server is reached, such as http://127.0.0.1:18765, not %q", url)
	case u.RawQuery != "" || u.Fragment != "":
		return verb.Usagef("URL is the base of the server, without a query or a fragment")
	}
	return nil
}

// readInto reads a file that people wrote; path "" leaves into as it is.
func readInto[T any](path string, parse func([]byte) (T, error), into *T) error {
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s can't be read: %w", path, pe.Err)
	}
	if err != nil {
		return fmt.Errorf("%s can't be read: %w", path, err)
	}
	if *into, err = parse(b); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func printConformity(s *term.Streams, r conformance.Report) {
	c := s.OutColors()
	for _, x := range r.Results {
		mark := string(x.Status)
		switch x.Status {
		case conformance.Passed:
			mark = c.Green(mark)
		case conformance.Failed, conformance.Unexpected:
			mark = c.Red(mark)
		default:
			mark = c.Yellow(mark)
		}
		s.Printf("%-4s %s  %s\n", x.Row, mark, x.Name)
		if x.Reason != "" {
			s.Printf("       %s\n", term.Clean(x.Reason))
		}
		if x.Status == conformance.Failed {
			for _, e := range x.Evidence {
				s.Printf("       | %s\n", term.Clean(e))
			}
		}
	}
	s.Printf("%s %s: %d passed, %d failed, %d expected failures, %d unexpected passes, %d not checked\n", r.Kind, term.Clean(r.Name),
		r.Count(conformance.Passed), r.Count(conformance.Failed), r.Count(conformance.Expected), r.Count(conformance.Unexpected), r.Count(conformance.Skipped))
}
