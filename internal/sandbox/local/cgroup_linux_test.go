package local

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseCgroups(t *testing.T) {
	all := func(string) bool { return true }
	for _, c := range []struct {
		name, mounts, own string
		writable          func(string) bool
		v1                map[string]string
	}{
		{
			name: "version 1",
			mounts: "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n" +
				"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory\n" +
				"39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n22 27 0:21 / /proc rw - proc proc rw\n",
			own: "8:pids:/\n4:memory:/user/a b\n2:cpu,cpuacct:/user\n0::/\n", writable: all,
			v1: map[string]string{
				"cpu": "/sys/fs/cgroup/cpu,cpuacct/user/agentenv", "memory": "/sys/fs/cgroup/memory/user/a b/agentenv", "pids": "/sys/fs/cgroup/pids/agentenv",
			},
		},
		{
			name:   "in a container that sees its own part",
			mounts: "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			own:    "4:memory:/docker/abc/sub\n", writable: all, v1: map[string]string{"memory": "/sys/fs/cgroup/memory/sub/agentenv"},
		},
		{
			name:   "in a container that sees another part",
			mounts: "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			own:    "4:memory:/elsewhere\n", writable: all, v1: map[string]string{"memory": "/sys/fs/cgroup/memory/agentenv"},
		},
		{
			name:   "as an ordinary user",
			mounts: "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", own: "4:memory:/\n",
			writable: func(string) bool { return false }, v1: map[string]string{},
		},
		{name: "nothing", writable: all, v1: map[string]string{}},
		{name: "nonsense", mounts: "a\n - \n1 2 3 4 5 - cgroup\n", own: "x\n::\n", writable: all, v1: map[string]string{}},
	} {
		got := parseCgroups([]byte(c.mounts), []byte(c.own), c.writable)
		if !maps.Equal(got.v1, c.v1) || got.v2 != "" {
			t.Errorf("%s: %+v, want %v", c.name, got, c.v1)
		}
	}
}

