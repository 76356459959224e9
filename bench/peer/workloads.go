package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// workload is one piece of work that both programs do.
type workload struct {
	name string
	args []string
	// bundle makes the folder that args name as ".", once for each program.
	bundle func(dir string) error
	fresh  bool // every round has a new state root, so that everything is written
	once   bool // too long to repeat
	alone  bool // what the peer has nothing for
	exit   int  // the code it ends with
	// before runs in the same state root first, unmeasured.
	before     []string
	beforeExit int
	baseName   string
	base       func(ctx context.Context, b *bench, bundle string) (usage, error)
	subtract   bool
}

type bench struct {
	ours, peer, work string
	rounds           int
	n                int // folders made
}

// measure runs both programs in turn, so that noise of the machine meets both.
func (b *bench) measure(ctx context.Context, c workload) (row, error) {
	r := row{name: c.name, baseName: c.baseName, subtract: c.subtract}
	rounds := b.rounds
	if c.once {
		rounds = 1
	}
	sides := []struct {
		bin  string
		best **usage
	}{{b.ours, &r.ours}, {b.peer, &r.peer}}
	for _, side := range sides {
		if side.bin == "" || c.alone && side.best == &r.peer {
			continue
		}
		home, err := b.home()
		if err != nil {
			return r, err
		}
		defer os.RemoveAll(home)
		dir := filepath.Join(home, "b")
		if c.bundle != nil {
			if err := c.bundle(dir); err != nil {
				return r, err
			}
		} else if err := os.Mkdir(dir, 0o755); err != nil {
			return r, err
		}
		for i := range rounds {
			if c.fresh || i == 0 {
				if err := os.RemoveAll(filepath.Join(home, ".local")); err != nil {
					return r, err
				}
				if c.before != nil {
					if _, err := command(ctx, c.beforeExit, dir, environment(home), append([]string{side.bin}, c.before...)...); err != nil {
						return r, err
					}
				}
			}
			u, err := command(ctx, c.exit, dir, environment(home), append([]string{side.bin}, c.args...)...)
			if err != nil {
				return r, err
			}
			keep(side.best, u)
			if c.base != nil && side.best == &r.ours {
				u, err := c.base(ctx, b, dir)
				if err != nil {
					return r, err
				}
				keep(&r.base, u)
			}
		}
	}
	return r, nil
}

// keep keeps the better of each figure.
func keep(best **usage, u usage) {
	if *best == nil {
		*best = &u
		return
	}
	(*best).wall = min((*best).wall, u.wall)
	(*best).cpu = min((*best).cpu, u.cpu)
	(*best).rssMB = min((*best).rssMB, u.rssMB)
}

func (b *bench) home() (string, error) {
	b.n++
	home := filepath.Join(b.work, "home"+strconv.Itoa(b.n))
	return home, os.Mkdir(home, 0o755)
}

