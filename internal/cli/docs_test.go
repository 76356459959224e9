package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

var update = flag.Bool("update", false, "rewrite what is generated from the program")

// TestDocs: docs/cli.md is what the program says of itself.
func TestDocs(t *testing.T) {
	s, _, _ := term.Buffers("")
	root := newRoot(verb.NewProgram(s, func(string) (string, bool) { return "", false }))
	var b bytes.Buffer
	b.WriteString("# The command line\n\nThis page is written by `make docs` from the program's own help. Exit codes: 0 done, 1 refused or failed, 2 the command line can't be meant,\n" +
		"3 a score below `--fail-under`, 130 after Ctrl-C, 128 and the signal's number after another; `sandbox exec` ends with its command's code. Results go to stdout; notes, questions and problems to\n" +
		"stderr. What `--json` prints is in [json.md](json.md).\n")
	describe(&b, root)
	path := filepath.Join("..", "..", "docs", "cli.md")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		t.Error("docs/cli.md is stale: run make docs")
	}
}

func describe(b *bytes.Buffer, cmd *cobra.Command) {
	if cmd.Hidden {
		return
	}
	if cmd.Runnable() && (!cmd.HasSubCommands() || !cmd.HasParent()) {
		b.WriteString("\n## " + cmd.CommandPath() + "\n\n    " + cmd.UseLine() + "\n\n")
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		b.WriteString(text + "\n")
		if cmd.Example != "" {
			b.WriteString("\n```\n" + dedent(cmd.Example) + "\n```\n")
		}
		flags(b, cmd)
	}
	for _, c := range cmd.Commands() {
		describe(b, c)
	}
}

func flags(b *bytes.Buffer, cmd *cobra.Command) {
	any := false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if !any {
			b.WriteString("\n| flag | |\n|---|---|\n")
			any = true
		}
		name, usage := pflag.UnquoteUsage(f)
		spelled := "`--" + f.Name
		if f.Shorthand != "" {
			spelled = "`-" + f.Shorthand + ", --" + f.Name
		}
		if name != "" {
			spelled += " " + name
		}
		if def := f.DefValue; def != "" && def != "false" && def != "0" && def != "[]" {
			usage += " (default " + def + ")"
		}
		b.WriteString("| " + spelled + "` | " + strings.ReplaceAll(usage, "|", "\\|") + " |\n")
	})
}

func dedent(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		out = append(out, strings.TrimPrefix(line, "  "))
	}
	return strings.Join(out, "")
}

// bare are commands without --json: what they print is JSON whatever is asked, or no result of theirs.
var bare = []string{"completion", "exec", "export", "driver", "session"}

// TestHelp: every command can be found, says in one line what it does, and has its arguments and flags documented.
func TestHelp(t *testing.T) {
	s, _, _ := term.Buffers("")
	root := newRoot(verb.NewProgram(s, func(string) (string, bool) { return "", false }))
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short help is a phrase without a full stop, not %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Args == nil {
			t.Errorf("%s checks no arguments", cmd.CommandPath())
		}
		if leaf := !cmd.HasSubCommands(); leaf && !slices.Contains(bare, cmd.Name()) && cmd.Flags().Lookup("json") == nil {
			t.Errorf("%s prints a result but has no --json", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no help", cmd.CommandPath(), f.Name)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
}
