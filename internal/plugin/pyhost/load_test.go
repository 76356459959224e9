package pyhost_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/pyhost"
)

const steps = "agent_env.task_steps"

const goodStep = `"""Steps."""

from agent_env.entity_refs import EntityRef
from agent_env.task_step.task_step import TaskStep

print("a plugin that prints while it is imported")


class Good(TaskStep):
    """Checks what is there.

    And more that no list shows.
    """

    type = "good"
    entity_refs = (EntityRef.env("env_id"),)

    async def execute(self, context):
        return context


class Bad(Good):
    type = "other"


class Idle(TaskStep):
    type = "idle"


number = 3
`

// What `plugin check` says of each entry: the code, the reason and the place of the plugin's own code; no entry takes another with it.
func TestLoadTellsOfEachEntry(t *testing.T) {
	t.Parallel()
	python := generation(t)
	install(t, python, map[string]string{
		"good/__init__.py": "",
		"good/steps.py":    goodStep,
		"broken.py":        "import os\n\nimport nowhere_to_be_found\n",
		"leans.py":         "import click\n",
		"deeper.py":        "from agent_env.bundle.parse import Bundle\n",
		"quits.py":         "import sys\nsys.exit(3)\n",
		"vanishes.py":      "import os\nos._exit(7)\n",
		"hangs.py":         "import time\ntime.sleep(1000)\n",
		"syntax.py":        "def f(:\n",
		"surrogate.py":     "raise RuntimeError('caf\\udce9 \\u202e')\n",
		"forks.py":         "import os, time\nif os.fork() == 0:\n    time.sleep(30)\n    os._exit(0)\nfrom good.steps import Good\n",
		"closes.py":        "import os\nfor d in range(256):\n    try:\n        os.close(d)\n    except OSError:\n        pass\n",
	})
	rows := []struct {
		name, value        string
		status, code, says string
		where              string
	}{
		{"good", "good.steps:Good", "active", "", "", ""},
		{"good", "good.steps:Bad", "failed", "invalid-plugin", "its entry point must have that name", ""},
		{"idle", "good.steps:Idle", "failed", "invalid-plugin", "has no execute of its own", ""},
		{"number", "good.steps:number", "failed", "invalid-plugin", "is no class that derives from", ""},
		{"missing", "good.steps:Nothing", "failed", "load-failed", `failed to load: AttributeError("module 'good.steps' has no attribute 'Nothing'")`, ""},
		{"broken", "broken:Check", "failed", "load-failed", `failed to load: ModuleNotFoundError("No module named 'nowhere_to_be_found'")`, "broken.py:3"},
		{"leans", "leans:Check", "failed", "load-failed", "; agentenv-framework brings no click: the package must require it, or it is added with it, as in `agent-env plugin add PACKAGE click`", "leans.py:1"},
		{"deeper", "deeper:Check", "failed", "load-failed", "; what agent-env offers to plugins has no agent_env.bundle", "deeper.py:1"},
		{"quits", "quits:Check", "failed", "load-failed", "failed to load: SystemExit(3)", "quits.py:2"},
		{"vanishes", "vanishes:Check", "failed", "load-failed", "failed to load: the import ended the process with exit code 7", ""},
		{"hangs", "hangs:Check", "failed", "load-failed", "failed to load: the import did not end in 1s", ""},
		{"syntax", "syntax:Check", "failed", "load-failed", "failed to load: SyntaxError(", "syntax.py:1"},
		{"surrogate", "surrogate:Check", "failed", "load-failed", "failed to load: RuntimeError('caf", "surrogate.py:1"},
		{"closes", "closes:Check", "failed", "load-failed", "failed to load: ", ""},
		{"good", "forks:Good", "active", "", "", ""},
		{"elsewhere", "good.steps:Good", "failed", "invalid-plugin", "", ""},
	}
	var entries []pyhost.Entry
	for _, r := range rows {
		entries = append(entries, pyhost.Entry{Group: steps, Name: r.name, Value: r.value})
	}
	got, err := pyhost.Loader{Python: python, Timeout: time.Second}.Load(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(rows) {
		t.Fatalf("%d answers to %d entries", len(got), len(rows))
	}
	for i, r := range rows {
		g := got[i]
		if g.Entry != entries[i] || g.Status != r.status || g.Code != r.code || !strings.Contains(g.Reason, r.says) || r.where != "" && g.Where != r.where {
			t.Errorf("%s = %+v\nwant %s [%s] %q at %q", r.value, g, r.status, r.code, r.says, r.where)
		}
		if strings.Contains(g.Reason, "\n") || strings.Contains(g.Reason+g.Where, t.TempDir()) {
			t.Errorf("%s: %q", r.value, g.Reason)
		}
	}
	var typ struct {
		Name, Description string
		Refs              []struct{ Path, Kind string }
	}
	if err := json.Unmarshal(got[0].Type, &typ); err != nil {
		t.Fatal(err)
	}
	if typ.Name != "good" || typ.Description != "Checks what is there." || len(typ.Refs) != 1 || typ.Refs[0].Path != "env_id" || typ.Refs[0].Kind != "env" {
		t.Errorf("type = %+v", typ)
	}
}

func TestLoadWithoutAnInterpreter(t *testing.T) {
	t.Parallel()
	_, err := pyhost.Loader{Python: t.TempDir() + "/python"}.Load(t.Context(), []pyhost.Entry{{Group: steps, Name: "a", Value: "a:A"}})
	if err == nil {
		t.Error("an interpreter that isn't there loads")
	}
}

func TestLoadEndsWhenItsContextDoes(t *testing.T) {
	t.Parallel()
	python := generation(t)
	install(t, python, map[string]string{"hangs.py": "import time\ntime.sleep(1000)\n"})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := pyhost.Loader{Python: python}.Load(ctx, []pyhost.Entry{{Group: steps, Name: "hangs", Value: "hangs:A"}})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
		t.Errorf("Load = %v after %s", err, time.Since(start))
	}
}
