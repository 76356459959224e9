package pid1

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/tree"
)

// stage is where the world is put together before it becomes the root. No layer comes from there, and it is not seen afterwards.
const stage = "/sys"

const (
	root    = stage + "/root"
	private = unix.MS_NOSUID | unix.MS_NODEV
)

// world is a root under construction.
type world struct {
	b      *guest.Boot
	rides  *rides
	notes  []string
	stack  []string // folders of the snapshot's layers, topmost first
	places []*place
	n      int // numbers the helper folders of the stage
}

// buildWorld makes the box's root and enters it. The host's mounts are out of reach when it returns.
func buildWorld(b *guest.Boot, r *rides) ([]string, []*place, error) {
	w := &world{b: b, rides: r}
	for _, f := range []func() error{w.prepare, w.layers, w.skeleton, w.mountPlaces, w.devices, w.proc, w.binds, enter} {
		if err := f(); err != nil {
			return nil, nil, err
		}
	}
	return w.notes, w.places, nil
}

// prepare cuts the mounts off from the host's and mounts the file system that holds all that the box writes.
func (w *world) prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := w.disk(); err != nil {
		return fmt.Errorf("mount the sandbox's disk: %w", err)
	}
	return mkdirs("", root)
}

// layers finds out what every place is made of. The descriptors of its layers stay open for the box's life: they tell what it began with.
func (w *world) layers() error {
	for _, l := range w.b.Stack {
		dir := l.Path
		if l.File {
			var err error
			if dir, err = w.attach(); err != nil {
				return err
			}
		}
		w.stack = append(w.stack, dir)
	}
	overlays := w.b.Overlays
	if !slices.ContainsFunc(overlays, func(o guest.Overlay) bool { return o.Path == "/" }) {
		overlays = append([]guest.Overlay{{Path: "/"}}, overlays...)
	}
	for _, o := range overlays {
		p := &place{path: o.Path, fallback: o.Fallback}
		var err error
		if p.own, err = w.place("own"); err != nil {
			return err
		}
		w.places = append(w.places, p)
		if err := w.lowers(p, &o); err != nil {
			return fmt.Errorf("mount %s: %w", o.Path, err)
		}
		for _, name := range o.Hide {
			if err := hide(p.own, name); err != nil {
				return fmt.Errorf("hide %s: %w", name, err)
			}
		}
	}
	slices.SortStableFunc(w.places, func(a, b *place) int { return len(a.path) - len(b.path) }) // mounts come before those below them
	return nil
}

// lowers opens the layers of a place: those of the snapshot, the box's own, those of the host.
func (w *world) lowers(p *place, o *guest.Overlay) error {
	for i, dir := range w.stack {
		fd, err := unix.Open(dir+"/"+guest.PlaceName(o.Path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue // nothing was written there
		}
		if err != nil {
			return fmt.Errorf("open a layer of the snapshot: %w", err)
		}
		p.lowers, p.from = append(p.lowers, fd), append(p.from, i)
	}
	p.stacked = len(p.lowers)
	dirs := []string{p.own}
	for _, l := range o.Layers {
		dir := l.Path
		if l.File {
			var err error
			if dir, err = w.attach(); err != nil {
				return err
			}
		}
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", dir, err)
		}
		p.lowers = append(p.lowers, fd)
	}
	return nil
}

