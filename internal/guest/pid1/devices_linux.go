package pid1

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// devices makes a /dev of the few nodes that every program expects, bound from the host's, and a terminal file system of its own.
func (w *world) devices() error {
	const dev = stage + "/dev"
	if err := mkdirs("", dev); err != nil {
		return err
	}
	// A mount of its own: its files are none that the box wrote.
	if err := unix.Mount(dev, dev, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /dev: %w", err)
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := writeNew(dev+"/"+name, ""); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, dev+"/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /dev/%s: %w", name, err)
		}
	}
	if err := mkdirs(dev, "/pts", "/shm"); err != nil {
		return err
	}
	if err := unix.Chmod(dev+"/shm", 0o1777); err != nil {
		return err
	}
	if err := unix.Mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := unix.Symlink(target, dev+"/"+name); err != nil {
			return fmt.Errorf("link /dev/%s: %w", name, err)
		}
	}
	if err := moveTo(dev, "/dev"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	return nil
}

// Parts of /proc that tell of the host or reach its kernel, and PID 1's own: the first are read-only, the others appear empty.
var (
	procReadOnly = []string{"1", "sys", "sysrq-trigger", "irq", "bus", "fs"}
	procMasked   = []string{"kcore", "keys", "timer_list", "kallsyms", "kmsg", "latency_stats", "sched_debug", "acpi", "scsi", "asound", "interrupts"}
)

// proc mounts the box's own process file system.
func (w *world) proc() error {
	const dir = stage + "/proc"
	if err := mkdirs("", dir); err != nil {
		return err
	}
	if err := unix.Mount("proc", dir, "proc", private|unix.MS_NOEXEC, ""); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("mount /proc: %w: the host's own /proc is covered in part, as in a container; "+
				"start that container with an unmasked /proc (docker run --security-opt systempaths=unconfined)", err)
		}
		return fmt.Errorf("mount /proc: %w", err)
	}
	// No user namespaces inside: they would hand out capabilities that commands don't have.
	if err := writeOver(dir+"/sys/user/max_user_namespaces", "0"); err != nil {
		w.notes = append(w.notes, "user namespaces inside are stopped by the system call filter alone: "+err.Error())
	}
	for _, name := range procReadOnly {
		at := dir + "/" + name
		if err := unix.Mount(at, at, "", unix.MS_BIND, ""); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return fmt.Errorf("protect /proc/%s: %w", name, err)
		}
		attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, at, 0, attr); err != nil {
			return fmt.Errorf("protect /proc/%s: %w", name, err)
		}
	}
	for _, name := range procMasked {
		if err := mask(dir + "/" + name); err != nil {
			return fmt.Errorf("mask /proc/%s: %w", name, err)
		}
	}
	if err := moveTo(dir, "/proc"); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// mask covers a file by /dev/null and a folder by an empty one. What isn't there needs no cover.
func mask(name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.Mount("none", name, "tmpfs", unix.MS_RDONLY|private, "size=0,nr_inodes=2")
	}
	return unix.Mount("/dev/null", name, "", unix.MS_BIND, "")
}

func writeOver(name, text string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}
