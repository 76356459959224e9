package plugin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"slices"
	"syscall"
	"time"
)

// Sandboxes is a provider of sandboxes: places where programs run, each with files, processes and a network of its own.
type Sandboxes struct {
	Name        string
	Description string
	Can         SandboxAbilities
	// Open makes the provider, when something is first asked of it. h lasts for this call alone: settings and secrets are to be read here.
	Open func(ctx context.Context, h *Host) (SandboxProvider, error)
}

// SandboxAbilities say what sandboxes of a provider are and can. What isn't in them is never asked of the provider: the host refuses it.
type SandboxAbilities struct {
	// Isolation is the least that holds in every sandbox: "none", "namespaces" or "container".
	Isolation string `json:"isolation"`
	// Networks are the policies that the provider enforces: "none", "allow_all", "allowlist".
	Networks []string `json:"networks"`
	Can      []string `json:"can"` // of the words below
}

// What a provider may be able to do.
const (
	CanImages  = "images"  // sandboxes of images
	CanShown   = "shown"   // show files and folders of this machine
	CanPublish = "publish" // ports of a sandbox on this machine's loopback
	CanLimits  = "limits"  // enforce cpu, memory, disk and the number of processes
	CanLeases  = "leases"  // sandboxes that outlive the process which made them, until their lease ends
	CanUsers   = "users"   // run commands as users of the sandbox
	CanDial    = "dial"    // connect to what listens in a sandbox
	CanListen  = "listen"  // sockets in a sandbox that are accepted outside
	CanTrees   = "trees"   // read and write folders as tars
)

// Has tells whether the provider can do what a word says.
func (c *SandboxAbilities) Has(word string) bool { return c != nil && slices.Contains(c.Can, word) }

// Errors that sandboxes and providers answer, besides those of io/fs, syscall.Errno and errors.ErrUnsupported.
var (
	// ErrNoSandbox: no such sandbox, or it has died.
	ErrNoSandbox = errors.New("no such sandbox")
	// ErrSandboxGone: a sandbox that was used no longer lives.
	ErrSandboxGone = errors.New("the sandbox is gone")
	// ErrTooBig: a file is larger than was asked for.
	ErrTooBig = errors.New("larger than the limit")
)

// SandboxProvider makes sandboxes. Its methods may be called from several goroutines.
type SandboxProvider interface {
	// Create makes a sandbox, and leaves nothing when it fails. The same spec.Key gives the same sandbox while it lives.
	Create(ctx context.Context, spec SandboxSpec) (SandboxInfo, error)
	// Connect opens a living sandbox; ErrNoSandbox otherwise. It is closed when it isn't used any more, which ends nothing in it.
	Connect(ctx context.Context, id string) (Sandbox, error)
	// List tells of every sandbox of the provider that this machine's user has, newest first, dead ones included.
	List(ctx context.Context) ([]SandboxInfo, error)
	// Destroy ends a sandbox and removes what it left; nil for an unknown one.
	Destroy(ctx context.Context, id string) error
	// Sweep removes what dead sandboxes left, and answers their ids.
	Sweep(ctx context.Context) ([]string, error)
	// Close ends what this process holds: its tied sandboxes die.
	Close() error
}

// Sandbox is one living sandbox. Its methods may be called from several goroutines; after its death they answer ErrSandboxGone. Those that the provider's
// abilities leave out are never called.
type Sandbox interface {
	// Exec runs a command and waits for it. The end of ctx kills it with all that it started.
	Exec(ctx context.Context, c SandboxExec, stdio Stdio) (SandboxExit, error)
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	// ReadFile reads a regular file of at most max bytes; ErrTooBig beyond.
	ReadFile(ctx context.Context, path string, max int64) ([]byte, error)
	Stat(ctx context.Context, path string) (fs.FileInfo, error) // follows links
	// Tree is a tar of a folder or file, names relative to it; Extract unpacks one below path, which is made when absent, and nothing outside of it.
	Tree(ctx context.Context, path string) (io.ReadCloser, error)
	Extract(ctx context.Context, path string, tar io.Reader) error
	// Renew moves the lease's end to d from now.
	Renew(ctx context.Context, d time.Duration) error
	Close() error
}

// Stdio are the streams of a command; nil ones are /dev/null. The sandbox closes them: Out and Err when nothing more can be written, which may be after the
// command has ended, where it left others behind; In when nothing reads it.
type Stdio struct {
	In  io.ReadCloser
	Out io.WriteCloser
	Err io.WriteCloser
}

