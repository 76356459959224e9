package local_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// linger is how long after the last lease's end nothing may be left that runs.
const linger = 5 * time.Second

// Whatever is killed, in whatever order and at whatever moment — who owns the boxes, who uses them, what started them, what hosts their
// networks, their first processes — 5 s after the leases no process, mount or interface of theirs is left, and after a sweep nothing at all.
func TestNothingLeftWhateverIsKilled(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	rounds := manyKills
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		killRound(t, random)
		if t.Failed() {
			return
		}
	}
}

// killRound makes boxes, kills what belongs to them, and looks at what is left.
func killRound(t *testing.T, random *rand.Rand) {
	t.Helper()
	const lease = 700 * time.Millisecond
	root := stateRoot(t)
	p := openAt(t, root)
	links := interfaces(t)
	mounts := hostMounts(t)
	specs := []sandbox.Spec{{Tied: true}, {Lease: lease}, {Tied: true, Lease: lease, Pids: 50}}
	if networked := (sandbox.Spec{Lease: lease, Network: sandbox.NetAllowAll}); p.Check(t.Context(), networked) == nil {
		specs = append(specs, networked)
	}
	owner := startOwner(t, role{StateRoot: root, Specs: specs})
	ids := owner.ids(t, len(specs))
	leasesEnd := time.Now().Add(lease)
	client := startOwner(t, role{StateRoot: root, Use: ids})
	client.ids(t, len(ids)) // a line for each box that it uses
	spaces := map[string]bool{}
	for _, id := range ids {
		pid := pid1Of(t, root, id)
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil {
			spaces[ns] = true
		}
	}
	victims := append(family(t, owner.cmd.Process.Pid), client.cmd.Process.Pid)
	random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	// Some are spared, but never the owner, whose end everything hangs on, and who is killed at any place of the order.
	spared := random.IntN(len(victims))
	for i, pid := range victims {
		if i < spared && pid != owner.cmd.Process.Pid {
			continue
		}
		time.Sleep(time.Duration(random.IntN(15000)) * time.Microsecond)
		syscall.Kill(pid, syscall.SIGKILL)
	}
	owner.kill()
	client.kill()
	within(t, time.Until(leasesEnd)+linger, "nothing runs", func() bool {
		lives := slices.ContainsFunc(ids, func(id string) bool { return pid1Of(t, root, id) != 0 }) // an ordinary user can't look at their namespaces
		return !lives && alive(victims) == 0 && len(livingIn(spaces)) == 0
	})
	if now := interfaces(t); !slices.Equal(now, links) {
		t.Errorf("interfaces went from %v to %v", links, now)
	}
	if now := hostMounts(t); now > mounts {
		t.Errorf("the host's mounts went from %d to %d", mounts, now)
	}
	if infos, err := p.List(t.Context()); err != nil || slices.ContainsFunc(infos, func(i sandbox.Info) bool { return i.State != sandbox.StateDead || i.Cause == "" }) {
		t.Errorf("the list: %+v, %v", infos, err)
	}
	if _, err := p.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, root, ids)
}

// family is a process with all that descends from it.
func family(t *testing.T, pid int) []int {
	t.Helper()
	children := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, ok := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if !ok || len(f) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		child, _ := strconv.Atoi(strings.Split(name, "/")[2])
		children[parent] = append(children[parent], child)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// livingIn are the processes that live in pid namespaces.
func livingIn(spaces map[string]bool) []string {
	var in []string
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, name := range links {
		if ns, err := os.Readlink(name); err == nil && spaces[ns] {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			if alive([]int{pid}) > 0 {
				in = append(in, name)
			}
		}
	}
	return in
}

// interfaces are the names of the host's network interfaces.
func interfaces(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		if name, _, ok := strings.Cut(line, ":"); ok && !strings.Contains(name, "veth") && !strings.Contains(name, "docker") && !strings.Contains(name, "br-") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	slices.Sort(names)
	return names
}

// use runs a command with daemons in each box, and tells of each.
func use(ctx context.Context, p sandbox.Provider, ids []string) error {
	for _, id := range ids {
		box, err := p.Connect(ctx, id)
		if err != nil {
			return err
		}
		go guest.Output(ctx, box, guest.Command{Argv: []string{"sh", "-c", daemons + "; sleep 900"}}, guest.Limits{})
		fmt.Println(id)
	}
	return nil
}