func workloads() []workload {
	run, dryRun := []string{"run", "."}, []string{"run", ".", "--dry-run"}
	cs := []workload{
		{name: "`--version`", args: []string{"--version"}},
		{name: "`--help`", args: []string{"--help"}},
		{name: "`run hello`, first time", args: []string{"run", "hello"}, fresh: true},
		{name: "`run hello`, unchanged", args: []string{"run", "hello"}, before: []string{"run", "hello"}},
		{name: "`run hello --dry-run`", args: []string{"run", "hello", "--dry-run"}, before: []string{"run", "hello"}},
	}
	for _, n := range []int{50, 500} {
		for _, parallel := range []bool{false, true} {
			shape := "chained"
			if parallel {
				shape = "parallel"
			}
			cs = append(cs, workload{
				name: fmt.Sprintf("%d %s `verify_sandbox` steps", n, shape), args: run, once: n > 100 && parallel,
				bundle:   func(dir string) error { return verifyBundle(dir, n, parallel) },
				baseName: fmt.Sprintf("%d `bash -c true`", n), base: bareBash(n), subtract: true,
			})
		}
	}
	cs = append(cs,
		workload{name: "100 tasks of `sleep 0.5`, 4 at a time", args: run, once: true, bundle: func(dir string) error { return sleepBundle(dir, 100) }},
		workload{name: "200 tasks of `sleep 0.5`, 4 at a time", args: run, once: true, bundle: func(dir string) error { return sleepBundle(dir, 200) }},
		workload{name: "1,000 tasks of one trivial step", args: run, once: true, bundle: func(dir string) error { return trivialTasks(dir, 1000) }},
		workload{name: "put of 1 MB", args: run, exit: 1, fresh: true, bundle: func(dir string) error { return fileBundle(dir, 1e6) }, baseName: "`cp` + `sync`", base: copyTree},
		workload{name: "put of 1 GiB", args: run, exit: 1, fresh: true, bundle: func(dir string) error { return fileBundle(dir, 1<<30) }, baseName: "`cp` + `sync`", base: copyTree},
		workload{name: "universe of 1,500 folders, written", args: run, exit: 1, fresh: true, bundle: universe(1500), baseName: "`cp -r` + `sync`", base: copyTree},
		workload{name: "universe of 1,500 folders, dry run again", args: dryRun, before: run, beforeExit: 1, bundle: universe(1500)},
		workload{name: "9 environments of 42 MB, written", args: run, exit: 1, fresh: true, bundle: environments(9, 42e6), baseName: "`cp -r` + `sync`", base: copyTree},
		workload{name: "9 environments of 42 MB, run again", args: run, exit: 1, before: run, beforeExit: 1, bundle: environments(9, 42e6)},
		workload{name: "1,500 environments, written", args: run, exit: 1, fresh: true, bundle: environments(1500, 3e5), baseName: "`cp -r` + `sync`", base: copyTree},
		workload{name: "1,500 environments, dry run again", args: dryRun, before: run, beforeExit: 1, bundle: environments(1500, 3e5)},
	)
	for _, c := range []struct {
		what   string
		bundle func(dir string) error
	}{
		{"1,000 small artifacts", manyArtifacts},
		{"universe of 10,000 files", universe(10000)},
		{"200 tasks of 30 steps", func(dir string) error { return manyTasks(dir, 200, 30) }},
	} {
		cs = append(cs,
			workload{name: c.what + ", dry run again", args: dryRun, before: run, beforeExit: 1, once: true, bundle: c.bundle},
			workload{name: c.what + ", run again", args: run, exit: 1, before: run, beforeExit: 1, once: true, bundle: c.bundle})
	}
	return cs
}

// bareBash is the part of n shell checks that no program can save.
func bareBash(n int) func(context.Context, *bench, string) (usage, error) {
	return func(ctx context.Context, b *bench, _ string) (usage, error) {
		return command(ctx, 0, b.work, environment(b.work), "bash", "-c", fmt.Sprintf("for ((i=0; i<%d; i++)); do bash -c true; done", n))
	}
}

// copyTree copies the bundle's artifacts and waits until they are on the disk.
func copyTree(ctx context.Context, b *bench, bundle string) (usage, error) {
	to := filepath.Join(b.work, "copy")
	defer os.RemoveAll(to)
	return command(ctx, 0, b.work, environment(b.work), "bash", "-c", `cp -r "$0" "$1" && sync`, filepath.Join(bundle, "artifacts"), to)
}

type step map[string]any

func box() step {
	return step{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "sandbox_type": "local"}
}

func verify(id, cmd string) step {
	return step{
		"id": id, "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/tmp", "verifier_id": id,
		"criteria": []step{{"type": "bash_cmd_succeeds", "criterion": "ends well", "bash_cmd": cmd}},
	}
}

func verifyBundle(dir string, n int, parallel bool) error {
	steps := []step{box()}
	for i := range n {
		s := verify(fmt.Sprintf("v%d", i), "true")
		if parallel {
			s["depends_on"] = []string{"box"}
		}
		steps = append(steps, s)
	}
	return writeTask(dir, "t", steps)
}

