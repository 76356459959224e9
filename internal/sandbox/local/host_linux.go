package local

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// Ids of boxes on the host, when root makes them: 65,536 each, from a range that no distribution gives away.
const (
	idRange = 1 << 16
	idFirst = 1 << 30
	idSlots = 1 << 14
)

// host is what this process may do on the host, found out once.
type host struct {
	// wide: the process is the machine's root, so that boxes get ids of their own and mounts can be idmapped.
	wide bool
	uid  int
	gid  int

	mu      sync.Mutex
	noIDMap bool // the file systems below can't map ids: found by trying
	groups  *cgroups
}

func newHost() *host {
	h := &host{uid: os.Geteuid(), gid: os.Getegid()}
	h.wide = h.uid == 0 && mapsAllIDs("/proc/self/uid_map") && mapsAllIDs("/proc/self/gid_map")
	return h
}

// mapsAllIDs tells whether the map holds the ids of boxes, as the initial user namespace's does.
func mapsAllIDs(name string) bool {
	b, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	f := strings.Fields(string(b))
	if len(f) < 3 || f[0] != "0" || f[1] != "0" {
		return false
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	return err == nil && n >= idFirst+idSlots*idRange
}

// ids is where a new box's ids begin on the host. Without idmapped mounts all boxes share the first range, whose owner the trees carry.
func (h *host) ids() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.noIDMap {
		return idFirst
	}
	return idFirst + rand.IntN(idSlots)*idRange
}

func (h *host) idmaps() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wide && !h.noIDMap
}

// cannotMap makes all boxes from now on go without idmapped mounts.
func (h *host) cannotMap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noIDMap = true
}

// layout is the host's part of a box's world.
type layout struct {
	overlays []source
	binds    []source
	links    map[string]string
	dirs     []string
	stack    []string // folders of a snapshot's layers, topmost first
}

// source is a place of the host that a box sees.
type source struct {
	target string   // in the box
	paths  []string // layers, topmost first; one for a bind
	owned  bool     // root's files there are the box's root's
	hide   []string
	dir    bool // of a bind
}

// systemDirs may be links into /usr or folders of their own.
var systemDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// skeleton are the folders that every box has, besides the overlays.
var skeleton = []string{
	"/home", "/mnt", "/media", "/srv", "/opt", "/run", "/var", "/var/cache", "/var/lib", "/var/local", "/var/log", "/var/mail", "/var/opt", "/var/spool",
}

// layout reads how the host's root looks, and puts trees over it.
func (h *host) layout(trees hostTrees, o *Options) (*layout, error) {
	l := &layout{links: map[string]string{"/var/run": "/run", "/var/lock": "/run/lock"}, dirs: skeleton}
	usr := trees.system("/usr")
	if trees.extra != "" {
		usr.paths = []string{trees.extra, "/usr"}
	}
	l.overlays = append(l.overlays, usr, source{target: "/etc", paths: []string{trees.etc}, owned: true})
	for _, name := range systemDirs {
		full := "/" + name
		info, err := os.Lstat(full)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		case info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(full)
			if err != nil {
				return nil, err
			}
			l.links[full] = to
		case info.IsDir():
			l.overlays = append(l.overlays, trees.system(full))
		}
	}
	shown := append(slices.Clone(o.Tools), o.Expose...)
	if info, err := os.Stat("/opt"); err == nil && info.IsDir() {
		passwd, err := os.ReadFile("/etc/passwd")
		if err != nil {
			return nil, err
		}
		l.overlays = append(l.overlays, source{target: "/opt", paths: []string{"/opt"}, hide: homesBelow("/opt", passwd, shown)})
	}
	for _, name := range shown {
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("show %s in sandboxes: %w", name, err)
		}
		l.binds = append(l.binds, source{target: name, paths: []string{name}, dir: info.IsDir()})
	}
	return l, nil
}

// system is a folder of the host with what is private in it taken away.
func (t hostTrees) system(top string) source {
	s := source{target: top, paths: []string{top}, owned: true}
	if t.private == "" {
		return s
	}
	if _, err := os.Lstat(t.private + top); err == nil {
		s.paths = []string{t.private + top, top}
	}
	return s
}

