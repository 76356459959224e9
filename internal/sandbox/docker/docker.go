// Package docker makes sandboxes out of containers of a Docker or Podman engine on this machine.
//
// PID 1 of a container is the same guest program as everywhere (package guest/pid1), shown to it read-only from a file of the state root.
// It begins on a socket in a folder that is bound into the container, where its maker hands it what it serves and holds: the listener that
// clients connect to, and the box's slot. Neither has a name inside, and the folder is empty once the box lives. So a box is found, reached,
// renewed and ended without the engine; the engine is asked to make and to remove containers and images.
//
// Words: the slot is the file of a box on the host; its PID 1 holds the POSIX lock on it as long as the box lives. The engine is whoever
// answers on the socket. The package speaks to engines of this machine alone: descriptors travel with messages, and files are bound.
// No box has a network of the engine's: one that has a network has a TUN, which PID 1 makes, and behind it the policy (package hostside).
package docker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// Name is the provider's name in Info.
const Name = "docker"

// DefaultPids limits the processes of a box whose Spec says nothing.
const DefaultPids = 4096

// Labels of what the provider makes in an engine.
const (
	labelID    = "dev.agentenv.id"
	labelRun   = "dev.agentenv.run"
	labelKey   = "dev.agentenv.key"
	labelLease = "dev.agentenv.lease" // the end of the first lease; PID 1 knows the present one
	labelOwner = "dev.agentenv.owner" // the pid of the process that made it
	labelState = "dev.agentenv.state" // which state root it belongs to
	// labelSources is the digest of what an image was built from.
	labelSources = "dev.agentenv.sources"
)

// Options is which engine a Provider uses and how.
type Options struct {
	// StateRoot is the folder below which boxes are kept; it is made when the first box is.
	StateRoot string
	// Socket is the engine's: a path, or a unix:// address. "" is the one that Env and the machine's usual places lead to.
	Socket string
	// Image is what boxes are made of whose Spec names no image. "" is none.
	Image string
	// Guest is the program that plays PID 1: a static executable for this machine.
	Guest func() ([]byte, error)
	// Keychain knows how to sign in to registries for the engine; nil is the configuration and the credential helpers of Docker and Podman.
	Keychain authn.Keychain
	// Proxy answers the host's way out for boxes that have a network; nil: there is no proxy. Its error refuses such boxes.
	Proxy func() (guest.Proxy, error)
	// Env looks variables of the process's environment up, as os.LookupEnv does; nil: there are none.
	Env func(string) (string, bool)
}

func (o *Options) check() error {
	var errs []error
	if !filepath.IsAbs(o.StateRoot) {
		errs = append(errs, fmt.Errorf("the state root %q is not an absolute path", o.StateRoot))
	}
	if o.Socket != "" {
		if _, err := socketPath(o.Socket); err != nil {
			errs = append(errs, fmt.Errorf("sandbox.docker.socket: %w", err))
		}
	}
	return errors.Join(errs...)
}

// refusal is why this provider can't do what is asked, in a sentence that says what to do instead. It is sandbox.ErrUnsupported.
type refusal string

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

func (r refusal) Error() string { return string(r) }

// Is makes it sandbox.ErrUnsupported.
func (refusal) Is(err error) bool { return err == sandbox.ErrUnsupported }

// errNoImage: nothing says what a box is to be made of.
const errNoImage = refusal("a sandbox of an engine is made of an image: name one, or set [sandbox.docker] image")

// tunProblem tells why boxes can have no network here, and what to do; nil when they can as far as can be seen from outside.
func tunProblem() error {
	if _, err := os.Stat(guest.TUNDevice); errors.Is(err, os.ErrNotExist) {
		return refuse("this machine has no %s (modprobe tun; in a container, start it with --device %s)", guest.TUNDevice, guest.TUNDevice)
	}
	return nil
}

// checkSpec refuses what boxes of an engine can't be, and fills in the defaults.
func checkSpec(s *sandbox.Spec) error {
	var errs []error
	unsupported := func(format string, args ...any) { errs = append(errs, refuse(format, args...)) }
	if err := hostside.CheckNetwork(s, tunProblem); err != nil {
		errs = append(errs, err)
	}
	switch s.Isolation {
	case "":
		s.Isolation = sandbox.LevelContainer
	case sandbox.LevelNone, sandbox.LevelNamespaces, sandbox.LevelContainer:
	default:
		unsupported("a sandbox of an engine has the isolation container, not %s", s.Isolation)
	}
	if s.From != "" {
		unsupported("a sandbox of an engine can't begin with the snapshot %s, which holds a local sandbox's files; use a local one", s.From)
	}
	if err := s.CheckLimits(); err != nil {
		errs = append(errs, err)
	}
	if s.Lease == 0 {
		s.Lease = sandbox.DefaultLease
	}
	if s.Pids == 0 {
		s.Pids = DefaultPids
	}
	return errors.Join(append(errs, s.CheckGiven())...)
}

// Report is what holds of the engine, and what to do about what doesn't.
type Report struct {
	OK       bool      `json:"ok"` // boxes can be made
	Findings []Finding `json:"findings"`
}

// Finding is one thing that was looked at.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}