// SandboxSpec is what a sandbox shall be. Zero values mean the provider's default.
type SandboxSpec struct {
	Key       string            `json:"key,omitempty"`
	Run       string            `json:"run,omitempty"`
	Name      string            `json:"name,omitempty"`
	Image     string            `json:"image,omitempty"`
	Env       []string          `json:"env,omitempty"` // of every command
	LeaseMS   int64             `json:"lease_ms"`
	Tied      bool              `json:"tied,omitempty"` // it dies with the process that made it
	CPU       float64           `json:"cpu,omitempty"`  // cores
	MemoryMB  int64             `json:"memory_mb,omitempty"`
	DiskMB    int64             `json:"disk_mb,omitempty"`
	Pids      int64             `json:"pids,omitempty"`
	Network   string            `json:"network"` // "none", "allow_all", "allowlist"
	Egress    *SandboxEgress    `json:"egress,omitempty"`
	Publish   []SandboxPort     `json:"publish,omitempty"`
	Shown     []SandboxShown    `json:"shown,omitempty"`
	Aliases   []string          `json:"aliases,omitempty"` // names of the sandbox itself in it
	Isolation string            `json:"isolation"`         // the least that must hold
	Labels    map[string]string `json:"labels,omitempty"`
}

// Lease is how long it lives unless renewed.
func (s *SandboxSpec) Lease() time.Duration { return time.Duration(s.LeaseMS) * time.Millisecond }

// SandboxEgress is what an allowlist lets out: where one of Hosts or CIDRs holds the destination, and Ports its port; no ports are all.
type SandboxEgress struct {
	Hosts []string `json:"hosts,omitempty"` // "*.example.org" is every name below it
	CIDRs []string `json:"cidrs,omitempty"`
	Ports []uint16 `json:"ports,omitempty"`
}

// SandboxPort is a TCP port of a sandbox on this machine's loopback; Host 0 is any that is free.
type SandboxPort struct {
	Box  uint16 `json:"box"`
	Host uint16 `json:"host"`
}

// SandboxShown is a file or folder of this machine that the sandbox sees read-only.
type SandboxShown struct {
	From string `json:"from"`
	At   string `json:"at"`
}

