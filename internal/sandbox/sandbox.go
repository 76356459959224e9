// Package sandbox holds what every maker of sandboxes promises: Provider, Spec, Info, and the isolation words.
// The suite that each implementation passes is sandboxtest; implementations are child packages.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/guest"
)

// Errors that callers branch on.
var (
	// ErrNotFound: no such sandbox, or it died and was swept.
	ErrNotFound = errors.New("no such sandbox")
	// ErrUnsupported: the provider can't do what Spec asks (an image, a network policy, an isolation level).
	ErrUnsupported = errors.New("not supported by this sandbox provider")
)

// Network policies of a Spec.
const (
	NetNone     = "none" // loopback inside the box, nothing else
	NetAllowAll = "allow_all"
	NetAllow    = "allowlist"
)

// Spec is what a sandbox shall be. The zero value of a field means the provider's default.
type Spec struct {
	// Key makes Create idempotent: while a box of this key lives, Create answers it.
	Key string
	// Run is the run that the box belongs to; "" for boxes that people start.
	Run   string
	Name  string // shown to people
	Image string // an image's reference as internal/image reads it; "" is the provider's own root
	// From is the id of a snapshot whose files the box begins with; Image is the snapshot's own then. "" for none.
	From string
	Env  []string
	// Lease is how long the box lives unless renewed; 0 is DefaultLease. PID 1 enforces it on the boot clock.
	Lease time.Duration
	// Tied boxes die with the process that made them; others live until their lease ends or Destroy.
	Tied bool

	CPU      float64 // cores
	MemoryMB int64
	DiskMB   int64
	Pids     int64

	Network string // NetNone, NetAllowAll or NetAllow; "" is NetNone
	Egress  Egress // what NetAllow lets out; empty otherwise
	// Publish are ports of the box that the host's loopback shall reach too. Box.Dial needs none.
	Publish []Port
	// Progress is told how many bytes of Image have come in while it is fetched, of how many, 0 while that isn't known. nil: nobody is.
	Progress func(done, total int64) `json:"-"`
	// Self shows the running program to the box, read-only, as SelfPath.
	Self bool
	// Aliases are names that mean the box itself, to programs in it: 127.0.0.1.
	Aliases []string
	// Shown are files and folders of the host that the box sees read-only. Who makes the Spec vouches for what is in them.
	Shown []Shown
	// Isolation is the least level that must hold; Create refuses below it. "" is LevelNamespaces for local boxes.
	Isolation string
	Labels    map[string]string
}

// SelfPath is where a box finds the program itself when its Spec asks for it.
const SelfPath = "/usr/local/bin/agent-env"

// Shown is one file or folder of the host in a box.
type Shown struct {
	From string // absolute and clean, on the host
	At   string // absolute and clean, in the box
	// Hold is a lock that the box keeps for its life, such as that of the tree shown; nil: none. It stays the caller's, who may close it after Create.
	Hold *os.File
}

// Egress is what a box of NetAllow may reach. A destination is let out when one of Hosts or CIDRs holds it and Ports does.
type Egress struct {
	Hosts []string       `json:"hosts,omitempty"` // names in lower case; "*.example.org" is every name below it, not itself
	CIDRs []netip.Prefix `json:"cidrs,omitempty"` // the one way to private addresses
	Ports []uint16       `json:"ports,omitempty"` // empty: every port
}

// ParseCIDR reads a range of addresses, or one address.
func ParseCIDR(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Prefix(a.BitLen())
	}
	return netip.ParsePrefix(text)
}

// Port is a TCP port of a box on the host's loopback.
type Port struct {
	Box  uint16 `json:"box"`
	Host uint16 `json:"host"` // 0 in a Spec: any that is free
}

// Upper bounds of limits, far above every machine: what is beyond them was not meant, and could not be counted in bytes.
const (
	MaxCPU  = 1 << 20
	MaxMB   = 1 << 40
	MaxPids = 1 << 22 // the kernel's own bound
)

// MinLease is the shortest lease: one that ended before the box began would look like a fault of the start.
const MinLease = 10 * time.Millisecond

// maxName is how many bytes a name for people may have: as many as a file's.
const maxName = 255

