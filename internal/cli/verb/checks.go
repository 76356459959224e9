package verb

import (
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/term"
)

// TellChecks tells what checks of a subject found: the document doc of it, or what isn't as it should be, row by row. Where one failed the error is
// Exit(Refused).
func (p *Program) TellChecks(checks []app.Check, subject string, asJSON bool, doc func(ok bool) any) error {
	ok := !slices.ContainsFunc(checks, func(c app.Check) bool { return c.Score != 1 })
	if !asJSON {
		printChecks(p.Streams, checks, subject, ok)
	} else if err := p.Streams.JSON(doc(ok)); err != nil {
		return err
	}
	if !ok {
		return Exit(Refused)
	}
	return nil
}

func printChecks(s *term.Streams, checks []app.Check, subject string, ok bool) {
	c := s.OutColors()
	for _, x := range checks {
		word := c.Green("passed")
		switch {
		case x.Skipped():
			word = c.Yellow("not checked")
		case x.Score != 1:
			word = c.Red("failed")
		}
		s.Printf("%s: %s\n", x.Name, word)
		for _, r := range x.Results {
			if r["result"] == true || r["skipped"] == true && !x.Skipped() {
				continue
			}
			name, _ := r["environment_name"].(string)
			criterion, _ := r["criterion"].(string)
			why, _ := r["justification"].(string)
			s.Printf("  %s: %s\n", term.Clean(strings.TrimPrefix(name+": "+criterion, ": ")), term.Clean(why))
		}
	}
	word := c.Green("valid")
	if !ok {
		word = c.Red("not valid")
	}
	s.Printf("%s: %s\n", term.Clean(subject), word)
}
