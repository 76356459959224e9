package wheeltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Groups of entry points.
const (
	Steps    = "agent_env.task_steps"
	Commands = "agent_env.cli_plugins"
	Options  = "agent_env.cli_root_options"
	Bundles  = "agent_env.bundles"
	Exec     = "agent_env.exec"
)

// step is a module with one step class that scores 1.
func step(class, typ string) string {
	return fmt.Sprintf(`from typing import ClassVar

from agent_env.task_step.context import TaskStepContext
from agent_env.task_step.task_step import TaskStep


class %s(TaskStep):
    type: ClassVar[str] = %q
    entity_refs = ()

    def __init__(self, id, version=None, note="", depends_on=None, fail_task_on_error=True):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.note = note

    def to_dict(self):
        return {**super().to_dict(), "note": self.note}

    @classmethod
    def from_dict(cls, data):
        return cls(**cls._base_from_dict(data), note=data.get("note", ""))

    async def execute(self, context: TaskStepContext) -> TaskStepContext:
        context.metadata.setdefault("verifications", {})[self.id] = {"score": 1, "note": self.note}
        return context
`, class, typ)
}

// one is a distribution with one step class in one module.
func one(name, version, module, class, entry, typ string) Wheel {
	return Wheel{
		Name: name, Version: version,
		Entries: map[string]map[string]string{Steps: {entry: module + ":" + class}},
		Files:   map[string]string{module + ".py": step(class, typ)},
	}
}

// Acme has the step type acme_check.
func Acme(version string) Wheel {
	return one("agentenv-e2e-acme", version, "agentenv_e2e_acme", "AcmeCheck", "acme_check", "acme_check")
}

// Broken has the step type broken_check, whose import fails.
func Broken() Wheel {
	w := one("agentenv-e2e-broken", "1.0.0", "agentenv_e2e_broken", "BrokenCheck", "broken_check", "broken_check")
	w.Files["agentenv_e2e_broken.py"] = "import agentenv_e2e_nowhere\n"
	return w
}

// Clash claims Acme's name for its own step type.
func Clash() Wheel {
	return one("agentenv-e2e-clash", "1.0.0", "agentenv_e2e_clash", "ClashCheck", "acme_check", "acme_check")
}

// BadType has a class whose type is not the name of its entry point.
func BadType() Wheel {
	return one("agentenv-e2e-badtype", "1.0.0", "agentenv_e2e_badtype", "BadType", "badtype_check", "another_check")
}

// Shipper 1.0.0 ships the step class agentenv_e2e_shipper:ShippedCheck without an entry point.
func Shipper() Wheel {
	w := one("agentenv-e2e-shipper", "1.0.0", "agentenv_e2e_shipper", "ShippedCheck", "x", "shipped_check")
	w.Entries = nil
	return w
}

// Bundled has the step type bundled_check and the bundle bundled, which uses it.
func Bundled() Wheel {
	w := one("agentenv-e2e-bundled", "1.0.0", "agentenv_e2e_bundled", "BundledCheck", "bundled_check", "bundled_check")
	source := w.Files["agentenv_e2e_bundled.py"]
	w.Files = map[string]string{
		"agentenv_e2e_bundled/__init__.py":                       source,
		"agentenv_e2e_bundled/bundles/__init__.py":               "",
		"agentenv_e2e_bundled/bundles/bundled/tasks/bundle.json": `[{"id": "check", "type": "bundled_check"}]` + "\n",
	}
	w.Entries[Bundles] = map[string]string{"bundled": "agentenv_e2e_bundled.bundles"}
	return w
}

// NotPlugin declares no entry point.
func NotPlugin() Wheel {
	return Wheel{Name: "not-plugin", Version: "1.0", Files: map[string]string{"not_plugin.py": ""}}
}

// Incompat needs a version of the program that there will not be.
func Incompat() Wheel {
	w := one("agentenv-e2e-incompat", "1.0.0", "agentenv_e2e_incompat", "IncompatCheck", "incompat_check", "incompat_check")
	w.Requires = []string{"agentenv-framework>=99"}
	return w
}

// CLI has commands and options that don't need click to be found: a command, a thing that is none, a command by a taken name, a root
// option with a taken flag, and one whose callback raises.
func CLI() Wheel {
	return Wheel{
		Name: "agentenv-e2e-cli", Version: "1.0.0", Requires: []string{"click"},
		Entries: map[string]map[string]string{
			Commands: {"acme-tool": "agentenv_e2e_cli:tool", "acme-nothing": "agentenv_e2e_cli:NOTHING", "plugin": "agentenv_e2e_cli:tool"},
			Options:  {"taken": "agentenv_e2e_cli:verbose", "raising": "agentenv_e2e_cli:raising"},
		},
		Files: map[string]string{"agentenv_e2e_cli.py": `import click


@click.command()
@click.argument("words", nargs=-1)
def tool(words):
    """Say words again."""
    click.echo(" ".join(words))


NOTHING = 42


def _raise(ctx, param, value):
    if value is None:
        raise RuntimeError("the callback fails")
    return value


verbose = click.Option(["--verbose"], is_flag=True, expose_value=False)
raising = click.Option(["--e2e-raising"], expose_value=False, callback=_raise)
`},
	}
}

// RootOptions has options of the command line: one with a value, exported twice, and one that ends the command.
func RootOptions() Wheel {
	return Wheel{
		Name: "agentenv-e2e-options", Version: "1.0.0", Requires: []string{"click"},
		Entries: map[string]map[string]string{Options: {"greet": "agentenv_e2e_options:greet", "greet-again": "agentenv_e2e_options:same", "about": "agentenv_e2e_options:about"}},
		Files: map[string]string{"agentenv_e2e_options.py": `import click


def _greet(ctx, param, value):
    if value == "nobody":
        raise click.BadParameter("nobody is there")
    click.echo(f"greeting {value}", err=True)
    return value


def _about(ctx, param, value):
    if value:
        click.echo("about this plugin")
        ctx.exit()


greet = click.Option(["--e2e-greet", "-G"], expose_value=False, callback=_greet, help="whom to greet")
same = greet
about = click.Option(["--e2e-about"], is_flag=True, expose_value=False, callback=_about)
`},
	}
}

// Click is the click of this machine's python3, as a wheel; ok is false where there is none.
func Click(ctx context.Context) (w Wheel, ok bool) {
	out, err := exec.CommandContext(ctx, "python3", "-c", "import click, os; print(os.path.dirname(click.__file__))").Output()
	if err != nil {
		return Wheel{}, false
	}
	dir := strings.TrimSpace(string(out))
	files, err := filepath.Glob(filepath.Join(dir, "*.py"))
	w = Wheel{Name: "click", Version: "8.4.0", Files: map[string]string{}}
	for _, f := range files {
		b, read := os.ReadFile(f)
		err = errors.Join(err, read)
		w.Files["click/"+filepath.Base(f)] = string(b)
	}
	return w, err == nil && len(files) > 0
}

// Slow has the step type slow_check, whose import takes a while.
func Slow(seconds int) Wheel {
	w := one("agentenv-e2e-slow", "1.0.0", "agentenv_e2e_slow", "SlowCheck", "slow_check", "slow_check")
	w.Files["agentenv_e2e_slow.py"] = fmt.Sprintf("import time\n\ntime.sleep(%d)\n", seconds) + w.Files["agentenv_e2e_slow.py"]
	return w
}