// SandboxInfo describes a sandbox.
type SandboxInfo struct {
	ID        string            `json:"id"` // letters, digits, and . _ - after the first
	Name      string            `json:"name,omitempty"`
	Key       string            `json:"key,omitempty"`
	Run       string            `json:"run,omitempty"`
	State     string            `json:"state"` // "starting", "running", "dead"
	Tied      bool              `json:"tied,omitempty"`
	Created   time.Time         `json:"created"`
	Expires   time.Time         `json:"expires"`
	Image     string            `json:"image,omitempty"` // with its digest
	Entry     *SandboxEntry     `json:"entry,omitempty"` // of the image
	Network   string            `json:"network,omitempty"`
	Egress    *SandboxEgress    `json:"egress,omitempty"`
	Published []SandboxPort     `json:"published,omitempty"`
	Cause     string            `json:"cause,omitempty"` // of a dead one: "lease", "removed", "owner", "memory", "disk", "limit", "signal"
	Isolation SandboxIsolation  `json:"isolation"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// SandboxIsolation is what was found in force. Limits says per resource (cpu, memory, disk, pids) what enforces it.
type SandboxIsolation struct {
	Level  string            `json:"level"`
	Probes []SandboxProbe    `json:"probes,omitempty"`
	Limits map[string]string `json:"limits,omitempty"`
}

// SandboxProbe is one thing that was tried in the sandbox; OK: it was withstood.
type SandboxProbe struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Detail  string `json:"detail,omitempty"`
	Warning bool   `json:"warning,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// SandboxEntry is what an image says of its own program.
type SandboxEntry struct {
	User       string   `json:"user,omitempty"`
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// SandboxExec is one command.
type SandboxExec struct {
	Argv      []string `json:"argv"` // the first word is looked up in the sandbox
	Env       []string `json:"env,omitempty"`
	Dir       string   `json:"dir,omitempty"`
	User      string   `json:"user,omitempty"`
	TimeoutMS int64    `json:"timeout_ms,omitempty"` // it ends the command and all that it started
	KillTree  bool     `json:"kill_tree,omitempty"`  // what outlives the command dies with it
}

// Timeout is the command's time; 0: no end.
func (c *SandboxExec) Timeout() time.Duration { return time.Duration(c.TimeoutMS) * time.Millisecond }

// SandboxExit is how a command ended: Code, or the Signal that ended it.
type SandboxExit struct {
	Code      int   `json:"code"`
	Signal    int   `json:"signal,omitempty"`
	TimedOut  bool  `json:"timed_out,omitempty"`
	OOM       bool  `json:"oom,omitempty"`
	DiskFull  bool  `json:"disk_full,omitempty"`
	PidsFull  bool  `json:"pids_full,omitempty"`
	Left      int   `json:"left,omitempty"` // processes that had to be killed
	ElapsedUS int64 `json:"elapsed_us,omitempty"`
	CPUUS     int64 `json:"cpu_us,omitempty"`
}

// SandboxStat is what is known of a file. Mode is as stat(2) has it.
type SandboxStat struct {
	Size int64     `json:"size"`
	Mode uint32    `json:"mode"`
	Time time.Time `json:"time"`
}

// SandboxParams are the parameters of all methods of sandboxes, of which each has its own.
type SandboxParams struct {
	Call     string       `json:"call,omitempty"`
	Entry    Entry        `json:"entry"`
	ID       string       `json:"id,omitempty"`
	Spec     *SandboxSpec `json:"spec,omitempty"`
	Exec     string       `json:"exec,omitempty"`
	Command  *SandboxExec `json:"command,omitempty"`
	Stdin    string       `json:"stdin,omitempty"`
	Stdout   string       `json:"stdout,omitempty"`
	Stderr   string       `json:"stderr,omitempty"`
	Stream   string       `json:"stream,omitempty"`
	Listener string       `json:"listener,omitempty"`
	Network  string       `json:"network,omitempty"`
	Address  string       `json:"address,omitempty"`
	Path     string       `json:"path,omitempty"`
	Max      int64        `json:"max,omitempty"`
	LeaseMS  int64        `json:"lease_ms,omitempty"`
}

// SandboxAnswer is the answer of all methods of sandboxes.
type SandboxAnswer struct {
	Sandbox   *SandboxInfo  `json:"sandbox,omitempty"`
	Sandboxes []SandboxInfo `json:"sandboxes,omitempty"`
	IDs       []string      `json:"ids,omitempty"`
	Stat      *SandboxStat  `json:"stat,omitempty"`
	Address   string        `json:"address,omitempty"`
}

// SandboxExited and SandboxAccepted are the parameters of notifications.
type (
	SandboxExited struct {
		Exec  string        `json:"exec"`
		Exit  *SandboxExit  `json:"exit,omitempty"`
		Error *SandboxFault `json:"error,omitempty"`
	}
	SandboxAccepted struct {
		Listener string `json:"listener"`
		Stream   string `json:"stream"`
		Address  string `json:"address,omitempty"`
	}
)

// Methods and notifications of sandboxes.
const (
	MethodSandboxCreate   = "sandbox/create"
	MethodSandboxConnect  = "sandbox/connect"
	MethodSandboxList     = "sandbox/list"
	MethodSandboxDestroy  = "sandbox/destroy"
	MethodSandboxSweep    = "sandbox/sweep"
	MethodSandboxExec     = "sandbox/exec"
	MethodSandboxKill     = "sandbox/kill"
	MethodSandboxDial     = "sandbox/dial"
	MethodSandboxListen   = "sandbox/listen"
	MethodSandboxUnlisten = "sandbox/unlisten"
	MethodSandboxRead     = "sandbox/read"
	MethodSandboxStat     = "sandbox/stat"
	MethodSandboxTree     = "sandbox/tree"
	MethodSandboxExtract  = "sandbox/extract"
	MethodSandboxRenew    = "sandbox/renew"
	NotifySandboxExit     = "sandbox/exit"
	NotifySandboxAccepted = "sandbox/accepted"
)

// SandboxFault is an error of a sandbox on the wire.
type SandboxFault struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
	Errno   int    `json:"errno,omitempty"` // as Linux numbers them
}

func (f *SandboxFault) Error() string { return f.Message }

// Unwrap is what the fault is.
func (f *SandboxFault) Unwrap() error {
	for _, c := range sandboxCodes() {
		if c.code == f.Code {
			return c.err
		}
	}
	if f.Errno != 0 {
		return syscall.Errno(f.Errno)
	}
	return nil
}

type sandboxCode struct {
	code string
	err  error
}

func sandboxCodes() []sandboxCode {
	return []sandboxCode{
		{"not_found", ErrNoSandbox},
		{"gone", ErrSandboxGone},
		{"too_big", ErrTooBig},
		{"unsupported", errors.ErrUnsupported},
		{"not_exist", fs.ErrNotExist},
		{"exist", fs.ErrExist},
		{"permission", fs.ErrPermission},
		{"invalid", fs.ErrInvalid},
		{"timeout", context.DeadlineExceeded},
		{"canceled", context.Canceled},
	}
}

// FaultOf is err as it goes over the wire; nil for nil.
func FaultOf(err error) *SandboxFault {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*SandboxFault](err); ok {
		return f
	}
	f := &SandboxFault{Message: err.Error()}
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(no)
		return f
	}
	for _, c := range sandboxCodes() {
		if errors.Is(err, c.err) {
			f.Code = c.code
			break
		}
	}
	return f
}
