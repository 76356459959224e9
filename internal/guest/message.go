package guest

import (
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"
)

// Operations of a Request.
const (
	OpBoot    = "boot" // the first of a box's life, on the socket it was born with
	OpExec    = "exec"
	OpDial    = "dial"
	OpListen  = "listen"
	OpRead    = "read"
	OpStat    = "stat"
	OpTree    = "tree"
	OpExtract = "extract"
	OpRenew   = "renew"
	// OpSnapshot: a tar of what the box wrote, as a layer. OpDiff: a tar of what changed, under its real names.
	OpSnapshot = "snapshot"
	OpDiff     = "diff"
	OpDie      = "die"
	OpLaunch   = "launch" // to a launcher: start a box's PID 1, or its network host
	OpHost     = "host"   // to a network host: serve a box
)

// Request is what a connection is for; Op tells which fields count.
type Request struct {
	Op      string        `json:"op"`
	Command *Command      `json:"command,omitempty"`
	Stdio   [3]bool       `json:"stdio,omitzero"` // which of the three files ride with the frame
	Network string        `json:"network,omitempty"`
	Addr    string        `json:"addr,omitempty"`
	Path    string        `json:"path,omitempty"`
	Max     int64         `json:"max,omitempty"`
	Merge   int           `json:"merge,omitempty"` // how many of the box's own layers join the snapshot's
	Brief   bool          `json:"brief,omitempty"` // without the bytes of files
	Lease   time.Duration `json:"lease,omitempty"`
	Boot    *Boot         `json:"boot,omitempty"`
	Launch  *Launch       `json:"launch,omitempty"`
	Host    *HostNetwork  `json:"host,omitempty"`
	// Keep asks, with OpExec, that the connection stays open for another command.
	Keep bool `json:"keep,omitempty"`
}

// Reply ends an operation.
type Reply struct {
	Fault *Fault    `json:"fault,omitempty"`
	Exit  *Exit     `json:"exit,omitempty"`
	Stat  *FileStat `json:"stat,omitempty"`
	Boot  *Booted   `json:"boot,omitempty"`
	PID   int       `json:"pid,omitempty"`
	Kept  bool      `json:"kept,omitempty"` // the connection takes another command
}

// FileStat is an fs.FileInfo on the wire.
type FileStat struct {
	Path  string      `json:"path"`
	Bytes int64       `json:"size"`
	Bits  fs.FileMode `json:"mode"`
	Time  time.Time   `json:"time"`
}

var _ fs.FileInfo = (*FileStat)(nil)

// StatOf is info as a message.
func StatOf(name string, info fs.FileInfo) *FileStat {
	return &FileStat{Path: name, Bytes: info.Size(), Bits: info.Mode(), Time: info.ModTime()}
}

func (s *FileStat) Name() string       { return path.Base(s.Path) }
func (s *FileStat) Size() int64        { return s.Bytes }
func (s *FileStat) Mode() fs.FileMode  { return s.Bits }
func (s *FileStat) ModTime() time.Time { return s.Time }
func (s *FileStat) IsDir() bool        { return s.Bits.IsDir() }
func (s *FileStat) Sys() any           { return nil }

// Names under which programs are started: the guest program as a box's PID 1, as a launcher, which starts those for one provider, and as a
// PID 1 that waits for its ids; the main program as a network host, in which one box's network runs.
const (
	Argv0         = "agent-env-guest"
	LauncherArgv0 = "agent-env-launcher"
	WaitingArgv0  = "agent-env-guest-waiting" // a PID 1 that has no ids yet
	HostArgv0     = "agent-env-net"
	MinderArgv0   = "agent-env-minder" // what a box whose world is given starts each command through
	KeeperArgv0   = "agent-env-keeper" // what stands between the host and a program that is in no box
)

// Where an engine's container has what its PID 1 begins with: the program, which is started by this path, and the folder of the socket that
// takes the place of BirthFD there.
const (
	ContainerDir     = "/.agentenv"
	ContainerProgram = ContainerDir + "/guest"
	ContainerBirth   = ContainerDir + "/birth"
	BirthSocket      = "socket" // in ContainerBirth
)

// LeaseFormat is how a box's deadline, nanoseconds on the boot clock, stands in its lease file: always as wide, so that one write replaces it.
const LeaseFormat = "%020d\n"

// CauseFormat is the lease file of a box that has ended, just as wide: one of the Cause words.
const CauseFormat = "%-20s\n"