func sleepBundle(dir string, n int) error {
	for i := range n {
		if err := writeTask(dir, fmt.Sprintf("t%03d", i), []step{box(), verify("v", "sleep 0.5")}); err != nil {
			return err
		}
	}
	return nil
}

// writeOnly is a task that needs artifacts, so that the bundle writes them, and fails before it would load one: what remains is the write.
func writeOnly(dir string, artifacts ...string) error {
	steps := []step{stop(), box()}
	for i, a := range artifacts {
		steps = append(steps, step{"id": fmt.Sprintf("load%d", i), "type": "load_artifact", "sandbox_name": "box", "artifact_id": a})
	}
	return writeTask(dir, "t", steps)
}

// stop always fails, and with it the task, before anything is started.
func stop() step {
	return step{"id": "stop", "type": "aggregate_verifiers", "verifier_ids": []string{"none"}, "verifier_id": "stop"}
}

// manyTasks are tasks that are checked whole and whose runs end at their first step.
func manyTasks(dir string, tasks, steps int) error {
	for i := range tasks {
		list := []step{stop(), box()}
		for j := len(list); j < steps; j++ {
			list = append(list, verify(fmt.Sprintf("v%d", j), "true"))
		}
		if err := writeTask(dir, fmt.Sprintf("t%03d", i), list); err != nil {
			return err
		}
	}
	return nil
}

// trivialTasks have a step that needs nothing but the program itself.
func trivialTasks(dir string, n int) error {
	for i := range n {
		s := step{"id": "sum", "type": "aggregate_verifiers", "verifier_ids": []string{}, "verifier_id": "sum"}
		if err := writeTask(dir, fmt.Sprintf("t%04d", i), []step{s}); err != nil {
			return err
		}
	}
	return nil
}

// environments is a bundle with one universe of n environments, size bytes together.
func environments(n int, size int64) func(dir string) error {
	return func(dir string) error {
		world := filepath.Join(dir, "artifacts", "world")
		for i := range n {
			folder := filepath.Join(world, fmt.Sprintf("env%04d", i))
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			b := make([]byte, size/int64(n))
			if _, err := rand.Read(b); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(folder, "data.bin"), b, 0o644); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(world, "artifact.toml"), []byte("type = \"environment_universe\"\n"), 0o644); err != nil {
			return err
		}
		env := filepath.Join(dir, "envs", "e")
		if err := os.MkdirAll(env, 0o755); err != nil {
			return err
		}
		for name, text := range map[string]string{"Dockerfile": "FROM scratch\n", "env.toml": "environment_name = \"e\"\n"} {
			if err := os.WriteFile(filepath.Join(env, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		// Both programs check the step and never come to it.
		return writeTask(dir, "t", []step{stop(), {
			"id": "trip", "type": "verify_universe_load_export_roundtrip", "env_id": "e", "universe_artifact_id": "world",
		}})
	}
}

func manyArtifacts(dir string) error {
	var names []string
	for i := range 1000 {
		name := fmt.Sprintf("a%04d", i)
		names = append(names, name)
		folder := filepath.Join(dir, "artifacts", name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "data.txt"), []byte(name+"\n"), 0o644); err != nil {
			return err
		}
	}
	return writeOnly(dir, names...)
}

func writeTask(dir, name string, steps []step) error {
	b, err := json.MarshalIndent(steps, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "tasks"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tasks", name+".json"), b, 0o644)
}

func fileBundle(dir string, size int64) error {
	if err := writeOnly(dir, "big"); err != nil {
		return err
	}
	folder := filepath.Join(dir, "artifacts", "big")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(folder, "data.bin"))
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, rand.Reader, size); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// universe is a bundle with one universe of n folders with a file each.
func universe(n int) func(dir string) error {
	return func(dir string) error {
		if err := writeOnly(dir, "world"); err != nil {
			return err
		}
		for i := range n {
			folder := filepath.Join(dir, "artifacts", "world", fmt.Sprintf("f%04d", i))
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			text := fmt.Sprintf(`{"folder": %d, "note": "%0170d"}`+"\n", i, i)
			if err := os.WriteFile(filepath.Join(folder, "data.json"), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}
