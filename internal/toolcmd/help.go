package toolcmd

import (
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// Help tells what the command can do.
func (c Command) Help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Calls the tools of the environment %s.\n\nUsage: %s [--json] TOOL [--PARAMETER VALUE]… ['{JSON}' | @FILE | -]\n\nTools:\n", lines(c.Environment), c.Name)
	wide := 0
	for _, t := range c.Tools {
		wide = max(wide, len(t.Name))
	}
	for _, t := range c.Tools {
		first, _, _ := strings.Cut(strings.TrimSpace(t.Description), "\n")
		fmt.Fprintf(&b, "  %s\n", strings.TrimRight(fmt.Sprintf("%-*s  %s", wide, lines(t.Name), lines(first)), " "))
	}
	fmt.Fprintf(&b, "\n%s TOOL --help tells a tool's parameters. --json prints a whole result.\nThe exit code is 1 when a tool says that it failed, and 2 when its arguments can't be meant.\n", c.Name)
	return b.String()
}

// ToolHelp tells of one tool.
func (c Command) ToolHelp(t Tool) string {
	var b strings.Builder
	if t.Description != "" {
		fmt.Fprintf(&b, "%s\n\n", lines(strings.TrimSpace(t.Description)))
	}
	fmt.Fprintf(&b, "Usage: %s %s", c.Name, t.Name)
	ps := params(t.Schema)
	for _, p := range ps {
		if p.required {
			fmt.Fprintf(&b, " --%s VALUE", p.name)
		}
	}
	b.WriteString(" […]\n")
	if len(ps) > 0 {
		b.WriteString("\nParameters:\n")
	}
	for _, p := range ps {
		fmt.Fprintf(&b, "  --%s  %s\n", p.name, p.about())
	}
	return b.String()
}

// about says what a parameter is, in one line.
func (p param) about() string {
	var parts []string
	if p.text != "" {
		parts = append(parts, strings.TrimSuffix(strings.Join(strings.Fields(lines(p.text)), " "), "."))
	}
	switch {
	case p.enum != nil:
		parts = append(parts, "one of "+strings.Join(p.enum, ", "))
	default:
		parts = append(parts, p.words())
	}
	if p.required {
		parts = append(parts, "required")
	}
	if p.def != "" && p.def != "null" {
		parts = append(parts, p.def+" when left out")
	}
	return lines(strings.Join(parts, "; "))
}

// lines is a text with what a terminal would obey taken out, its lines kept.
func lines(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		out = append(out, diag.Clean(strings.ReplaceAll(line, "\t", "    ")))
	}
	return strings.Join(out, "\n")
}
