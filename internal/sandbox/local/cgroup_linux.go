package local

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// groupsDir is the cgroup below the caller's own that holds those of the boxes.
const groupsDir = "agentenv"

// limits are what a box may take; 0 is no limit.
type limits struct {
	memory int64 // bytes
	cpu    float64
	pids   int64
}

// cgroups is where this process can make control groups, by controller (v1) or in one tree (v2).
type cgroups struct {
	v1 map[string]string // controller to the folder for boxes
	v2 string            // "" when there is no usable unified tree
}

// controllers that limits need.
var controllers = []string{"memory", "pids", "cpu"}

// controlGroups is where boxes get their control groups, looked for once.
func (h *host) controlGroups() *cgroups {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.groups == nil {
		h.groups = findCgroups()
	}
	return h.groups
}

// findCgroups looks where this process may limit others. It changes nothing.
func findCgroups() *cgroups {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return &cgroups{}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return &cgroups{}
	}
	return parseCgroups(mounts, own, writable)
}

func writable(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }

func parseCgroups(mountinfo, own []byte, writable func(string) bool) *cgroups {
	paths := map[string]string{} // controller, "" for v2, to this process's own group
	for s := bufio.NewScanner(bytes.NewReader(own)); s.Scan(); {
		f := strings.SplitN(s.Text(), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			paths[c] = f[2]
		}
	}
	c := &cgroups{v1: map[string]string{}}
	for s := bufio.NewScanner(bytes.NewReader(mountinfo)); s.Scan(); {
		left, right, ok := strings.Cut(s.Text(), " - ")
		f, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(r) < 3 {
			continue
		}
		root, at := f[3], f[4]
		switch r[0] {
		case "cgroup":
			for name := range strings.SplitSeq(r[2], ",") {
				if !slices.Contains(controllers, name) {
					continue
				}
				if dir := below(at, root, paths[name]); writable(dir) {
					c.v1[name] = filepath.Join(dir, groupsDir)
				}
			}
		case "cgroup2":
			c.v2 = unified(at, below(at, root, paths[""]), writable)
		}
	}
	return c
}

// below is a group's folder, where the mount shows it; else the mount's own root.
func below(at, root, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return at
	}
	return filepath.Join(at, rel)
}

// unified is a folder of the unified tree below which boxes can have groups: groups with members can't hand controllers down, so it is the
// nearest ancestor of own that may be written and that has the controllers.
func unified(at, own string, writable func(string) bool) string {
	for dir := own; within(dir, at); dir = filepath.Dir(dir) {
		if writable(dir) && writable(filepath.Join(dir, "cgroup.procs")) && hasControllers(dir) && (dir == at || !hasMembers(dir)) {
			return filepath.Join(dir, groupsDir)
		}
		if dir == at {
			break
		}
	}
	return ""
}

func hasControllers(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return false
	}
	have := strings.Fields(string(b))
	return slices.Contains(have, "memory") && slices.Contains(have, "pids")
}

func hasMembers(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err != nil || len(bytes.TrimSpace(b)) > 0
}

// group is one box's control groups.
type group struct {
	dirs   []string
	join   []*os.File // v1: files that the box's spawner joins by itself
	procs  string     // v2: the file that PID 1's pid is written to
	events *os.File   // counts kills for memory
	denied *os.File   // counts forks beyond the limit
	holds  map[string]bool
}

func (g *group) close() {
	for _, f := range g.join {
		f.Close()
	}
	for _, f := range []*os.File{g.events, g.denied} {
		if f != nil {
			f.Close()
		}
	}
}

// names are the folders that make would make for the limits, so that a record can name them before they are there.
func (c *cgroups) names(id string, l limits) []string {
	if c.v2 != "" {
		return []string{filepath.Join(c.v2, id)}
	}
	var out []string
	for _, name := range controllers {
		if parent, ok := c.v1[name]; ok && len(filesV1(name, l)) > 0 {
			out = append(out, filepath.Join(parent, id))
		}
	}
	return out
}

// make makes a box's groups for the limits. What can't be limited is not in group.holds; nothing that was made is left on an error.
func (c *cgroups) make(id string, l limits) (_ *group, err error) {
	g := &group{holds: map[string]bool{}}
	defer func() {
		if err != nil {
			g.close()
			for _, dir := range g.dirs {
				err = errors.Join(err, removeCgroup(dir, id))
			}
		}
	}()
	if c.v2 != "" {
		return g, g.makeV2(c.v2, id, l)
	}
	for _, name := range controllers {
		parent, ok := c.v1[name]
		if !ok {
			continue
		}
		files := filesV1(name, l)
		if len(files) == 0 {
			continue
		}
		dir, err := g.mkdir(parent, id)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if err := setting(dir, f); err != nil {
				return nil, err
			}
		}
		tasks, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		g.join = append(g.join, tasks)
		g.holds[name] = true
		switch name {
		case "memory":
			g.events, err = os.Open(filepath.Join(dir, "memory.oom_control"))
		case "pids":
			g.denied, err = os.Open(filepath.Join(dir, "pids.events"))
		}
		if err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *group) mkdir(parent, id string) (string, error) {
	dir := filepath.Join(parent, id)
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("make a control group: %w", err)
	}
	g.dirs = append(g.dirs, dir)
	return dir, nil
}

