package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/term"
)

// maxHelpWidth keeps lines readable on wide terminals.
const maxHelpWidth = 100

// setHelp makes help fit the terminal that it is printed on; elsewhere it stays as it was written. `help COMMAND` is `COMMAND --help`.
func setHelp(root *cobra.Command, s *term.Streams, offered func(context.Context) []app.OfferedCommand) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := cmd.Long
		if text == "" {
			text = cmd.Short
		}
		text = strings.TrimSpace(text) + "\n\n" + cmd.UsageString()
		if cmd == root {
			text += ofPlugins(offered(cmd.Context()))
		}
		if width := s.Width(); s.OutTTY && width > 0 {
			text = fit(text, min(width, maxHelpWidth))
		}
		fmt.Fprint(cmd.OutOrStdout(), text) // Streams.Failed tells of it
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Tell how a command is used",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return verb.Unknown(found, rest[0])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	})
}

// ofPlugins is the part of the help that lists commands of plugins; "" where there are none.
func ofPlugins(all []app.OfferedCommand) string {
	if len(all) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("\nCommands of plugins:\n")
	for _, c := range all {
		fmt.Fprintf(&out, "  %-13s %s\n", c.Name, c.About)
	}
	return out.String()
}

// column is an indented line's name and the spaces up to its description.
var column = lazyregexp.New(`^ +\S.*?  +`)

// fit breaks lines to a width. Lines that begin at the margin and follow each other are one paragraph; an indented line that has a description
// goes on below it, and one that has none is something to type and stays whole.
func fit(text string, width int) string {
	var out strings.Builder
	var paragraph []string
	flush := func() {
		wrap(&out, "", strings.Fields(strings.Join(paragraph, " ")), width)
		paragraph = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line != "" && !strings.HasPrefix(line, " ") {
			paragraph = append(paragraph, line)
			continue
		}
		flush()
		head := column().FindString(line)
		if head == "" || len(head) > width/2 {
			out.WriteString(line + "\n")
			continue
		}
		wrap(&out, head, strings.Fields(line[len(head):]), width)
	}
	flush()
	return out.String()
}

// wrap writes words behind a head, with lines as wide as they may be, the later ones below the first word.
func wrap(out *strings.Builder, head string, words []string, width int) {
	if len(words) == 0 {
		return
	}
	line, begun := head, false
	for _, w := range words {
		if begun && len(line)+1+len(w) > width {
			out.WriteString(line + "\n")
			line, begun = strings.Repeat(" ", len(head)), false
		}
		if begun {
			line += " "
		}
		line, begun = line+w, true
	}
	out.WriteString(line + "\n")
}
