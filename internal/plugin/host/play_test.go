package host_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/plugin"
)

// role is the variable that tells the test binary which plugin to play.
const role = "PLAY"

func TestMain(m *testing.M) {
	dispatch()
	if _, ok := os.LookupEnv(plugin.Variable); ok {
		os.Exit(play(os.Getenv(role)))
	}
	if pid := os.Getenv(killedRole); pid != "" {
		holdPlugin(pid)
	}
	goleak.VerifyTestMain(m)
}

// play is a plugin process.
func play(as string) int {
	answer := func(line string) {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Println(line)
	}
	switch as {
	case "realboxes":
		return playRealBoxes()
	case "command":
		return playCommand()
	case "fakeboxes":
		return playFakeBoxes()
	case "silent":
		time.Sleep(time.Hour)
	case "garbage":
		answer("Traceback: oh")
		time.Sleep(time.Hour)
	case "version":
		answer(`{"jsonrpc":"2.0","id":1,"result":{"protocol_version":9,"plugin":{"name":"x","version":"1"}}}`)
		time.Sleep(time.Hour)
	case "old":
		answer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"speaks version 0","data":{"supported":[0]}}}`)
	case "deaf":
		answer(`{"jsonrpc":"2.0","id":1,"result":{"protocol_version":1,"plugin":{"name":"x","version":"1"}}}`)
		if os.Getenv("PLAY_DAEMON") != "" {
			_ = fork()
		}
		_ = os.WriteFile(os.Getenv("PLAY_PID"), fmt.Append(nil, os.Getpid()), 0o600)
		time.Sleep(time.Hour)
	case "dead":
		fmt.Fprintln(os.Stderr, "no module\nnamed \x1b[31mx")
		return 3
	case "forks":
		return playFork(os.Getenv("PLAY_DAEMON"))
	case "floods":
		playFlood(os.Getenv(floodRole))
	case "closes":
		answer(`{"jsonrpc":"2.0","id":1,"result":{"protocol_version":1,"plugin":{"name":"x","version":"1"}}}`)
		_ = os.Stdout.Close()
		time.Sleep(time.Hour)
	default:
		return acme().Main(context.Background(), os.Args[1:])
	}
	return 0
}

// acme is a plugin whose steps do what a "do" of theirs says.
func acme() *plugin.Plugin {
	return &plugin.Plugin{Name: "acme-plugin", Version: "1.2.0", Steps: []plugin.Step{{
		Name: "acme", Scores: true,
		Schema: json.RawMessage(`{"type":"object","properties":{"do":{"type":"string"},"n":{"type":"integer","default":3}},"required":["do"]}`),
		Refs:   []plugin.Ref{{Path: "env_id", Kind: "env"}},
		Run:    run,
		Check: func(_ context.Context, d plugin.Document) []plugin.Problem {
			if strings.Contains(string(d), "forbidden") {
				return []plugin.Problem{{Where: "do", Summary: "is forbidden", Fix: "ask"}, {Summary: "hm", Severity: "warning"}}
			}
			return nil
		},
		Preflight: func(_ context.Context, d plugin.Document) []plugin.Problem {
			if strings.Contains(string(d), "elsewhere") {
				return []plugin.Problem{{Summary: "not here"}}
			}
			return nil
		},
	}}}
}

func run(ctx context.Context, c *plugin.Call) error {
	var d struct {
		Do string `json:"do"`
		N  int    `json:"n"`
	}
	if err := c.Doc.Decode(&d); err != nil {
		return err
	}
	switch d.Do {
	case "score":
		var have map[string]any
		ok, err := c.Context("metadata/acme", &have)
		if err != nil {
			return err
		}
		fmt.Println("a print that must not break a message")
		return errors.Join(c.Append("deployed_agents", map[string]any{"agent_name": "x"}), c.Score(0.5, map[string]any{"had": ok, "n": d.N, "have": have}), c.Set("metadata", map[string]any{"a/b": c.Seed["k"]}))
	case "mark": // the last of a list, which is handed back whole
		var envs []map[string]any
		if _, err := c.Context("deployed_envs", &envs); err != nil {
			return err
		}
		envs[len(envs)-1]["marked"] = true
		return c.Set("deployed_envs", envs)
	case "fail":
		return plugin.Fail("LobbyError", "never <opened>")
	case "infra":
		return plugin.Infra(errors.New("no endpoint"))
	case "keep":
		_ = c.Set("metadata/kept", true)
		return plugin.Keep(plugin.Fail("Reply", "bad"))
	case "panic":
		panic("oh")
	case "exit":
		fmt.Fprintln(os.Stderr, "giving up")
		os.Exit(7)
	case "kill":
		p, _ := os.FindProcess(os.Getpid())
		_ = p.Kill()
		time.Sleep(time.Hour)
	case "huge":
		return c.Set("metadata/x", strings.Repeat("x", 40<<20))
	case "breaks": // a frame that is too long, past the peer
		_, _ = os.NewFile(1, "stdout").WriteString(strings.Repeat("x", 33<<20))
		time.Sleep(time.Hour)
	case "wait":
		c.Log.Info("waiting")
		<-ctx.Done()
		return ctx.Err()
	case "stubborn":
		c.Log.Info("waiting")
		time.Sleep(time.Hour)
	case "log":
		for i := range d.N {
			c.Log.With("w", 1).Warn("line", "i", i)
		}
	case "flood":
		long := strings.Repeat("y", 100<<10)
		for range d.N {
			c.Log.Info(long)
		}
	case "spend":
		for range d.N {
			c.Host.Spend(0.5, 1, 2)
		}
	case "secret":
		v, err := c.Host.Secret(ctx, "KEY")
		if err != nil {
			return err
		}
		return c.Set("metadata/secret", v)
	case "paths":
		return c.Set("/metadata//x", 1)
	case "temp":
		info, err := os.Stat(c.Host.TempDir())
		wd, _ := os.Getwd()
		if err != nil || !info.IsDir() || wd != c.Host.TempDir() {
			return fmt.Errorf("%v %s %s", err, wd, c.Host.TempDir())
		}
		return c.Set("metadata/env", os.Environ())
	case "daemon": // leaves what has left it
		return fork()
	case "leaves": // a child that outlives it
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{plugin.Variable + "=x", role + "=silent"}
		if err := cmd.Start(); err != nil {
			return err
		}
		return c.Set("metadata/pid", cmd.Process.Pid)
	}
	c.Log.Log(ctx, slog.LevelDebug, "done")
	return nil
}
