package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/plugin/boxtest"
	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/treestore"
	"agentenv.internal/agentenv/sdk/plugin"
)

// acme is a plugin that this test binary plays when it is started as one.
func acme() *plugin.Plugin {
	return &plugin.Plugin{
		Name: "acme-plugin", Version: "1.2.0",
		Steps: []plugin.Step{
			{
				Name: "acme_check", Description: "Scores whether the sandbox holds a text", Scores: true,
				Schema: json.RawMessage(`{"type": "object", "properties": {"sandbox_name": {"type": "string"}, "path": {"type": "string"}, "expected": {"type": "string", "minLength": 1}}, "required": ["expected"]}`),
				Run:    acmeCheck,
				Check: func(_ context.Context, d plugin.Document) []plugin.Problem {
					var c struct {
						Expected string `json:"expected"`
					}
					if d.Decode(&c) == nil && c.Expected == "forbidden" {
						return []plugin.Problem{{Where: "expected", Summary: "can't be that", Fix: "expect something else"}}
					}
					return nil
				},
			},
			{
				Name: "acme_do", Description: "Does what it is told", Schema: json.RawMessage(`{"properties": {"what": {"type": "string"}}}`),
				Run: acmeDo,
			},
			{
				Name: "acme_ask", Description: "Asks the host", Scores: true,
				Schema: json.RawMessage(`{"properties": {"method": {"type": "string"}, "params": {"type": "object"}, "want": {"type": "string"}, "fetch": {"type": "string"}, "path": {"type": "string"}, "read": {"type": "string"}}}`),
				Refs:   []plugin.Ref{{Path: "params.env_id", Kind: "env"}},
				Run:    acmeAsk,
			},
		},
		Envs: (&rooms{all: map[string]*room{}}).types(), Artifacts: []plugin.Artifact{table()},
		Sandboxes: []plugin.Sandboxes{boxtest.Provider("acme_boxes", acmeAbilities(), func() (sandbox.Provider, error) {
			return local.New(local.Options{StateRoot: filepath.Join(os.Getenv("HOME"), "acme-boxes")})
		})},
		Commands: []plugin.Command{{Name: "acme", Description: "Says words", Run: func(ctx context.Context, h *plugin.Host, args []string) int {
			var settings struct {
				Greeting string `json:"greeting"`
			}
			if err := h.Settings(ctx, "agentenv-acme", &settings); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			if len(args) == 3 && args[0] == "ask" { // METHOD PARAMS
				var out json.RawMessage
				if err := h.Ask(ctx, args[1], json.RawMessage(os.Expand(args[2], func(name string) string {
					if name == "TEMP" {
						return h.TempDir()
					}
					return os.Getenv(name)
				})), &out); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return 1
				}
				fmt.Println(string(out))
				return 0
			}
			fmt.Println(settings.Greeting, args)
			return len(args)
		}}},
	}
}

// acmeAbilities are what sandboxes of acme say that they can: they publish no ports.
func acmeAbilities() plugin.SandboxAbilities {
	can := boxtest.Everything()
	can.Can = slices.DeleteFunc(can.Can, func(word string) bool { return word == plugin.CanPublish })
	return can
}

func acmeCheck(ctx context.Context, c *plugin.Call) error {
	var d struct {
		Sandbox, Path, Expected string
	}
	var fields struct {
		Sandbox  string `json:"sandbox_name"`
		Path     string `json:"path"`
		Expected string `json:"expected"`
	}
	if err := c.Doc.Decode(&fields); err != nil {
		return err
	}
	d.Sandbox, d.Path, d.Expected = fields.Sandbox, fields.Path, fields.Expected
	c.Log.Info("checking", "expected", d.Expected)
	if d.Sandbox == "" {
		return c.Score(1, nil)
	}
	out, err := c.Host.Exec(ctx, plugin.SandboxCommand{Sandbox: d.Sandbox, Argv: []string{"cat", d.Path}})
	if err != nil {
		return plugin.Infra(err)
	}
	score := 0.0
	if out.Stdout == d.Expected {
		score = 1
	}
	return c.Score(score, map[string]any{"found": out.Stdout})
}

