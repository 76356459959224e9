package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

type putOptions struct {
	vars   []string
	model  string
	disk   float64
	dryRun bool
	json   *bool
}

func newPut(p *verb.Program) *cobra.Command {
	var o putOptions
	cmd := &cobra.Command{
		Use:   "put ID FOLDER",
		Short: "Store a folder as the next version of an agent",
		Long: `Stores a folder with a Dockerfile, a process.toml or an agent.toml that names an image as an agent under a local id (@local/…): what a bundle with that folder in its
agents/ would write, by the same checks. A folder that has not changed is not written again. Nothing of it runs; agent-env agent validate deploys and checks it.`,
		Example: "  agent-env agent put @local/desk/helper ./helper\n  agent-env agent put @local/desk/helper ./helper --default-model NAME",
		Args:    verb.Args("ID", "FOLDER"),
		RunE:    func(cmd *cobra.Command, args []string) error { return put(cmd.Context(), p, args[0], args[1], o) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.vars, "env-var", nil, "an environment variable that every deployment gets, as `KEY=VALUE`; repeatable")
	f.StringVar(&o.model, "default-model", "", "the `MODEL` where neither a run nor the configuration names one")
	f.Float64Var(&o.disk, "min-disk-size-gb", 0, "the least disk, in `GB`")
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything and tell what would be written; write nothing")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func put(ctx context.Context, p *verb.Program, id, folder string, o putOptions) error {
	vars, err := verb.Pairs("--env-var", o.vars)
	if err != nil {
		return err
	}
	if o.disk < 0 {
		return verb.Usagef("--min-disk-size-gb can't be negative")
	}
	f := verb.FolderPut{
		Group: "agents", What: "an agent", ID: id, Folder: folder, Flags: "--env-var, --default-model and --min-disk-size-gb", DryRun: o.dryRun, JSON: *o.json,
	}
	if text := agentTOML(vars, o); text != "" {
		f.More = map[string][]byte{"agent.toml": []byte(text)}
	}
	a, _, err := open(ctx, p)
	if err != nil {
		return err
	}
	return p.PutFolder(ctx, a, f)
}

// agentTOML is what the flags say; "" for nothing.
func agentTOML(vars map[string]string, o putOptions) string {
	var b strings.Builder
	if len(vars) > 0 {
		b.WriteString("[default_env_vars]\n")
		for _, k := range slices.Sorted(maps.Keys(vars)) {
			fmt.Fprintf(&b, "%s = %s\n", quote(k), quote(vars[k]))
		}
	}
	if o.model != "" || o.disk > 0 {
		b.WriteString("[metadata]\n")
	}
	if o.model != "" {
		fmt.Fprintf(&b, "default_model = %s\n", quote(o.model))
	}
	if o.disk > 0 {
		fmt.Fprintf(&b, "min_disk_size_gb = %s\n", strconv.FormatFloat(o.disk, 'f', 3, 64))
	}
	return b.String()
}

// quote is a basic string of TOML.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
