package verb

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// Document reads a file that a person names, "-" for standard input: TOML by its suffix, anything else as JSON. What is wrong with its form is a
// diag.Refusal.
func (p *Program) Document(path string) (doc.Node, error) {
	src, err := p.read(path)
	if err != nil {
		return doc.Node{}, err
	}
	name := path
	if path == "-" {
		name = "standard input"
	}
	if len(src) > doc.MaxConfig {
		return doc.Node{}, diag.List{{
			Pos: diag.Pos{File: name}, Code: "file.large", Summary: fmt.Sprintf("has more than %d MiB", doc.MaxConfig>>20), Fix: "split it", Prefixed: true,
		}}.Err()
	}
	t, l := doc.Parse(name, src)
	if err := l.Prefixed().Err(); err != nil {
		return doc.Node{}, err
	}
	return t.Root(), nil
}

// read is at most one byte more than a document may have.
func (p *Program) read(path string) ([]byte, error) {
	in := p.Streams.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, plain(path, err)
		}
		defer f.Close()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, doc.MaxConfig+1))
	if err != nil {
		return nil, plain(path, err)
	}
	return src, nil
}

// plain is an error of a file in one shape, whatever the call that failed.
func plain(path string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("no such file")
	}
	return fmt.Errorf("%s: %w", diag.Clean(path), err)
}

// IDFlag adds --id, the other way to give the id that is a command's argument.
func IDFlag(cmd *cobra.Command, what string) *string {
	return cmd.Flags().String("id", "", what)
}

// ID is the one id that a command line gives, as its argument or by --id.
func ID(cmd *cobra.Command, args []string, flag string) (string, error) {
	switch {
	case len(args) > 1:
		return "", Usagef("%s takes one ID, but also got %s", cmd.CommandPath(), args[1])
	case (len(args) == 0 || args[0] == "") && flag == "":
		return "", Usagef("%s needs an ID; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	case len(args) == 1 && args[0] != "" && flag != "" && args[0] != flag:
		return "", Usagef("%s got the id %s and --id %s; give one", cmd.CommandPath(), args[0], flag)
	case flag != "":
		return flag, nil
	default:
		return args[0], nil
	}
}

// VersionFlag adds --version: 0 is the latest.
func VersionFlag(cmd *cobra.Command) *int {
	return cmd.Flags().Int("version", 0, "the version; the latest when left out")
}

// CheckVersion refuses a --version that can't be one.
func CheckVersion(cmd *cobra.Command, v int) error {
	if cmd.Flags().Changed("version") && v < 1 {
		return Usagef("--version is at least 1, not %d", v)
	}
	return nil
}

// Which is what a command about one version of one thing is given: the id as its argument or by --id, and --version.
type Which struct {
	id      *string
	Version *int // 0: the latest
}

// WhichFlags adds --id, which find completes, and --version. what is the thing: "task".
func (p *Program) WhichFlags(cmd *cobra.Command, what string, find Lookup) Which {
	w := Which{IDFlag(cmd, "`ID` of the "+what+", in place of the argument"), VersionFlag(cmd)}
	_ = cmd.RegisterFlagCompletionFunc("id", p.Complete(find, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag alone
	return w
}

// ID is the one id that is given, where the version can be one.
func (w Which) ID(cmd *cobra.Command, args []string) (string, error) {
	id, err := ID(cmd, args, *w.id)
	if err != nil {
		return "", err
	}
	return id, CheckVersion(cmd, *w.Version)
}

// ByFlag tells whether --id was given.
func (w Which) ByFlag() bool { return *w.id != "" }

// Page is which part of a list to show.
type Page struct{ Limit, Offset int }

// PageFlags adds --limit and --offset. many is what is listed: "tasks".
func PageFlags(cmd *cobra.Command, p *Page, many string) {
	cmd.Flags().IntVar(&p.Limit, "limit", 20, "at most `N` "+many)
	cmd.Flags().IntVar(&p.Offset, "offset", 0, "leave out the newest `N` "+many)
}

// Check refuses a page that can't be.
func (p Page) Check() error {
	if p.Limit < 1 || p.Offset < 0 {
		return Usagef("--limit is at least 1, --offset at least 0")
	}
	return nil
}