func acmeDo(ctx context.Context, c *plugin.Call) error {
	var d struct {
		What string `json:"what"`
	}
	if err := c.Doc.Decode(&d); err != nil {
		return err
	}
	switch d.What {
	case "crash":
		fmt.Fprintln(os.Stderr, "no more memory")
		os.Exit(9)
	case "fail":
		return plugin.Fail("LobbyError", "the lobby was never opened")
	case "wait":
		c.Log.Info("waiting for the end")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
		}
	case "secret":
		v, err := c.Host.Secret(ctx, "ACME_KEY")
		if err != nil {
			return err
		}
		c.Log.Info("the secret is " + v)
	case "object":
		o, err := c.Host.PutText(ctx, "hello object", "text/plain")
		if err != nil {
			return err
		}
		path, err := c.Host.GetObject(ctx, o.URL)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c.Log.Info("read again: " + string(b))
	}
	return nil
}

// installPlugins is `plugins NAME…`: a plugin environment with these distributions, as it is after `plugin add`. acme is agentenv-acme 1.2.0, whose program
// this binary plays; other is another one with the same step type; manifest is one whose manifest can't be read; old is one for a later agent-env;
// cloud is acme under another name with a provider of sandboxes that its program lacks.
func installPlugins(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: plugins NAME…")
	}
	var wheels []wheeltest.Wheel
	for _, name := range args {
		w, err := pluginWheel(name)
		ts.Check(err)
		wheels = append(wheels, w)
	}
	root := filepath.Join(ts.Getenv("XDG_STATE_HOME"), "agentenv", "plugins")
	key := fmt.Sprintf("test-%d", time.Now().UnixNano())
	ts.Check(wheeltest.Generation(context.Background(), treestore.Open(filepath.Join(root, "generations"), treestore.Options{}), key, wheels...))
	b, err := json.Marshal(map[string]any{"format_version": 1, "generation": key})
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(root, "current.json"), b, 0o600))
}

func pluginWheel(name string) (wheeltest.Wheel, error) {
	self, err := os.Executable()
	if err != nil {
		return wheeltest.Wheel{}, err
	}
	manifest, err := acme().Manifest()
	if err != nil {
		return wheeltest.Wheel{}, err
	}
	w := wheeltest.Wheel{
		Name: "agentenv-acme", Version: "1.2.0", Entries: map[string]map[string]string{plugin.GroupExec: {"acme": "acme-plugin"}},
		Files:   map[string]string{"@/" + plugin.ManifestName: string(manifest)},
		Scripts: map[string][]byte{"acme-plugin": []byte("#!/bin/sh\nexec '" + self + "'\n")},
	}
	switch name {
	case "acme":
	case "other":
		w.Name, w.Version = "agentenv-other", "2.0"
	case "manifest":
		w.Name, w.Files["@/"+plugin.ManifestName] = "agentenv-manifest", "{"
	case "cloud": // a provider of sandboxes that the program doesn't have
		var m plugin.Manifest
		if err := json.Unmarshal(manifest, &m); err != nil {
			return w, err
		}
		m.Types = append(m.Types, plugin.Type{Group: plugin.GroupProviders, Name: "acme_cloud", Sandbox: new(boxtest.Everything())})
		b, err := json.Marshal(m)
		if err != nil {
			return w, err
		}
		w.Files["@/"+plugin.ManifestName] = string(b)
	case "old":
		w.Requires = []string{"agentenv-framework>=99"}
	case "bundled":
		w = wheeltest.Wheel{
			Name: "agentenv-bundled", Version: "1.0.0", Entries: map[string]map[string]string{plugin.GroupBundles: {"from-acme": "acme_bundles"}},
			Files: map[string]string{"acme_bundles/__init__.py": "", "acme_bundles/from-acme/tasks/bundle.json": `[{"id": "check", "type": "acme_check", "expected": "x"}]`},
		}
	case "promises": // what its program doesn't serve
		w.Name, w.Files["@/"+plugin.ManifestName] = "agentenv-promises", strings.ReplaceAll(string(manifest), `"acme`, `"promised`)
	case "dies":
		w.Name, w.Files["@/"+plugin.ManifestName] = "agentenv-dies", strings.ReplaceAll(string(manifest), `"acme`, `"dying`)
		w.Scripts["acme-plugin"] = []byte("#!/bin/sh\necho no library >&2\nexit 3\n")
	case "gone":
		w.Scripts = nil
	default:
		return w, fmt.Errorf("no plugin %s", name)
	}
	return w, nil
}
