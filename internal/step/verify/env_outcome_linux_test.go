package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// realBoxes is a bench on real sandboxes.
func realBoxes(t *testing.T) *steptest.Rig {
	t.Helper()
	state := t.TempDir()
	if err := sandboxtest.ShareTrees(state); err != nil {
		t.Fatal(err)
	}
	p, err := local.New(local.Options{StateRoot: state})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context(), sandbox.Spec{}); err != nil {
		t.Skip(err)
	}
	return steptest.With(t, p)
}

// words is a bench on real sandboxes with a deployed environment that has loaded three words.
func words(t *testing.T) *steptest.Rig {
	t.Helper()
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip("no python3 here")
	}
	r := realBoxes(t)
	server, err := os.ReadFile("testdata/server.py")
	if err != nil {
		t.Fatal(err)
	}
	r.PutEnv("@local/words", "words", `command = ["python3", "-B", "server.py"]`, steptest.File{Path: "server.py", Text: string(server)})
	r.DeployEnv("@local/words", "up")
	r.PutEnvironment("@local/three", "words", `{"words": ["ant", "bee", "cat"]}`)
	r.LoadEnv("@local/words", "@local/three")
	return r
}

const peerStyle = `
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def verify(mcp_url, run=None):
    async with streamable_http_client(mcp_url) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            names = [t.name for t in (await session.list_tools()).tools]
            result = await session.call_tool("count_words", {"letter": "a"})
    text = "".join(getattr(part, "text", "") for part in result.content)
    return [
        {"id": "two", "result": text == "2" and not result.isError, "description": "counted " + text},
        {"id": "structured", "result": result.structuredContent == {"found": ["ant", "cat"]}, "weight": 2},
        {"id": "listed", "result": "count_words" in names and run.turns == ()},
    ]
`

const program = `#!/bin/sh
read input
case "$AGENTENV_MCP_URL$input" in *"$AGENTENV_MCP_URL"*18765*) ;; *) exit 3;; esac
echo "looked" >&2
echo '{"results": [{"id": "x", "score": 0.5, "result": false}, {"id": "y", "score": 1, "result": true}]}'
`

func TestEnvOutcomeVerifier(t *testing.T) {
	r := words(t)
	e := NewEnvOutcomeVerifier(r.Store, r.Deploy, r.Envs)
	verify := func(id, more string) error {
		return r.Do(e, fmt.Sprintf(`{"id": %q, "type": "env_outcome_verifier", "env_id": "@local/words", "file_artifact_id": "@local/%s"%s}`, id, id, more))
	}
	put := func(id, name, text string) { r.PutFile("@local/"+id, steptest.File{Path: name, Text: text}) }

	put("peer", "verify.py", peerStyle)
	if err := verify("peer", ""); err != nil {
		t.Fatal(err)
	}
	v := r.Verification("peer")
	if v.Score != 1 || len(v.Results) != 3 || v.Results[0]["description"] != "counted 2" || v.Results[2]["criterion_index"] != 2.0 {
		t.Errorf("%+v", v)
	}
	put("program", "check", program)
	if err := verify("program", `, "score_aggregator": "weighted_average", "verifier_id": "p"`); err != nil {
		t.Fatal(err)
	}
	if v := r.Verification("p"); v.Score != 0.75 {
		t.Errorf("%+v", v)
	}
	if !strings.Contains(r.Log(), "looked") {
		t.Error("what the verifier wrote is not in the log")
	}
	for id, c := range map[string]struct{ name, text, typ, want string }{
		"raises":  {"verify.py", "async def verify(u):\n    raise KeyError('no such mail')", "VerifierError", "KeyError"},
		"lacks":   {"verify.py", "x = 1", "VerifierError", "the verifier has no function verify"},
		"exits":   {"verify.py", "import os\ndef verify(u): os._exit(4)", "VerifierError", "ended with exit 4"},
		"quits":   {"verify.py", "import sys\ndef verify(u): sys.exit(0)", "VerifierError", "before verify returned"},
		"odd":     {"verify.py", "def verify(u): return 'fine'", "ResultError", "a list of rows"},
		"none":    {"verify.py", "def verify(u): return []", "ResultError", "no row"},
		"rowless": {"verify.py", "def verify(u): return [{'id': 'x'}]", "ResultError", "row 1"},
		"nan":     {"verify.py", "def verify(u): return [{'result': float('nan')}]", "VerifierError", "not JSON"},
		"syntax":  {"verify.py", "def verify(", "VerifierError", "SyntaxError"},
		"binary":  {"check", "#!/bin/sh\nexit 7\n", "VerifierError", "exit 7"},
		"prints":  {"check", "#!/bin/sh\necho nothing\n", "ResultError", "a list of rows"},
		"lonely":  {"verify.py", "import urllib.request\ndef verify(u): return [{'result': urllib.request.urlopen('http://1.1.1.1', timeout=3)}]", "VerifierError", "rror"},
	} {
		put(id, c.name, c.text)
		if err := verify(id, ""); steptest.ErrorType(err) != c.typ || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s %v, want %s %s", id, steptest.ErrorType(err), err, c.typ, c.want)
		}
	}
	if err := verify("nosuch", ""); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
	if err := r.Do(e, `{"id": "v", "type": "env_outcome_verifier", "env_id": "@local/other", "file_artifact_id": "@local/peer"}`); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
	put("hangs", "verify.py", "import time\ndef verify(u): time.sleep(900)")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := r.DoCtx(ctx, e, `{"id": "hangs", "type": "env_outcome_verifier", "env_id": "@local/words", "file_artifact_id": "@local/hangs"}`); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if n := len(r.Deploy.Live(steptest.Run)); n != 1 {
		t.Errorf("%d sandboxes stand, and only the server's should", n)
	}
}

