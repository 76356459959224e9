package env

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/envowner"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/owner"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/term"
)

type listOptions struct {
	page     verb.Page
	prefix   string
	deployed bool
	json     *bool
}

func newList(p *verb.Program) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List stored environments, or those that are deployed, newest first",
		Example: "  agent-env env list\n  agent-env env list --deployed --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, o) },
	}
	cmd.Flags().StringVar(&o.prefix, "prefix", "", "only ids that begin with this `TEXT`")
	cmd.Flags().BoolVar(&o.deployed, "deployed", false, "list deployments that stand")
	verb.PageFlags(cmd, &o.page, "environments")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// storedInfo is a stored environment as people see it.
type storedInfo struct {
	ID       string    `json:"id"`
	Version  int       `json:"version"`
	Type     string    `json:"type"`
	Name     string    `json:"name,omitempty"`
	Provider string    `json:"env_provider_type"`
	Owner    string    `json:"owner,omitempty"`
	Created  time.Time `json:"created_at_utc"`
	Parts    []part    `json:"servers,omitempty"`
	Metadata *metadata `json:"metadata,omitempty"`
}

// metadata is what the program found out of an environment after it was stored.
type metadata struct {
	Boot *envstore.ValidatedBoot `json:"validated_boot,omitempty"`
}

// part is one server of a stored environment.
type part struct {
	Name    string   `json:"environment_name"`
	Image   string   `json:"image"`
	Version int      `json:"image_version"`
	Command []string `json:"command,omitempty"` // how it runs without an image
	Plugin  bool     `json:"plugin,omitempty"`  // its plugin runs it: it has no image
	Apps    []string `json:"apps,omitempty"`    // of a computer
}

func infoOf(e envstore.Env) storedInfo {
	i := storedInfo{ID: e.ID, Version: e.Version, Type: e.Type, Name: e.Name, Provider: e.Provider, Owner: e.Owner, Created: e.Created}
	for _, p := range e.Parts {
		x := part{Name: p.Name, Image: p.Image.ID, Version: p.Image.Version, Plugin: p.Document != nil}
		if p.Computer != nil {
			x.Apps = p.Computer.Apps
			x.Image, x.Version = p.Computer.Image.ID, p.Computer.Image.Version
		}
		if p.Source.Process != nil {
			x.Command = p.Source.Process.Command
		}
		i.Parts = append(i.Parts, x)
	}
	return i
}

type listing struct {
	verb.Format
	Envs []storedInfo `json:"envs"`
	More bool         `json:"more"`
}

type deployedListing struct {
	verb.Format
	Deployments []envowner.Record `json:"deployments"`
	More        bool              `json:"more"`
}

func list(ctx context.Context, p *verb.Program, o listOptions) error {
	if err := o.page.Check(); err != nil {
		return err
	}
	a, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	if o.deployed {
		return listDeployed(p, f, o)
	}
	envs, more, err := storedEnvs(ctx, a, o)
	if err != nil {
		return err
	}
	if *o.json {
		return p.Streams.JSON(listing{verb.V1(), envs, more})
	}
	if len(envs) == 0 {
		p.Streams.Note("No environment is stored.")
		return nil
	}
	t := term.NewTable("ENVIRONMENT", "VERSION", "TYPE", "NAME", "STORED")
	for _, e := range envs {
		t.Row(e.ID, "v"+strconv.Itoa(e.Version), e.Type, e.Name, verb.Time(p.Streams, e.Created))
	}
	return t.Print(p.Streams)
}

func storedEnvs(ctx context.Context, a *app.App, o listOptions) ([]storedInfo, bool, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return nil, false, err
	}
	out, skip := []storedInfo{}, o.page.Offset
	for q := (store.Query{Kind: store.Env, Prefix: o.prefix, Limit: 500}); ; {
		page, err := s.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for _, d := range page.Docs {
			if skip > 0 {
				skip--
				continue
			}
			if len(out) == o.page.Limit {
				return out, true, nil
			}
			e, err := envstore.Header(ctx, s, d.ID, d.Version)
			if err != nil {
				return nil, false, err
			}
			out = append(out, infoOf(e))
		}
		if q.After = page.Next; q.After == "" {
			return out, false, nil
		}
	}
}