// unifiedTree makes files as the kernel's unified hierarchy has them.
func unifiedTree(t *testing.T, groups map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for dir, members := range groups {
		full := filepath.Join(root, dir)
		if err := os.MkdirAll(full, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cgroup.procs": members, "cgroup.controllers": "cpuset cpu io memory pids\n", "cgroup.subtree_control": ""} {
			if err := os.WriteFile(filepath.Join(full, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestUnified(t *testing.T) {
	root := unifiedTree(t, map[string]string{
		"": "1\n", "user.slice": "", "user.slice/user-1000.slice": "", "user.slice/user-1000.slice/user@1000.service": "",
		"user.slice/user-1000.slice/user@1000.service/app.slice": "", "user.slice/user-1000.slice/user@1000.service/app.slice/term.scope": "99\n",
	})
	service := filepath.Join(root, "user.slice/user-1000.slice/user@1000.service")
	delegated := func(name string) bool { return within(name, service) }
	everything := func(string) bool { return true }
	for _, c := range []struct {
		name, own string
		writable  func(string) bool
		want      string
	}{
		{"a user's own scope has members, the slice above is delegated", service + "/app.slice/term.scope", delegated, service + "/app.slice/agentenv"},
		{"a session outside what is delegated", root + "/user.slice/user-1000.slice", delegated, ""},
		{"root in a slice", root + "/user.slice", everything, root + "/user.slice/agentenv"},
		{"root at the top, whose members don't matter", root, everything, root + "/agentenv"},
		{"nothing may be written", root + "/user.slice", func(string) bool { return false }, ""},
		{"a group that is gone", root + "/gone", everything, root + "/agentenv"},
	} {
		if got := unified(root, c.own, c.writable); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("hugetlb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := unified(root, root, everything); got != "" {
		t.Errorf("a tree without the controllers: %q", got)
	}
}

func TestUnifiedGroup(t *testing.T) {
	root := unifiedTree(t, map[string]string{"": "", "agentenv": ""})
	box := filepath.Join(root, "agentenv", "b1")
	c := &cgroups{v2: filepath.Join(root, "agentenv")}
	// The kernel makes a new group's files; here they are put beside, so that making the group fails first and leaves nothing.
	if _, err := c.make("b1", limits{memory: 1 << 20}); err != nil {
		t.Fatalf("controllers that are not handed down are no error: %v", err)
	}
	if err := os.Remove(box); err != nil {
		t.Fatal(err)
	}
	g := &group{holds: map[string]bool{}}
	if err := os.MkdirAll(box, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory.max", "memory.swap.max", "memory.events", "pids.max", "pids.events", "cpu.max", "cgroup.procs"} {
		if err := os.WriteFile(filepath.Join(box, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.limitV2(box, limits{memory: 64 << 20, cpu: 0.5, pids: 40}); err != nil {
		t.Fatal(err)
	}
	defer g.close()
	if err := g.admit(4711); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "67108864", "memory.swap.max": "0", "pids.max": "104", "cpu.max": "50000 100000", "cgroup.procs": "4711"} {
		if b, err := os.ReadFile(filepath.Join(box, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v, want %q", name, b, err, want)
		}
	}
	if !g.holds["memory"] || !g.holds["pids"] || !g.holds["cpu"] || g.events == nil {
		t.Errorf("held: %+v", g)
	}
}

func TestKnobs(t *testing.T) {
	l := limits{memory: 1 << 20, cpu: 1.5, pids: 7}
	var got []string
	for _, name := range controllers {
		for _, k := range filesV1(name, l) {
			got = append(got, k.file+"="+k.value)
		}
	}
	want := []string{
		"memory.limit_in_bytes=1048576", "memory.memsw.limit_in_bytes=1048576", "pids.max=7", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=150000",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, " "))
	}
	if quota(0.0001) != "1000" {
		t.Errorf("the least quota is %s", quota(0.0001))
	}
	for _, name := range controllers {
		if k := filesV1(name, limits{}); k != nil {
			t.Errorf("%s without a limit: %v", name, k)
		}
	}
	for _, dir := range []string{"/etc", "/sys/fs/cgroup/memory/agentenv/other", "agentenv/b1/..", ""} {
		if err := removeCgroup(dir, "b1"); err == nil {
			t.Errorf("%q was taken for the group of b1", dir)
		}
	}
}

// Groups of boxes that no state root knows go once they are old and empty.
func TestSweepStrayGroups(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "agentenv")
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"bold", "bnew", "bfull/member", "NOT-OURS"} {
		if err := os.MkdirAll(filepath.Join(parent, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bold", "bfull", "NOT-OURS"} {
		if err := os.Chtimes(filepath.Join(parent, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	(&cgroups{v1: map[string]string{"pids": parent, "memory": "/no/such"}}).sweep()
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{"NOT-OURS", "bfull", "bnew"}) {
		t.Errorf("left: %q", left)
	}
}

// On a real unified tree, with whatever controllers it has: a group is made, joined by a process, holds what it says, and goes with it.
func TestRealUnifiedGroup(t *testing.T) {
	at := ""
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " - cgroup2 ") {
			at = strings.Fields(line)[4]
		}
	}
	if at == "" || !writable(at) {
		t.Skip("no unified tree that may be written")
	}
	c := &cgroups{v2: filepath.Join(at, groupsDir)}
	const id = "b-test-unified"
	l := limits{memory: 64 << 20, cpu: 0.5, pids: 40}
	g, err := c.make(id, l)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	if !slices.Equal(g.dirs, c.names(id, l)) {
		t.Errorf("made %v, named %v", g.dirs, c.names(id, l))
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.admit(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	if err != nil || !strings.Contains(string(own), "0::/"+groupsDir+"/"+id+"\n") {
		t.Errorf("the process is in %q, %v", own, err)
	}
	have, err := os.ReadFile(filepath.Join(at, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("controllers: %s", have)
	for _, name := range controllers {
		if g.holds[name] != slices.Contains(strings.Fields(string(have)), name) {
			t.Errorf("%s: held %v, where the tree has %s", name, g.holds[name], have)
		}
	}
	if err := os.Remove(g.dirs[0]); err == nil {
		t.Error("a group with a process was removed")
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := removeCgroup(g.dirs[0], id); err != nil {
		t.Error(err)
	}
	os.Remove(c.v2) // others may have groups there
}
