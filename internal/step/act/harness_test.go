package act

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// python runs the harness as the sandbox does, on scripts of this file; without the packages of the machine, which take longer to find than the scripts run.
func python(t *testing.T, files map[string]string, entry, function, input string) (folder string, stdout string, err error) {
	t.Helper()
	py, lookErr := exec.LookPath("python3")
	if lookErr != nil {
		t.Skip("no python3 here")
	}
	folder = t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write("src/"+name, text)
	}
	write("input.json", input)
	write("harness.py", string(harness))
	cmd := exec.CommandContext(t.Context(), py, "-S", "-E", "-B", filepath.Join(folder, "harness.py"), folder, entry, function)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	return folder, string(out), err
}

func TestHarnessReturns(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		entry string
		want  string
	}{
		"args and results": {
			map[string]string{"script.py": "def run(i):\n    return {'sum': sum(i['args']['n']), 'was': i['results']['before']}"},
			"script.py", `{"sum": 6, "was": [true]}`,
		},
		"prints":       {map[string]string{"script.py": "print('{\"sum\": 1}')\ndef run(i):\n    print('noise'); return 'é\\n'"}, "script.py", `"\u00e9\n"`},
		"null":         {map[string]string{"script.py": "def run(i): pass"}, "script.py", "null"},
		"sibling":      {map[string]string{"run.py": "import helper\ndef run(i): return helper.x", "helper.py": "x = 5"}, "run.py", "5"},
		"harness name": {map[string]string{"run.py": "import harness\ndef run(i): return harness.x", "harness.py": "x = 6"}, "run.py", "6"},
		"in a folder": {
			map[string]string{"a/run.py": "from .near import x\nimport far, near\ndef run(i): return [x, far.y, near.x]", "a/near.py": "x = 7", "far.py": "y = 8"},
			"a/run.py", "[7, 8, 7]",
		},
		"odd folder name": {map[string]string{"os/j s.on/run.py": "from . import near\ndef run(i): return near.x", "os/j s.on/near.py": "x = 9"}, "os/j s.on/run.py", "9"},
		"dataclass":       {map[string]string{"script.py": "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\ndef run(i): return A(3).x"}, "script.py", "3"},
		"closes stdout":   {map[string]string{"script.py": "import os, sys\ndef run(i):\n    sys.stdout.close(); return 1"}, "script.py", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, _, err := python(t, c.files, c.entry, "run", `{"args": {"n": [1, 2, 3]}, "results": {"before": [true]}}`)
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				t.Log(string(exit.Stderr))
			}
			got, readErr := os.ReadFile(filepath.Join(folder, "result.json"))
			if err != nil && name != "closes stdout" || readErr != nil || string(got) != c.want {
				t.Errorf("%s, %v, %v; want %s", got, err, readErr, c.want)
			}
		})
	}
}

func TestHarnessFails(t *testing.T) {
	for name, c := range map[string]struct{ script, typ, message string }{
		"raises":      {"def run(i): return 1/0", "ZeroDivisionError", "division by zero"},
		"at import":   {"import nosuchmodule", "ModuleNotFoundError", "No module named 'nosuchmodule'"},
		"syntax":      {"def run(", "SyntaxError", ""},
		"no function": {"x = 1", "AttributeError", "script.py has no function run"},
		"not JSON":    {"def run(i): return {1, 2}", "ResultError", "what run returned is not JSON: Object of type set is not JSON serializable"},
		"NaN":         {"def run(i): return float('nan')", "ResultError", ""},
		"exit":        {"import sys\ndef run(i): sys.exit(3)", "SystemExit", "the script ended with 3"},
		"exit 0":      {"import sys\ndef run(i): sys.exit(0)", "SystemExit", "the script ended before run returned"},
		"odd text":    {"def run(i): raise ValueError('ü\\udc80\\n')", "ValueError", ""},
		"threads":     {"import threading, time\ndef run(i):\n    threading.Thread(target=time.sleep, args=(600,)).start()\n    raise ValueError('x')", "ValueError", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, _, err := python(t, map[string]string{"script.py": c.script}, "script.py", "run", `{"args": {}, "results": {}}`)
			if err == nil {
				t.Error("exit 0")
			}
			b, readErr := os.ReadFile(filepath.Join(folder, "failure.json"))
			var f struct{ Type, Message string }
			if jsonErr := json.Unmarshal(b, &f); readErr != nil || jsonErr != nil {
				t.Fatal(readErr, jsonErr)
			}
			if f.Type != c.typ || c.message != "" && f.Message != c.message {
				t.Errorf("%+v", f)
			}
			if _, err := os.Stat(filepath.Join(folder, "result.json")); err == nil {
				t.Error("there is a result too")
			}
		})
	}
}

func TestHarnessKeepsToPython39(t *testing.T) {
	for _, newer := range []string{"match ", "except*", " | None"} {
		if strings.Contains(string(harness), newer) {
			t.Errorf("harness.py uses %q", newer)
		}
	}
}
