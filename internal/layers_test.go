// Package internal_test holds the checks of the house itself: who may import whom, what the binaries may depend on, and that the
// paths our texts name exist.
package internal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "agentenv.internal/agentenv"

// levels is the house: imports go down only. A name stands for that package alone; "store/*" for its children.
// A package that no line names fails the test: give it a level here and in docs/layout.md.
var levels = []struct {
	level    int
	packages []string
}{
	{1, []string{"diag", "atomicfile", "archive", "term", "ref", "catalog", "guest", "guest/tree", "rawjson", "redact", "subid", "lazyregexp", "subprocess", "sleep", "unixsocket"}},
	{2, []string{"doc", "guest/nethost", "guest/pid1", "guest/usernet"}},
	{3, []string{"config", "requirement", "treestore", "workspace/folder"}},
	{4, []string{"artifact", "env", "agent", "computer/appdir", "task", "step", "bundle", "runlog", "access", "store", "sandbox"}},
	// Suites speak the interface that they test and are imported by tests alone.
	{5, []string{"image", "image/*", "model", "model/*", "trajectory", "trajectory/*", "store/*", "runlog/*", "plugin/pyhost", "sandbox/sandboxtest", "sandbox/hostside", "keeper"}},
	{6, []string{"exampleserver", "envdb", "envdb/envdbtest", "sandbox/*", "judge", "modelproxy", "computer/*", "gateway/*", "agent/*", "plugin/*"}},
	{7, []string{"deploy", "envstore", "toolcmd", "ledger", "artifactstore", "artifactstore/removal", "export", "taskstore", "owner", "fleet"}},
	{8, []string{"step/*", "run", "envowner", "agentowner", "hostcalls"}},
	{9, []string{"eval", "eval/*", "bundlerun", "openenv", "console", "gitplugins", "workspace"}},
	{10, []string{"app"}},
	{11, []string{"cli", "cli/*"}},
}

// sameLevel are the edges that stay on one level.
var sameLevel = map[string][]string{
	"guest/nethost": {"guest/usernet"},
	"task":          {"step"},
	"bundle":        {"task", "step", "artifact", "env", "agent", "computer/appdir"},
	// A skill of an app is read as any other.
	"computer/appdir": {"artifact"},
	"store/sqlite":    {"store/storetest", "runlog/runlogtest"},
	// What a stored environment says is read here, and started there.
	"toolcmd": {"envstore"},
	"deploy":  {"envstore", "toolcmd"}, // commands of environments' tools are installed into agents' sandboxes
	// Deleting finds documents as the rest does.
	"artifactstore/removal": {"artifactstore"},
	"model/serve":           {"model"},
	"model/source":          {"model"},
	"trajectory/live":       {"trajectory"},
	"model/modeltest":       {"model", "model/serve"},
	"gateway/front":         {"gateway/child", "gateway/tools", "gateway/clock", "gateway/trigger", "gateway/proxy", "gateway/calllog"},
	"gateway/trigger":       {"gateway/clock", "agent/a2a"}, // time triggers run by the one; the other asks their executors
	"agent/loop":            {"agent/a2a"},
	"computer/session":      {"computer/x11"}, // it asks whether the window manager answers
	"agent/cli":             {"agent/a2a"},
	"agent/mcp":             {"gateway/child"}, // servers elsewhere are spoken to as environments are
	"keeper":                {"sandbox/hostside"},
	"plugin/pack":           {"plugin/git"},
	"plugin/host":           {"plugin/dist"},
	"bundlerun":             {"eval", "eval/*"},
	"eval/report":           {"eval"},
	"openenv":               {"bundlerun", "eval"},
	"gitplugins":            {"workspace"},
	"console":               {"bundlerun", "eval", "gitplugins", "workspace"},
	"workspace":             {"bundlerun", "eval"},
}

// What every noun of the command line may use: what a verb is given, and how runs are shown.
const (
	verbPackage = "cli/verb"
	viewPackage = "cli/runview"
)

// What the guest and the public packages may use besides the standard library.
var (
	guestDeps = []string{"golang.org/x/sys/", module + "/internal/guest", module + "/cmd/agent-env-guest"}
	sdkDeps   = []string{"github.com/modelcontextprotocol/go-sdk/", "github.com/google/jsonschema-go/", module + "/sdk/"}
)

type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
	Error      *struct{ Err string }
}

