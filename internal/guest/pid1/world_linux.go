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
)

// stage is where the world is put together before it becomes the root. No layer comes from there, and it is not seen afterwards.
const stage = "/sys"

const (
	root    = stage + "/root"
	private = unix.MS_NOSUID | unix.MS_NODEV
)

// world is a root under construction.
type world struct {
	b     *guest.Boot
	rides *rides
	notes []string
	made  map[string]bool // folders that exist below root
	n     int             // numbers the helper folders of the stage
}

// buildWorld makes the box's root and enters it. The host's mounts are out of reach when it returns.
func buildWorld(b *guest.Boot, r *rides) ([]string, error) {
	w := &world{b: b, rides: r, made: map[string]bool{}}
	if err := w.prepare(); err != nil {
		return nil, err
	}
	for _, o := range b.Overlays {
		if err := w.overlay(&o); err != nil {
			return nil, fmt.Errorf("mount %s: %w", o.Path, err)
		}
	}
	if err := w.folders(); err != nil {
		return nil, err
	}
	if err := w.devices(); err != nil {
		return nil, err
	}
	if err := w.proc(); err != nil {
		return nil, err
	}
	for _, bind := range b.Binds {
		if err := w.bind(&bind); err != nil {
			return nil, fmt.Errorf("show %s: %w", bind.Target, err)
		}
	}
	if err := enter(); err != nil {
		return nil, err
	}
	return w.notes, nil
}

// prepare cuts the mounts off from the host's and mounts the file system that holds all that the box writes.
func (w *world) prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	opts := "mode=0755"
	if w.b.Disk > 0 {
		opts += ",size=" + strconv.FormatInt(w.b.Disk, 10)
	}
	if w.b.Inodes > 0 {
		opts += ",nr_inodes=" + strconv.FormatInt(w.b.Inodes, 10)
	}
	if err := unix.Mount("sandbox", stage, "tmpfs", private, opts); err != nil {
		return fmt.Errorf("mount the sandbox's disk: %w", err)
	}
	if err := mkdirs("", root, root+"/usr", root+"/etc", root+"/dev", root+"/proc"); err != nil {
		return err
	}
	// pivot_root wants a mount, and the folders beside it on the stage stay out of the box's sight.
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the root: %w", err)
	}
	return nil
}

// place is a new folder on the stage, outside the root.
func (w *world) place(kind string) (string, error) {
	w.n++
	dir := stage + "/" + kind + strconv.Itoa(w.n)
	return dir, unix.Mkdir(dir, 0o755)
}

func (w *world) overlay(o *guest.Overlay) error {
	lowers, closers, err := w.lowers(o.Layers)
	defer func() {
		for _, c := range closers {
			unix.Close(c)
		}
	}()
	if err != nil {
		return err
	}
	upper, err := w.place("upper")
	if err != nil {
		return err
	}
	work, err := w.place("work")
	if err != nil {
		return err
	}
	for _, name := range o.Hide {
		if err := hide(upper, name); err != nil {
			return fmt.Errorf("hide %s: %w", name, err)
		}
	}
	for name, text := range w.b.Contents {
		if rel, ok := strings.CutPrefix(name, o.Path+"/"); ok {
			if err := writeNew(upper+"/"+rel, text); err != nil {
				return err
			}
		}
	}
	target := root + o.Path
	if err := w.mkdirAll(o.Path); err != nil {
		return err
	}
	opts := "lowerdir=" + strings.Join(lowers, ":") + ",upperdir=" + upper + ",workdir=" + work + ",userxattr"
	err = unix.Mount("overlay", target, "overlay", private, opts)
	if errors.Is(err, unix.EINVAL) && o.Fallback {
		w.notes = append(w.notes, o.Path+": read-only, since other file systems are mounted below it on the host")
		return bindTree(lowers[len(lowers)-1], target)
	}
	return err
}

// lowers are overlay options for layers. A path goes through a descriptor, since options can't hold every name.
func (w *world) lowers(layers []guest.Layer) (names []string, fds []int, err error) {
	for _, l := range layers {
		if l.File {
			at, err := w.attach()
			if err != nil {
				return nil, fds, err
			}
			names = append(names, at)
			continue
		}
		fd, err := unix.Open(l.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fds, fmt.Errorf("open %s: %w", l.Path, err)
		}
		fds = append(fds, fd)
		names = append(names, "/proc/self/fd/"+strconv.Itoa(fd))
	}
	return names, fds, nil
}

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
	return unix.Setxattr(path.Join(upper, name), "user.overlay.opaque", []byte("y"), 0)
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

// folders makes the skeleton around the overlays, and the links that the host has in its root.
func (w *world) folders() error {
	for _, name := range w.b.Dirs {
		if err := w.mkdirAll(name); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		name string
		mode uint32
	}{{"/root", 0o700}, {"/tmp", 0o1777}, {"/var/tmp", 0o1777}, {"/run/lock", 0o1777}} {
		if err := w.mkdirAll(d.name); err != nil {
			return err
		}
		if err := unix.Chmod(root+d.name, d.mode); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.b.Links)) {
		if err := w.mkdirAll(path.Dir(name)); err != nil {
			return err
		}
		if err := unix.Symlink(w.b.Links[name], root+name); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

// mkdirAll makes a folder of the root with its parents.
func (w *world) mkdirAll(name string) error {
	if name == "/" || w.made[name] {
		return nil
	}
	if err := w.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	w.made[name] = true
	return mkdirs(root, name)
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

func (w *world) bind(b *guest.Bind) error {
	target := root + b.Target
	if err := w.mkdirAll(path.Dir(b.Target)); err != nil {
		return err
	}
	if b.Dir {
		if err := w.mkdirAll(b.Target); err != nil {
			return err
		}
	} else if err := writeNew(target, ""); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if !b.File {
		return bindTree(b.Path, target)
	}
	f := w.rides.take()
	if f == nil {
		return errors.New("its mount is missing")
	}
	defer f.Close()
	return unix.MoveMount(int(f.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// bindTree shows source read-only at target, with what is mounted below it.
func bindTree(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, attr)
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