// Why a box's PID 1 ended by itself.
const (
	CauseLease   = "lease"   // its lease ended
	CauseRemoved = "removed" // it was told to
	CauseOwner   = "owner"   // what it was tied to ended
	CauseDisk    = "disk"    // its disk was overfull
	CauseLimit   = "limit"   // processes of a command could not be ended
)

// BirthFD is the descriptor of the socket that both are started with.
const BirthFD = 3

// Keeping tells a keeper what to start, in a process group of its own. The keeper's stdio and folder are the program's, and its files behind BirthFD are
// those that the program has from 3 on. The end of the birth socket ends the program and all that it started.
type Keeping struct {
	Path  string   `json:"path"`
	Argv  []string `json:"argv"`
	Env   []string `json:"env"`
	Files int      `json:"files,omitempty"`
	// Grace is what the program has between SIGTERM and SIGKILL where the birth socket ends; 0: it is killed at once.
	Grace time.Duration `json:"grace,omitempty"`
}

// KeepOrder asks a keeper to send a signal to the program's process group. SIGKILL ends all that the program started, wherever it went.
type KeepOrder struct {
	Signal syscall.Signal `json:"signal"`
}

// Kept is what a keeper tells of its program: that it runs or what kept it from starting, then, when nothing of it is left, how it ended.
type Kept struct {
	PID    int                `json:"pid,omitempty"`
	Errno  syscall.Errno      `json:"errno,omitempty"`
	Ended  bool               `json:"ended,omitempty"`
	Status syscall.WaitStatus `json:"status,omitempty"`
}

// Launch asks a launcher for a PID 1 in new namespaces. Two files ride along: the other end of its birth socket, and its stderr. The reply
// has its pid, and a pid descriptor rides with it.
type Launch struct {
	UID  int `json:"uid"` // what the box's root is outside
	GID  int `json:"gid"`
	Size int `json:"size"` // how many ids follow
	// Unmapped: the box begins without ids, waits for one byte on its birth socket, which says that somebody else has mapped them, and goes on
	// then. The fields above don't count.
	Unmapped bool `json:"unmapped,omitempty"`
	// Host: a network host is meant, which has the host's namespaces and runs as UID and GID, or as its maker where Size is 1. Its program
	// is the third file.
	Host bool `json:"host,omitempty"`
}

// Boot is what a provider tells PID 1: the world to build and how to live in it. Files ride with the request in this order: the
// listener; the slot, a file that PID 1 locks for the box's life and whose first bytes are the lease's end; the disk's mount; one for every
// Layer of Stack and of Overlays and every Bind that says so; one for every cgroup to join; the memory's and the processes' events; the
// locks to hold; the door and the TUN's device, as Network says.
type Boot struct {
	Hostname string `json:"hostname"`
	// Tied: the end of the birth socket is the end of the box. Without it a box lives on once its owner has said FrameEnd there, which
	// both kinds need: until then the box is being made, and the end of its maker is its own.
	Tied  bool          `json:"tied,omitempty"`
	Lease time.Duration `json:"lease"`
	Env   []string      `json:"env"` // of every command
	// User and Dir are those of commands that name none, as in Command; "" for both is root in its home. They are an image's.
	User string `json:"user,omitempty"`
	Dir  string `json:"dir,omitempty"`
	// Given: an engine has made the world, with its names, disk and limits: Hostname, Disk, Inodes, Overlays, Binds, Links and Dirs say
	// nothing, and Contents are written where their folders are. The TUN's device is opened inside. PID 1 may not make namespaces there, so commands are told apart by a minder each.
	Given bool `json:"given,omitempty"`

	// Disk is the size of the tmpfs that holds all that the box writes, in bytes; Inodes how many files it may have. 0: the kernel's default.
	Disk   int64 `json:"disk"`
	Inodes int64 `json:"inodes"`
	// DiskMount: a mount rides along, after the slot, that takes the place of the tmpfs. DiskDir is a folder of the host that takes it;
	// PID 1 measures it and ends the box when it is larger than Disk.
	DiskMount bool   `json:"disk_mount,omitempty"`
	DiskDir   string `json:"disk_dir,omitempty"`
	// OneID: the box has a single id, so that changes of owners are to look done.
	OneID bool `json:"one_id,omitempty"`
	// Pids limits the processes of the box by rlimit; 0: none.
	Pids uint64 `json:"pids,omitempty"`
	// Memory is what the processes of the box may use together, in bytes, where PID 1 has to watch it itself; 0: somebody else does.
	Memory int64 `json:"memory,omitempty"`
	// Cgroups is how many cgroup files ride along that commands join by a write of "0".
	Cgroups int `json:"cgroups,omitempty"`
	// MemoryEvents: a cgroup file that counts kills for memory rides along.
	MemoryEvents bool `json:"memory_events,omitempty"`
	// PidsEvents: a cgroup file that counts forks that were refused rides along, after that of the memory.
	PidsEvents bool `json:"pids_events,omitempty"`
	// Holds is how many locks ride along that PID 1 keeps for the box's life.
	Holds int `json:"holds,omitempty"`

	// Stack are the layers of the snapshot that the box begins with, topmost first. Each is a folder with one folder for every place that was
	// written to, named by PlaceName, in the form of overlays.
	Stack    []Layer           `json:"stack,omitempty"`
	Overlays []Overlay         `json:"overlays"` // that of "/" is made without layers when it isn't there
	Binds    []Bind            `json:"binds,omitempty"`
	Links    map[string]string `json:"links,omitempty"`    // path to target
	Contents map[string]string `json:"contents,omitempty"` // path to a file's text
	Dirs     []string          `json:"dirs,omitempty"`     // made 0755

	Network BootNetwork `json:"network,omitzero"`
	Probe   Probing     `json:"probe"`
}