func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json=ImportPath,Imports,Standard,Error"}, args...)...)
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// levelOf is the level of a package named relative to internal/; 0 when the house has no room for it.
func levelOf(name string) int {
	best := 0
	for _, l := range levels {
		for _, p := range l.packages {
			if p == name {
				return l.level
			}
			if dir, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(name, dir) && best == 0 {
				best = l.level
			}
		}
	}
	return best
}

// mayStay tells whether from may import to although both stand on one level.
func mayStay(from, to string) bool {
	if strings.HasPrefix(to, from+"/") || (to == verbPackage || to == viewPackage) && strings.HasPrefix(from, "cli/") && from != verbPackage {
		return true // a package may use its own children
	}
	return slices.ContainsFunc(sameLevel[from], func(p string) bool {
		dir, wild := strings.CutSuffix(p, "*")
		return p == to || wild && strings.HasPrefix(to, dir)
	})
}

// TestLayers holds the direction of imports.
func TestLayers(t *testing.T) {
	const own = module + "/internal/"
	for _, p := range goList(t, "./...") {
		if p.ImportPath == module+"/internal" {
			continue // this folder: tests alone
		}
		from, internal := strings.CutPrefix(p.ImportPath, own)
		level := 12 // cmd, bench, test
		switch {
		case internal:
			if level = levelOf(from); level == 0 {
				t.Errorf("%s has no level: give it one in internal/layers_test.go and docs/layout.md", p.ImportPath)
				continue
			}
		case strings.HasPrefix(p.ImportPath, module+"/examples"):
			level = 0 // a leaf: data only
		case strings.HasPrefix(p.ImportPath, module+"/sdk/"):
			for _, imp := range p.Imports {
				if strings.Contains(imp, ".") && !hasAnyPrefix(imp, sdkDeps) {
					t.Errorf("%s imports %s: sdk imports the standard library, the MCP SDK and sdk alone", p.ImportPath, imp)
				}
			}
			continue
		}
		for _, imp := range p.Imports {
			if level == 0 && strings.Contains(imp, ".") {
				t.Errorf("%s imports %s: examples are data alone", p.ImportPath, imp)
			}
			if imp == module+"/examples" && internal && level < 10 {
				t.Errorf("%s imports the examples: they reach the engine through app", p.ImportPath)
			}
			to, ours := strings.CutPrefix(imp, own)
			if !ours {
				continue
			}
			down := levelOf(to)
			if level == 1 && to != from {
				t.Errorf("%s imports %s: level 1 imports nothing of ours", p.ImportPath, imp)
				continue
			}
			if down > level || down == level && internal && !mayStay(from, to) {
				t.Errorf("%s (level %d) imports %s (level %d): imports go down only", p.ImportPath, level, imp, down)
			}
		}
	}
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// TestBinaryDependencies keeps heavy or init-happy modules out of the main program: each costs megabytes or start-up time.
func TestBinaryDependencies(t *testing.T) {
	banned := []string{
		"google.golang.org/grpc", "github.com/google/gopacket", "github.com/gopacket", "github.com/openai/", "github.com/anthropics/",
		"go.temporal.io/", "k8s.io/api/", "k8s.io/client-go/kubernetes", "github.com/containers/gvisor-tap-vsock",
		"github.com/spf13/viper", "net/http/pprof", "testing", "github.com/rogpeppe/", "go.uber.org/goleak", "github.com/creack/pty",
	}
	deps := goList(t, "-deps", "./cmd/agent-env")
	if len(deps) < 100 {
		t.Fatalf("only %d dependencies listed", len(deps))
	}
	for _, p := range deps {
		for _, b := range banned {
			if p.ImportPath == b || strings.HasPrefix(p.ImportPath, strings.TrimSuffix(b, "/")+"/") {
				t.Errorf("agent-env depends on %s", p.ImportPath)
			}
		}
	}
}

// TestGuestDependencies keeps the program that runs inside every sandbox small.
func TestGuestDependencies(t *testing.T) {
	for _, p := range goList(t, "-deps", "./cmd/agent-env-guest") {
		if p.Standard || hasAnyPrefix(p.ImportPath, guestDeps) {
			if p.ImportPath == "net/http" || p.ImportPath == module+"/internal/guest/usernet" || p.ImportPath == "encoding/xml" || p.ImportPath == "crypto/tls" {
				t.Errorf("agent-env-guest depends on %s", p.ImportPath)
			}
			continue
		}
		t.Errorf("agent-env-guest depends on %s: the standard library and x/sys alone", p.ImportPath)
	}
}
