package verb

import (
	"strings"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/term"
)

// PrintChecks tells what checks of a subject found: what isn't as it should be, row by row.
func PrintChecks(s *term.Streams, checks []app.Check, subject string, ok bool) {
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