// BootNetwork is the network that a box has besides its loopback.
type BootNetwork struct {
	// Door: a socket rides along on which PID 1 takes connections from the network host, as it does on its listener. Its end outside is the
	// box's end.
	Door bool `json:"door,omitempty"`
	// TUN: PID 1 makes a TUN, the box's one way out, and its descriptor rides with the answer to Boot.
	TUN bool `json:"tun,omitempty"`
	// Device: the opened device to make it of rides along; otherwise PID 1 opens it.
	Device bool `json:"device,omitempty"`
}

// TUNDevice is what TUNs are made of.
const TUNDevice = "/dev/net/tun"

// Overlay is a folder of the box: layers of the host below, the box's own writes above.
type Overlay struct {
	Path   string   `json:"path"`
	Layers []Layer  `json:"layers"`         // topmost first
	Hide   []string `json:"hide,omitempty"` // folders below Path that appear empty, relative to it
	// Fallback allows a read-only bind of the last layer where the kernel refuses the overlay because of mounts below it.
	Fallback bool `json:"fallback,omitempty"`
}

// PlaceName is the name of a place of a box, the path of an Overlay, in a layer of a snapshot.
func PlaceName(p string) string {
	if p == "/" {
		return "@"
	}
	return strings.ReplaceAll(strings.TrimPrefix(p, "/"), "/", "+")
}

// Layer is one read-only folder of an Overlay: a path of the host, or a mount that rides along.
type Layer struct {
	Path string `json:"path,omitempty"`
	File bool   `json:"file,omitempty"`
}

// Bind is a file or folder of the host shown read-only at a path of the box.
type Bind struct {
	Layer
	Target string `json:"target"`
	Dir    bool   `json:"dir,omitempty"`
}

// Probing is what PID 1 tries once its world stands, in the place of a command of the box.
type Probing struct {
	Hidden   []string `json:"hidden,omitempty"`   // paths of the host that must not be seen
	HostPID  int      `json:"host_pid"`           // a process of the host that must not be reached
	Abstract string   `json:"abstract,omitempty"` // an abstract unix socket of the host that must not be reached
	Marker   string   `json:"marker,omitempty"`   // a file to write; the provider looks whether the host has it then
	HostUID  int      `json:"host_uid"`           // the caller's uid outside
	Image    bool     `json:"image,omitempty"`    // the files that the box sees are an image's and not the host's
	Network  bool     `json:"network,omitempty"`  // the box is to have a network
}

// Tried is the outcome of one probe; OK means that the box withstood it.
type Tried struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// Booted is PID 1's answer to Boot.
type Booted struct {
	Tried    []Tried  `json:"tried"`
	Notes    []string `json:"notes,omitempty"` // what the world lacks
	Deadline int64    `json:"deadline"`        // the lease's end on the boot clock, in nanoseconds
	// Spent tells where the start's time went, in order.
	Spent []Span `json:"spent,omitempty"`
}

// Span is one stretch of a start.
type Span struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}
