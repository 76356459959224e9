package verb

import (
	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/diag"
)

// Format is the first field of every JSON object that a command prints. A change that a reader could trip over raises it.
type Format struct {
	Version int `json:"format_version"`
}

// V1 is the format of today.
func V1() Format { return Format{1} }

// JSONFlag adds --json to a command.
func JSONFlag(cmd *cobra.Command, what string) *bool {
	return cmd.Flags().Bool("json", false, what)
}

// Problem is a diag.Problem as JSON shows it.
type Problem struct {
	Severity string `json:"severity"` // "error", "warning", "hint"
	Code     string `json:"code,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Where    string `json:"where,omitempty"`
	Summary  string `json:"summary"`
	Fix      string `json:"fix,omitempty"`
	Text     string `json:"text"` // the line that people see
}

// Problems are a list's, errors first, each severity sorted by text.
func Problems(l diag.List) []Problem {
	out := []Problem{}
	for i, severity := range []diag.Severity{diag.Error, diag.Warning, diag.Hint} {
		for _, p := range l.Of(severity) {
			out = append(out, Problem{
				Severity: [...]string{"error", "warning", "hint"}[i], Code: p.Code, File: p.Pos.File, Line: p.Pos.Line, Column: p.Pos.Col,
				Where: p.Where, Summary: p.Summary, Fix: p.Fix, Text: p.String(),
			})
		}
	}
	return out
}

// Answer prints out when JSON was asked for, then what was found: errors end the command, warnings are told. What people read follows.
func (p *Program) Answer(out any, asJSON bool, found diag.List) error {
	if asJSON {
		if err := p.Streams.JSON(out); err != nil {
			return err
		}
	}
	if err := found.Err(); err != nil {
		return err
	}
	for _, w := range found.Of(diag.Warning) {
		p.Streams.Problem("Warning: %s", w)
	}
	return nil
}
