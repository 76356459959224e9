package runview

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/runlog"
)

// Flags are what every command that runs tasks takes.
type Flags struct {
	K, Concurrency, Parallel int
	Keep, DryRun, Unknown    bool
	Film                     bool
	JSON                     *bool

	sandbox, isolation string
	output             string
	params             []string
	models             map[string]*string // by role
	agent              string
	failUnder          float64
	scored             bool // --fail-under was given
	given              map[string]map[string]json.RawMessage
}

// AddFlags adds them to a command.
func AddFlags(cmd *cobra.Command) *Flags {
	o := &Flags{}
	f := cmd.Flags()
	f.IntVar(&o.K, "k", 1, "run every task `N` times")
	f.IntVar(&o.Concurrency, "concurrency", bundlerun.DefaultConcurrency, "run at most `N` tasks at once")
	f.IntVar(&o.Parallel, "parallel", 0, "start at most `N` steps of one run at once; 0 is no limit")
	f.Float64Var(&o.failUnder, "fail-under", 0, "exit with 3 when the mean score is below `F`")
	f.StringVar(&o.sandbox, "sandbox", "", "the `PROVIDER`s to try, comma-separated, in place of what steps name")
	f.StringVar(&o.isolation, "isolation", "", "refuse sandboxes that hold less than this `LEVEL`: "+strings.Join(verb.Levels(), ", "))
	f.StringArrayVar(&o.params, "param", nil, "give a step a field in place of its own, as `STEP.FIELD=VALUE`; VALUE is JSON, or else a text; repeatable")
	o.models = map[string]*string{
		"agent": f.String("model", "", "the `MODEL` of every agent: a name that the endpoint knows, scripted:ARTIFACT (of the bundle or the store), or scripted:FILE.json"),
		"user":  f.String("user-model", "", "the `MODEL` of every simulated user"),
		"judge": f.String("judge-model", "", "the `MODEL` of every judge"),
	}
	f.StringVar(&o.agent, "agent", "", "the `AGENT` in place of those that steps deploy, by id or short name")
	f.StringVar(&o.output, "output-dir", "", "write the record of each run into this `DIR`, as runs show --json prints it")
	f.BoolVar(&o.Keep, "keep", false, "keep the sandboxes up after the runs, until Ctrl-C")
	f.BoolVar(&o.Film, "record-screen", false, "film the screens of the computers that runs deploy; agent-env runs export RUN -o FILE.png gives a film")
	f.BoolVar(&o.DryRun, "dry-run", false, "check everything and tell what would be written and run; write and run nothing")
	f.BoolVar(&o.Unknown, "allow-unknown-fields", false, "warn of step fields that this version doesn't know, in place of refusing them")
	o.JSON = verb.JSONFlag(cmd, "print one JSON object per line, the last of them the summary")
	return o
}

// Check refuses values that can't be.
func (o *Flags) Check(cmd *cobra.Command) error {
	o.scored = cmd.Flags().Changed("fail-under")
	switch {
	case o.K < 1:
		return verb.Usagef("--k is at least 1, not %d", o.K)
	case o.Concurrency < 1:
		return verb.Usagef("--concurrency is at least 1, not %d", o.Concurrency)
	case o.Parallel < 0:
		return verb.Usagef("--parallel is at least 0, not %d", o.Parallel)
	case o.scored && !(o.failUnder >= 0 && o.failUnder <= 1):
		return verb.Usagef("--fail-under takes a score from 0 to 1, not %g", o.failUnder)
	case o.isolation != "" && !slices.Contains(verb.Levels(), o.isolation):
		return verb.Usagef("--isolation takes %s, not %q", strings.Join(verb.Levels(), ", "), o.isolation)
	case o.Keep && o.DryRun:
		return verb.Usagef("--keep and --dry-run exclude each other: a dry run starts no sandbox")
	}
	for _, text := range o.params {
		if err := o.param(text); err != nil {
			return err
		}
	}
	return nil
}

// param reads "STEP.FIELD=VALUE". Fields have no dots in their names, steps may.
func (o *Flags) param(text string) error {
	name, value, ok := strings.Cut(text, "=")
	at := strings.LastIndexByte(name, '.')
	if !ok || at < 1 || at == len(name)-1 {
		return verb.Usagef("--param takes STEP.FIELD=VALUE, not %q", text)
	}
	id, field := name[:at], name[at+1:]
	raw := json.RawMessage(value)
	if !json.Valid(raw) {
		raw, _ = json.Marshal(value) // a string: it can't fail
	}
	if _, twice := o.given[id][field]; twice {
		return verb.Usagef("--param gives %s twice", name)
	}
	if o.given == nil {
		o.given = map[string]map[string]json.RawMessage{}
	}
	if o.given[id] == nil {
		o.given[id] = map[string]json.RawMessage{}
	}
	o.given[id][field] = raw
	return nil
}

// Options are what the runs are asked to be like.
func (o *Flags) Options(ctx context.Context, a *app.App) (runlog.Options, error) {
	chain, err := a.Chain(ctx, o.sandbox)
	if err != nil {
		return runlog.Options{}, err
	}
	if err := o.makeOutput(); err != nil {
		return runlog.Options{}, err
	}
	var models map[string]string
	for role, name := range o.models {
		if *name == "" {
			continue
		}
		if models == nil {
			models = map[string]string{}
		}
		if models[role], err = Model(ctx, a, modelFlags[role], *name, o.DryRun); err != nil {
			return runlog.Options{}, err
		}
	}
	return runlog.Options{
		Models: models, Agent: o.agent,
		Sandbox: chain, Isolation: o.isolation, Keep: o.Keep, Parallel: o.Parallel, Params: o.given, Film: o.Film, AllowUnknownFields: o.Unknown,
	}, nil
}

// Model is the name of a model that a flag gives: one that names a script in a file stores it, or, dry, looks whether it is one.
func Model(ctx context.Context, a *app.App, flag, name string, dry bool) (string, error) {
	file, ok := scriptFile(name)
	if !ok {
		return name, nil
	}
	name, err := a.Script(ctx, file, dry)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	return name, nil
}

// modelFlags are the flags that choose models, by role.
var modelFlags = map[string]string{"agent": "model", "user": "user-model", "judge": "judge-model"}

// scriptFile is the file that a model's name names: scripted:./play.json. Ids of artifacts never begin so, and seldom end so.
func scriptFile(name string) (string, bool) {
	text, scripted := strings.CutPrefix(name, model.ScriptedPrefix)
	if !scripted || strings.HasPrefix(text, "@") {
		return "", false
	}
	for _, prefix := range []string{"/", "./", "../"} {
		if strings.HasPrefix(text, prefix) {
			return text, true
		}
	}
	return text, strings.HasSuffix(text, ".json")
}

// Show is how the runs are shown.
func (o *Flags) Show() Options { return Options{DryRun: o.DryRun, Trials: o.K > 1, JSON: *o.JSON} }

// Under is the mean score that is asked for; nil for none.
func (o *Flags) Under() *float64 {
	if !o.scored {
		return nil
	}
	return &o.failUnder
}