func listDeployed(p *verb.Program, f *envowner.Folder, o listOptions) error {
	all, err := f.List()
	if err != nil {
		return err
	}
	kept := []envowner.Record{}
	for _, r := range all {
		if strings.HasPrefix(r.Env, o.prefix) {
			kept = append(kept, r)
		}
	}
	kept = kept[min(o.page.Offset, len(kept)):]
	more := len(kept) > o.page.Limit
	kept = kept[:min(o.page.Limit, len(kept))]
	if *o.json {
		return p.Streams.JSON(deployedListing{verb.V1(), kept, more})
	}
	if len(kept) == 0 {
		p.Streams.Note("No environment is deployed.")
		return nil
	}
	t := term.NewTable("INSTANCE", "VERSION", "STATE", "LIVES", "OWNER")
	for _, r := range kept {
		t.Row(r.Instance, "v"+strconv.Itoa(r.Version), r.State, max(time.Until(r.Expires).Round(time.Second), 0).String(), strconv.Itoa(r.PID))
	}
	return t.Print(p.Streams)
}

func newShow(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var version int
	cmd := &cobra.Command{
		Use:   "show ENV|INSTANCE",
		Short: "Show a deployment with its URLs, or a stored environment",
		Long: `Shows a deployment, with the URLs that it is reached by: whoever knows one controls the environment, or acts in the role it is for. When nothing of that name is
deployed, a stored environment is shown.`,
		Args: verb.Args("ENV"), ValidArgsFunction: completeDeployed(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd.Context(), p, args[0], version, *asJSON)
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "show this `VERSION` of the stored environment")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// showComputer tells what a computer is composed of, and what its checks found last.
func showComputer(p *verb.Program, i storedInfo, x part) {
	p.Streams.Printf("  %s: a computer\n", x.Name)
	if x.Image != "" {
		p.Streams.Printf("  image: %s v%d\n", x.Image, x.Version)
	}
	if len(x.Apps) > 0 {
		p.Streams.Printf("  apps: %s\n", strings.Join(x.Apps, ", "))
	}
	if i.Metadata != nil && i.Metadata.Boot != nil {
		p.Streams.Printf("  checked %s: %s\n", verb.Time(p.Streams, i.Metadata.Boot.At), map[bool]string{true: "passed", false: "failed"}[i.Metadata.Boot.Passed])
	}
}

// shown is what --json prints of a stored environment.
type shown struct {
	verb.Format
	Env storedInfo `json:"env"`
}

func show(ctx context.Context, p *verb.Program, text string, version int, asJSON bool) error {
	a, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	r, err := f.Find(text)
	switch {
	case err == nil && version == 0:
		c := f.Client(r)
		defer c.Close()
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		return printStarted(p, s, asJSON)
	case err != nil && !errors.Is(err, owner.ErrNotFound):
		return err
	}
	e, err := a.StoredEnv(ctx, text, version)
	if err != nil {
		return err
	}
	i := infoOf(e)
	s, err := a.Store(ctx)
	if err != nil {
		return err
	}
	if b, ok, err := envstore.Boot(ctx, s, e.ID, e.Version); err != nil {
		return err
	} else if ok {
		i.Metadata = &metadata{&b}
	}
	if asJSON {
		return p.Streams.JSON(shown{verb.V1(), i})
	}
	p.Streams.Printf("%s v%d: %s\n", i.ID, i.Version, i.Type)
	for n, x := range i.Parts {
		if x.Plugin {
			p.Streams.Printf("  %s: its plugin runs it\n", x.Name)
			continue
		}
		if e.Parts[n].Computer != nil {
			showComputer(p, i, x)
			continue
		}
		how := "needs its image"
		if x.Command != nil {
			how = "runs " + strings.Join(x.Command, " ")
		}
		p.Streams.Printf("  %s: %s v%d, %s\n", x.Name, x.Image, x.Version, how)
	}
	return nil
}