// A verifier that leaves processes behind, fills its output or the box's disk, or forks until it can't, ends in time, and nothing of it is left.
func TestHostileVerifiers(t *testing.T) {
	r := words(t)
	e := NewEnvOutcomeVerifier(r.Store, r.Deploy, r.Envs)
	for id, c := range map[string]struct{ name, text, typ, want string }{
		"forks": {"verify.py", `import os, time
def verify(u):
    n = 0
    for _ in range(100):
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            os.setsid()
            time.sleep(900)
            os._exit(0)
        n += 1
    return [{"id": "forked", "result": n > 0}]
`, "", ""},
		"daemon": {"check", "#!/bin/sh\nsetsid sleep 900 &\necho '[{\"id\": \"x\", \"result\": true}]'\n", "", ""},
		"floods": {"verify.py", "import sys\ndef verify(u):\n    for _ in range(300): sys.stdout.write('x' * (1 << 20))\n    return [{'id': 'x', 'result': True}]", "", ""},
		"large":  {"check", "#!/bin/sh\nhead -c 300000000 /dev/zero | tr '\\0' x\n", "ResultError", ""},
		"deep":   {"check", "#!/usr/bin/python3\nprint('[' * 200000)\n", "ResultError", ""},
		"killed": {"verify.py", "import os, signal\ndef verify(u): os.kill(os.getpid(), signal.SIGKILL)", "VerifierError", "exit 137"},
		"init":   {"verify.py", "import os, signal\ndef verify(u):\n    try: os.kill(1, signal.SIGKILL)\n    except PermissionError: pass\n    return [{'id': 'x', 'result': True}]", "", ""},
	} {
		r.PutFile("@local/"+id, steptest.File{Path: c.name, Text: c.text})
		began := time.Now()
		err := r.Do(e, fmt.Sprintf(`{"id": %q, "type": "env_outcome_verifier", "env_id": "@local/words", "file_artifact_id": "@local/%s"}`, id, id))
		switch {
		case c.typ == "" && err != nil, c.typ != "" && (steptest.ErrorType(err) != c.typ || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %s %v", id, steptest.ErrorType(err), err)
		case err != nil && len(err.Error()) > 8<<10:
			t.Errorf("%s: an error of %d bytes", id, len(err.Error()))
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s took %s", id, took)
		}
		if n := len(r.Deploy.Live(steptest.Run)); n != 1 {
			t.Fatalf("%s: %d sandboxes stand, and only the server's should", id, n)
		}
	}
}