// CheckName refuses names for people that couldn't be told from something else on a command line or in a list: SANDBOX:PATH, a path, a
// flag, what isn't seen. "" is no name.
func CheckName(name string) error {
	switch {
	case name == "":
		return nil
	case len(name) > maxName:
		return fmt.Errorf("a name has at most %d bytes, not %d", maxName, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is no UTF-8", name)
	case name == "." || name == ".." || strings.HasPrefix(name, "-") || strings.ContainsAny(name, ":/"):
		return fmt.Errorf("the name %q could be taken for a path or a flag: no : or / in it, no - in front", name)
	case strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the name %q has characters that aren't seen", name)
	}
	return nil
}

// CheckLimits refuses limits and names that no sandbox can have.
func (s Spec) CheckLimits() error {
	switch {
	case !(s.CPU >= 0 && s.CPU <= MaxCPU): // not a number is refused too
		return fmt.Errorf("cpu is a number of cores from 0 to %d, not %g", MaxCPU, s.CPU)
	case s.MemoryMB < 0 || s.MemoryMB > MaxMB:
		return fmt.Errorf("memory is a number of MB from 0 to %d, not %d", int64(MaxMB), s.MemoryMB)
	case s.DiskMB < 0 || s.DiskMB > MaxMB:
		return fmt.Errorf("disk is a number of MB from 0 to %d, not %d", int64(MaxMB), s.DiskMB)
	case s.Pids < 0 || s.Pids > MaxPids:
		return fmt.Errorf("pids is a number of processes from 0 to %d, not %d", MaxPids, s.Pids)
	case s.Lease < 0:
		return fmt.Errorf("a lease can't be negative, as %s is", s.Lease)
	case s.Lease > 0 && s.Lease < MinLease:
		return fmt.Errorf("a lease is %s at least, not %s", MinLease, s.Lease)
	}
	for _, a := range s.Aliases {
		if a == "" || strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
			return fmt.Errorf("%q can't be a name of a machine", a)
		}
	}
	return nil
}

// CheckGiven finds all that is wrong with what the box is shown and with its environment.
func (s Spec) CheckGiven() error {
	var errs []error
	for _, shown := range s.Shown {
		for _, name := range []string{shown.From, shown.At} {
			if !filepath.IsAbs(name) || filepath.Clean(name) != name || name == "/" {
				errs = append(errs, fmt.Errorf("%q can't be shown in a sandbox: it is no absolute, clean path", name))
			}
		}
	}
	for _, kv := range s.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" || strings.ContainsRune(kv, 0) {
			errs = append(errs, fmt.Errorf("the environment entry %q is not NAME=value", kv))
		}
	}
	return errors.Join(errs...)
}

// DefaultLease is the lease of a box whose Spec names none.
const DefaultLease = 2 * time.Hour

// Isolation levels, weakest first.
const (
	LevelNone       = "none"       // commands run as the caller, on the host
	LevelNamespaces = "namespaces" // own mount, pid, user, ipc, uts and net namespaces; home, state and environment out of reach
	LevelContainer  = "container"  // an engine's container
)

// Isolation is what was found in force by trying, not by configuration.
type Isolation struct {
	Level  string  `json:"level"`
	Probes []Probe `json:"probes,omitempty"`
	// Limits says per resource what enforces it: "cgroup", "rlimit", "watchdog", "none".
	Limits map[string]string `json:"limits,omitempty"`
}

// Below says how a box is less isolated than asked, with what it did not withstand; "" when it is as asked.
func (i *Isolation) Below(asked string) string {
	if asked == LevelNone || i.Level != LevelNone {
		return ""
	}
	var failed []string
	for _, p := range i.Probes {
		if !p.OK {
			failed = append(failed, p.Name+": "+p.Detail)
		}
	}
	return fmt.Sprintf("the sandbox is less isolated than asked (%s): %s", asked, strings.Join(failed, "; "))
}