// homesBelow are the users' homes under dir, relative to it, without those that are shown on purpose.
func homesBelow(dir string, passwd []byte, shown []string) []string {
	var homes []string
	for line := range strings.Lines(string(passwd)) {
		f := strings.Split(line, ":")
		if len(f) < 6 {
			continue
		}
		home := path.Clean(f[5])
		rel, below := strings.CutPrefix(home, dir+"/")
		if !below || slices.Contains(homes, rel) || slices.ContainsFunc(shown, func(s string) bool { return within(s, home) || within(home, s) }) {
			continue
		}
		if info, err := os.Lstat(home); err == nil && info.IsDir() {
			homes = append(homes, rel)
		}
	}
	return homes
}

// mounts are the descriptors that ride with a boot message: clones of the host's folders that the box could not reach by path.
type mounts struct {
	files []*os.File
}

func (m *mounts) close() {
	for _, f := range m.files {
		f.Close()
	}
}

// compose writes the layout into b. As root each folder rides along as a mount, idmapped where it is owned; otherwise by its path.
func (h *host) compose(b *guest.Boot, l *layout, userns int) (*mounts, error) {
	m := &mounts{}
	for _, name := range l.stack {
		layer, err := h.layer(m, name, true, userns, 0)
		if err != nil {
			m.close()
			return nil, err
		}
		b.Stack = append(b.Stack, layer)
	}
	for _, s := range l.overlays {
		o := guest.Overlay{Path: s.target, Hide: s.hide, Fallback: true}
		for _, p := range s.paths {
			layer, err := h.layer(m, p, s.owned, userns, 0)
			if err != nil {
				m.close()
				return nil, err
			}
			o.Layers = append(o.Layers, layer)
		}
		b.Overlays = append(b.Overlays, o)
	}
	for _, s := range l.binds {
		layer, err := h.layer(m, s.paths[0], false, userns, unix.AT_RECURSIVE)
		if err != nil {
			m.close()
			return nil, err
		}
		b.Binds = append(b.Binds, guest.Bind{Layer: layer, Target: s.target, Dir: s.dir})
	}
	b.Links, b.Dirs = l.links, l.dirs
	return m, nil
}

// errNoIDMap: a file system can't be idmapped.
var errNoIDMap = errors.New("the file system can't map ids")

func (h *host) layer(m *mounts, name string, owned bool, userns int, recursive uint) (guest.Layer, error) {
	if !h.wide {
		return guest.Layer{Path: name}, nil
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|recursive)
	if err != nil {
		return guest.Layer{}, fmt.Errorf("clone the mount of %s: %w", name, err)
	}
	m.files = append(m.files, os.NewFile(uintptr(fd), name))
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if owned && h.idmaps() {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns)
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|recursive, attr)
	if attr.Userns_fd != 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
		h.cannotMap()
		return guest.Layer{}, fmt.Errorf("%s: %w", name, errNoIDMap)
	}
	if err != nil {
		return guest.Layer{}, fmt.Errorf("protect the mount of %s: %w", name, err)
	}
	return guest.Layer{File: true}, nil
}

// hiddenPaths are paths of the host that no box may see: its own file, and what is in the caller's home and current folder.
func (p *Provider) hiddenPaths(s *slot) []string {
	hidden := []string{s.path}
	home, _ := os.UserHomeDir()
	wd, _ := os.Getwd()
	for _, dir := range []string{home, wd} {
		if dir == "" || p.seen(dir) {
			continue
		}
		d, err := os.Open(dir)
		if err != nil {
			continue
		}
		names, _ := d.Readdirnames(3)
		d.Close()
		for _, name := range names {
			if full := filepath.Join(dir, name); !p.seen(full) {
				hidden = append(hidden, full)
			}
		}
	}
	return hidden
}

// seen tells whether a path is, or leads to, what boxes see by design.
func (p *Provider) seen(name string) bool {
	for _, dir := range append(append([]string{"/usr", "/etc", "/opt", "/proc", "/dev", "/bin", "/sbin", "/lib", "/lib64"}, p.opts.Tools...), p.opts.Expose...) {
		if within(name, dir) || within(dir, name) {
			return true
		}
	}
	return name == "/tmp" || slices.Contains(skeleton, name)
}