// knob is one file of a control group. An optional one may be missing.
type knob struct {
	file, value string
	optional    bool
}

func setting(dir string, k knob) error {
	f, err := os.OpenFile(filepath.Join(dir, k.file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(k.value)
		f.Close()
	}
	if err != nil && !k.optional {
		return fmt.Errorf("set %s to %s: %w", k.file, k.value, err)
	}
	return nil
}

// period is the length of a cpu quota's period in microseconds.
const period = 100_000

func quota(cpu float64) string { return strconv.FormatInt(max(int64(cpu*period), 1000), 10) }

func filesV1(name string, l limits) []knob {
	switch {
	case name == "memory" && l.memory > 0:
		bytes := strconv.FormatInt(l.memory, 10)
		return []knob{{"memory.limit_in_bytes", bytes, false}, {"memory.memsw.limit_in_bytes", bytes, true}}
	case name == "pids" && l.pids > 0:
		return []knob{{"pids.max", strconv.FormatInt(l.pids, 10), false}}
	case name == "cpu" && l.cpu > 0:
		return []knob{{"cpu.cfs_period_us", strconv.Itoa(period), false}, {"cpu.cfs_quota_us", quota(l.cpu), false}}
	}
	return nil
}

// initThreads is what PID 1 itself takes of a unified group's pids.
const initThreads = 64

func (g *group) makeV2(parent, id string, l limits) error {
	dir, err := g.mkdir(parent, id)
	if err != nil {
		return err
	}
	for _, above := range []string{filepath.Dir(parent), parent} {
		for _, name := range controllers {
			_ = setting(above, knob{"cgroup.subtree_control", "+" + name, true})
		}
	}
	return g.limitV2(dir, l)
}

// limitV2 sets the limits of a group that has been made.
func (g *group) limitV2(dir string, l limits) (err error) {
	for _, s := range []struct {
		name string
		want bool
		k    knob
	}{
		{"memory", l.memory > 0, knob{"memory.max", strconv.FormatInt(l.memory, 10), false}},
		{"memory", l.memory > 0, knob{"memory.swap.max", "0", true}},
		{"pids", l.pids > 0, knob{"pids.max", strconv.FormatInt(l.pids+initThreads, 10), false}},
		{"cpu", l.cpu > 0, knob{"cpu.max", quota(l.cpu) + " " + strconv.Itoa(period), false}},
	} {
		if !s.want {
			continue
		}
		err := setting(dir, s.k)
		switch {
		case err == nil && !s.k.optional:
			g.holds[s.name] = true
		case err == nil:
		case !errors.Is(err, os.ErrNotExist): // that controller is not handed down here
			return err
		}
	}
	g.procs = filepath.Join(dir, "cgroup.procs")
	if g.holds["memory"] {
		if g.events, err = os.Open(filepath.Join(dir, "memory.events")); err != nil {
			return err
		}
	}
	if g.holds["pids"] {
		g.denied, err = os.Open(filepath.Join(dir, "pids.events"))
	}
	return err
}

// admit puts PID 1 into a unified group. Groups of v1 are joined by the box's commands alone.
func (g *group) admit(pid int) error {
	if g.procs == "" {
		return nil
	}
	return setting(filepath.Dir(g.procs), knob{"cgroup.procs", strconv.Itoa(pid), false})
}

// removeCgroup removes a dead box's group; the kernel may need a moment to see its last process off.
func removeCgroup(dir, id string) error {
	if !strings.HasSuffix(dir, "/"+groupsDir+"/"+id) {
		return fmt.Errorf("%s is not the control group of sandbox %s", dir, id)
	}
	return retry(func() error {
		err := os.Remove(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
}

// strayAge is how old a group without members has to be before it is nobody's: a box joins its own within startLimit.
const strayAge = 5 * time.Minute

// sweep removes groups that dead boxes of other, deleted state roots left. A group with members can't be removed.
func (c *cgroups) sweep() {
	parents := slices.Collect(maps.Values(c.v1))
	if c.v2 != "" {
		parents = append(parents, c.v2)
	}
	for _, parent := range parents {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && e.IsDir() && hostside.ValidID(e.Name()) && time.Since(info.ModTime()) > strayAge {
				_ = os.Remove(filepath.Join(parent, e.Name())) // the next sweep tries again
			}
		}
	}
}