// disk mounts what holds all that the box writes on the stage.
func (w *world) disk() error {
	switch {
	case w.b.DiskMount:
		f := w.rides.take()
		if f == nil {
			return errors.New("its mount is missing")
		}
		defer f.Close()
		return unix.MoveMount(int(f.Fd()), "", unix.AT_FDCWD, stage, unix.MOVE_MOUNT_F_EMPTY_PATH)
	case w.b.DiskDir != "":
		if err := unix.Mount(w.b.DiskDir, stage, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		return unix.MountSetattr(unix.AT_FDCWD, stage, 0, attr)
	}
	opts := "mode=0755"
	if w.b.Disk > 0 {
		opts += ",size=" + strconv.FormatInt(w.b.Disk, 10)
	}
	if w.b.Inodes > 0 {
		opts += ",nr_inodes=" + strconv.FormatInt(w.b.Inodes, 10)
	}
	return unix.Mount("sandbox", stage, "tmpfs", private, opts)
}

// place is a new folder on the stage, outside the root.
func (w *world) place(kind string) (string, error) {
	w.n++
	dir := stage + "/" + kind + strconv.Itoa(w.n)
	return dir, unix.Mkdir(dir, 0o755)
}

// mountPlaces mounts every place, the root first.
func (w *world) mountPlaces() error {
	for _, p := range w.places {
		if err := w.mountPlace(p); err != nil {
			return fmt.Errorf("mount %s: %w", p.path, err)
		}
	}
	return nil
}

func (w *world) mountPlace(p *place) error {
	upper, err := w.place("upper")
	if err != nil {
		return err
	}
	work, err := w.place("work")
	if err != nil {
		return err
	}
	if p.upper, err = unix.Open(upper, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if err := p.inherit(upper); err != nil {
		return err
	}
	var names []string
	for i, fd := range p.lowers {
		if i == p.stacked && len(p.lowers) > 1 {
			if held, err := os.ReadDir(p.own); err == nil && len(held) == 0 {
				continue // one layer less to look through
			}
		}
		names = append(names, fdPath(fd))
	}
	target := root
	if p.path != "/" {
		fd, err := mountPoint(p.path)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		target = fdPath(fd)
	}
	opts := "lowerdir=" + strings.Join(names, ":") + ",upperdir=" + upper + ",workdir=" + work + ",userxattr"
	err = unix.Mount("overlay", target, "overlay", private, opts)
	if errors.Is(err, unix.EINVAL) && p.fallback && p.stacked == 0 {
		w.notes = append(w.notes, p.path+": read-only, since other file systems are mounted below it on the host")
		return bindTree(names[len(names)-1], p.path)
	}
	return err
}

// mountPoint opens a place of the root to mount on, never through a link: a layer may hold any.
func mountPoint(name string) (int, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, strings.TrimPrefix(name, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("find %s in the root: %w", name, err)
	}
	return fd, nil
}

// moveTo moves the mount at dir to a place of the root.
func moveTo(dir, name string) error {
	fd, err := mountPoint(name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Mount(dir, fdPath(fd), "", unix.MS_MOVE, "")
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// attach puts the next mount that rode along onto the stage.
func (w *world) attach() (string, error) {
	f := w.rides.take()
	if f == nil {
		return "", errors.New("a layer's mount is missing")
	}
	defer f.Close()
	at, err := w.place("layer")
	if err != nil {
		return "", err
	}
	if err := unix.MoveMount(int(f.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", fmt.Errorf("attach a layer: %w", err)
	}
	return at, nil
}

// hide makes an opaque folder in an upper: what the layers have below that name is not seen.
func hide(upper, name string) error {
	if err := os.MkdirAll(path.Join(upper, name), 0o755); err != nil {
		return err
	}
	return unix.Setxattr(path.Join(upper, name), tree.Opaque, []byte("y"), 0)
}

func writeNew(name, text string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// rewrite puts text in the place of what a file holds, if it is there.
func rewrite(name, text string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

// skeleton makes what the box has of its own below what it writes: folders, links, files and mount points. What the layers hold already stays theirs, but
// for the files.
func (w *world) skeleton() error {
	dirs := slices.Concat(w.b.Dirs, []string{"/dev", "/proc"})
	for _, p := range w.places {
		dirs = append(dirs, p.path)
	}
	for _, name := range dirs {
		if err := w.mkdirAll(name, 0o755); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		name string
		mode uint32
	}{{"/root", 0o700}, {"/tmp", 0o1777}, {"/var/tmp", 0o1777}, {"/run/lock", 0o1777}} {
		if !w.folderOrNone(path.Dir(d.name)) {
			continue // an image's link, which is to stay
		}
		if err := w.mkdirAll(d.name, d.mode); err != nil {
			return err
		}
	}
	if err := w.mountPoints("/dev", "/proc"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.b.Links)) {
		p, rel := w.at(name)
		if p.began(rel) {
			continue
		}
		if err := w.mkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := unix.Symlink(w.b.Links[name], p.own+"/"+rel); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	for name, text := range w.b.Contents {
		p, rel := w.at(name)
		if err := os.MkdirAll(path.Dir(p.own+"/"+rel), 0o755); err != nil {
			return err
		}
		if err := writeNew(p.own+"/"+rel, text); err != nil {
			return err
		}
	}
	for _, b := range w.b.Binds {
		if err := w.bindPoint(&b); err != nil {
			return fmt.Errorf("show %s: %w", b.Target, err)
		}
	}
	return nil
}

func (w *world) bindPoint(b *guest.Bind) error {
	if b.Dir {
		return w.mkdirAll(b.Target, 0o755)
	}
	p, rel := w.at(b.Target)
	if p.began(rel) {
		return nil
	}
	if err := w.mkdirAll(path.Dir(b.Target), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(path.Dir(p.own+"/"+rel), 0o755); err != nil {
		return err
	}
	return writeNew(p.own+"/"+rel, "")
}

// at is the place that holds a path of the box, and the path below it.
func (w *world) at(name string) (*place, string) {
	best, rel := w.places[0], strings.TrimPrefix(name, "/")
	for _, p := range w.places {
		if below, ok := strings.CutPrefix(name, p.path+"/"); ok {
			best, rel = p, below
		}
	}
	return best, rel
}

// mkdirAll makes a folder in the box's own layers with its parents, unless the layers have something there.
func (w *world) mkdirAll(name string, mode uint32) error {
	p, rel := w.at(name)
	if name == "/" || p.began(rel) {
		return nil
	}
	if err := w.mkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	// The layers may have the parents, and the box's own not.
	if err := os.MkdirAll(path.Dir(p.own+"/"+rel), 0o755); err != nil {
		return err
	}
	if err := unix.Mkdir(p.own+"/"+rel, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", name, err)
	}
	return unix.Chmod(p.own+"/"+rel, mode)
}

// mkdirs makes folders; those that exist are fine.
func mkdirs(base string, names ...string) error {
	for _, name := range names {
		if err := unix.Mkdir(base+name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return nil
}

// binds shows what of the host is seen as it is.
func (w *world) binds() error {
	for _, b := range w.b.Binds {
		if err := w.bind(&b); err != nil {
			return fmt.Errorf("show %s: %w", b.Target, err)
		}
	}
	return nil
}

func (w *world) bind(b *guest.Bind) error {
	if !b.File {
		return bindTree(b.Path, b.Target)
	}
	fd, err := mountPoint(b.Target)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	f := w.rides.take()
	if f == nil {
		return errors.New("its mount is missing")
	}
	defer f.Close()
	return unix.MoveMount(int(f.Fd()), "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// bindTree shows source read-only at a place of the root, with what is mounted below it.
func bindTree(source, name string) error {
	fd, err := mountPoint(name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Mount(source, fdPath(fd), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	mounted, err := mountPoint(name)
	if err != nil {
		return err
	}
	defer unix.Close(mounted)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	return unix.MountSetattr(mounted, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
}

// enter makes the new root the only one.
func enter() error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// useWorld adds to a world that an engine made what every command counts on. Files of contents that can't be written are the engine's way
// or the image's.
func useWorld(contents map[string]string) error {
	for _, d := range []struct {
		name string
		mode uint32
	}{{home, 0o700}, {"/tmp", 0o1777}} {
		err := unix.Mkdir(d.name, 0o755)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err == nil {
			err = unix.Chmod(d.name, d.mode)
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", d.name, err)
		}
	}
	for name, text := range contents {
		if err := rewrite(name, text); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
