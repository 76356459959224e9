// Package local makes sandboxes out of the host itself: Linux namespaces over overlays of the host's system folders.
//
// A box has its own mount, user, pid, ipc, uts, net and cgroup namespaces and a root of its own; its PID 1 is the guest program
// (package guest/pid1). A tied box is a child of the process that made it and dies with it; a leased one lives until its lease ends.
// What a box has on the host is that file, a socket beside it, and cgroups as root. A box lives exactly as long as its PID 1 holds
// the POSIX lock on its slot, a file below the state root: the kernel tells who holds it, so no pid is ever taken from a file.
//
// With an image the box's root is the image's (internal/image) and nothing of the host's files is seen.
//
// A box's network, where it has one, runs in a process beside it, the network host (package guest/nethost), which ends with the box.
package local

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
)

// Name is the provider's name in Info.
const Name = "local"

// Options is where and how a Provider makes its boxes.
type Options struct {
	// StateRoot is the folder below which boxes and cached trees are kept; it is made when the first box is.
	StateRoot string
	// Tools and Expose are paths of the host that boxes see read-only at the same place: tool chains outside the system's folders, and
	// what is masked otherwise.
	Tools  []string
	Expose []string
	// Images has the roots of boxes that are made from images; nil is one below the state root, which has no worker.
	Images *image.Store
	// Proxy answers the host's way out for boxes that have a network; nil: there is no proxy. Its error refuses such boxes.
	Proxy func() (guest.Proxy, error)

	// Of tests.
	privateIndex string // "": the one of all state roots
	memoryDiskMB int64  // 0: memoryDiskMB
}

// Defaults of a Spec's limits.
const (
	DefaultPids   = 4096
	DefaultDiskMB = 2048
)

// check finds all that is wrong with the options.
func (o *Options) check() error {
	var errs []error
	if !filepath.IsAbs(o.StateRoot) {
		errs = append(errs, fmt.Errorf("the state root %q is not an absolute path", o.StateRoot))
	}
	for _, name := range append(slices.Clone(o.Tools), o.Expose...) {
		if err := checkShown(name, o.StateRoot); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkShown refuses paths that would show a box the machinery itself.
func checkShown(name, stateRoot string) error {
	switch {
	case !filepath.IsAbs(name) || filepath.Clean(name) != name:
		return fmt.Errorf("sandbox path %q is not an absolute, clean path", name)
	case within(stateRoot, name) || within(name, stateRoot):
		return fmt.Errorf("sandbox path %s would show the state root %s; name a narrower folder", name, stateRoot)
	}
	return nil
}

// within tells whether name is dir or below it.
func within(name, dir string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// Report is what holds on this machine, and what to do about what doesn't.
type Report struct {
	// OK: boxes can be made and are isolated.
	OK        bool              `json:"ok"`
	Findings  []Finding         `json:"findings"`
	Isolation sandbox.Isolation `json:"isolation"` // of a box that was made for the check
}

// Finding is one thing that was looked at.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed,omitempty"` // without it there are no boxes
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}