// Probe is one thing that was tried inside the box. OK means that the box withstood it.
type Probe struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
	// Warning: the box did not withstand it, and its level holds all the same. Fix is what to do about that.
	Warning bool   `json:"warning,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// States of a sandbox.
const (
	StateStarting = "starting"
	StateRunning  = "running"
	StateDead     = "dead" // its processes are gone, its folder is not yet swept
)

// Causes of a box's death.
const (
	CauseLease   = guest.CauseLease   // its lease ended
	CauseRemoved = guest.CauseRemoved // somebody destroyed it
	CauseOwner   = guest.CauseOwner   // the process that it was tied to ended
	CauseMemory  = "memory"           // out of memory
	CauseDisk    = guest.CauseDisk    // over its disk limit, where a watchdog holds it
	CauseLimit   = guest.CauseLimit   // processes of a command that was to end could not be ended
	CauseSignal  = "signal"           // its PID 1 was killed from outside
)

// Why says a cause in words; "" for none.
func Why(cause string) string {
	switch cause {
	case CauseLease:
		return "its lease ended"
	case CauseRemoved:
		return "it was removed"
	case CauseOwner:
		return "the process that it was tied to ended"
	case CauseMemory:
		return "it ran out of memory"
	case CauseDisk:
		return "it wrote more than its disk may hold"
	case CauseLimit:
		return "a command's processes could not be ended otherwise"
	case CauseSignal:
		return "its first process was killed from outside"
	}
	return ""
}

// Info describes a sandbox.
type Info struct {
	ID        string            `json:"id"`
	Provider  string            `json:"provider"`
	Name      string            `json:"name,omitempty"`
	Key       string            `json:"key,omitempty"`
	Run       string            `json:"run,omitempty"`
	State     string            `json:"state"`
	Tied      bool              `json:"tied,omitempty"`
	Created   time.Time         `json:"created"`
	Expires   time.Time         `json:"expires"`
	OwnerPID  int               `json:"owner_pid,omitempty"`
	Image     string            `json:"image,omitempty"`   // with its digest
	Entry     *Entry            `json:"entry,omitempty"`   // of the image
	From      string            `json:"from,omitempty"`    // the snapshot that it began with
	Network   string            `json:"network,omitempty"` // the policy in force
	Egress    Egress            `json:"egress,omitzero"`   // of NetAllow
	Published []Port            `json:"published,omitempty"`
	Blocked   []guest.Blocked   `json:"blocked,omitempty"` // what its policy kept a box from, told once it is removed
	Cause     string            `json:"cause,omitempty"`   // of a dead box: one of the Cause words
	Isolation Isolation         `json:"isolation"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Provider makes sandboxes. Methods may be called from several goroutines and processes at once.
type Provider interface {
	// Create makes a sandbox and leaves nothing behind when it fails. The same s.Key gives the same box.
	// The provider holds a tied box's first connection until Destroy, so that Connect and Close in between end nothing.
	Create(ctx context.Context, s Spec) (Info, error)
	// Connect opens a connection to a live box: ErrNotFound otherwise. The caller closes the Box.
	Connect(ctx context.Context, id string) (guest.Box, error)
	// List tells of every sandbox of this provider on this machine, newest first, dead ones included. One bad entry never spoils it.
	List(ctx context.Context) ([]Info, error)
	// Destroy kills the box and removes what it left. It is idempotent, legal in every state, and nil for an unknown id.
	Destroy(ctx context.Context, id string) error
	// Sweep removes what dead boxes left and answers their ids. It never touches a live box.
	Sweep(ctx context.Context) ([]string, error)
	// Close ends what this process holds: its tied boxes die. Leased boxes live on.
	Close() error
}

// NetworkLogger is a Provider that knows what its boxes were kept from.
type NetworkLogger interface {
	// Blocked is what the policy kept a box from, oldest first; bounded, so that a box can't fill the disk. ErrNotFound for an unknown id.
	Blocked(ctx context.Context, id string) ([]guest.Blocked, error)
}

// OutputLogger is a Provider that has a place for what the programs of a box write, for as long as the box is known.
type OutputLogger interface {
	// OutputLog is the path of the file. Who starts the programs makes and writes it. ErrNotFound for an unknown id.
	OutputLog(id string) (string, error)
}

// Checker is a Provider that can tell before anything is made why it can't make a sandbox of s on this machine: an error that is ErrUnsupported,
// or nil. It leaves nothing behind and is quick.
type Checker interface {
	Check(ctx context.Context, s Spec) error
}

// Entry is what an image says of its own program, for who runs it: nothing runs by itself. Commands of a box get User, Env and WorkingDir
// where they say nothing else.
type Entry struct {
	User       string   `json:"user,omitempty"`
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// Argv is the image's own command, with args in the place of its Cmd when there are any. It may be empty.
func (e Entry) Argv(args ...string) []string {
	if len(args) == 0 {
		args = e.Cmd
	}
	return append(append([]string{}, e.Entrypoint...), args...)
}

// Builder is a Provider whose engine makes images.
type Builder interface {
	// Build makes an image of a folder. A fault's text holds the end of the build's output.
	Build(ctx context.Context, b Build) (Built, error)
	// Load reads the images of a tarball and answers their references, or their ids where they have none.
	Load(ctx context.Context, tarball io.Reader) ([]string, error)
}

// Build is an image to make.
type Build struct {
	Context    io.Reader // a tar of the folder; it isn't read when the image is there
	Dockerfile string    // within Context; "" is Dockerfile
	Platform   string    // such as linux/amd64; "" is the engine's own
	Tag        string    // a name to give it; "" is none
	// Sources is the digest of all that the image is made from: an image that was built of the same is answered again. "" builds always.
	Sources string
	Args    map[string]string // values of the Dockerfile's ARGs; they are part of Sources
}

// Built is an image that was made.
type Built struct {
	ID     string
	Log    string // the end of what the build said; empty when Cached
	Cached bool
}
