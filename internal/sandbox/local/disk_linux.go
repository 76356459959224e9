package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// A box's disk is memory up to memoryDiskMB and half of the machine's memory. A larger one is on the host's disk: as root a sparse file
// with a file system of its own, which nothing names, so that the kernel takes it back with the box's last mount; else a folder, whose
// size PID 1 watches.

// memoryDiskMB is the largest disk that is kept in memory.
const memoryDiskMB = 4096

// The ways to hold a disk.
const (
	diskMemory = "tmpfs"
	diskImage  = "loop"
	diskFolder = "watchdog"
)

// disk is what a box writes to.
type disk struct {
	how  string
	size int64    // bytes
	file *os.File // diskImage: the mount, for PID 1
	dir  string   // diskFolder
}

func (d *disk) String() string { return d.how + " " + strconv.FormatInt(d.size>>20, 10) + " MB" }

// memoryDisk is how many bytes of disk a box may have in memory.
func (o *Options) memoryDisk() int64 {
	most := cmp.Or(o.memoryDiskMB, memoryDiskMB) << 20
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return most
	}
	return min(int64(si.Totalram)*int64(si.Unit)/2, most)
}

// newDisk makes a disk of mb. userns is the box's, -1 where ids aren't mapped. What can't be had on the disk is had in memory, as far as
// that goes.
func (m *making) newDisk(ctx context.Context, mb int64, userns int) (*disk, error) {
	size := int64(math.MaxInt64)
	if mb <= math.MaxInt64>>20 {
		size = mb << 20
	}
	most := m.p.opts.memoryDisk()
	switch {
	case size <= most:
		return &disk{how: diskMemory, size: size}, nil
	case m.p.host.idmaps():
		f, err := m.diskImage(ctx, size, userns)
		if errors.Is(err, errNoImage) {
			return &disk{how: diskMemory, size: most}, nil
		}
		return &disk{how: diskImage, size: size, file: f}, err
	case !m.p.host.wide && m.ids() == nil: // what a range of ids leaves there, only that range could remove
		dir := m.slot.path + diskSuffix
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the sandbox's disk: %w", err)
		}
		return &disk{how: diskFolder, size: size, dir: dir}, nil
	}
	return &disk{how: diskMemory, size: most}, nil
}

// tell puts the disk into the boot message. Its mount joins the rides.
func (d *disk) tell(b *guest.Boot, r *rides) {
	b.Disk = d.size
	switch d.how {
	case diskMemory:
		b.Inodes = d.size / 4096
	case diskImage:
		b.DiskMount = true
		r.add(d.file)
	case diskFolder:
		b.DiskDir = d.dir
	}
}

// errNoImage: this host can't make or mount file systems in files.
var errNoImage = errors.New("no file system can be made in a file")

// diskImage makes a file system in a file without a name and answers a mount of it that nobody has attached.
func (m *making) diskImage(ctx context.Context, size int64, userns int) (*os.File, error) {
	mkfs, err := findMkfs()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(filepath.Dir(m.slot.path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: make a file: %w", errNoImage, err)
	}
	image := os.NewFile(uintptr(fd), "disk")
	defer image.Close()
	if err := image.Truncate(size); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoImage, err)
	}
	// No journal: the file system dies with the box. What isn't written yet reads as zeros, so nothing needs to be wiped.
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{image}
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("make the sandbox's file system: %w: %s", err, strings.TrimSpace(string(out)))
	}
	loop, err := attachLoop(image)
	if err != nil {
		return nil, err
	}
	defer loop.Close() // the mount holds it from here on
	return mountImage(loop.Name(), userns)
}

func findMkfs() (string, error) {
	for _, name := range []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} {
		if info, err := os.Stat(name); err == nil && info.Mode()&0o111 != 0 {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: there is no mkfs.ext4", errNoImage)
}

// loopTries is how often another process may take the free loop device first.
const loopTries = 20

// attachLoop makes a file a block device, which goes when its last user does.
func attachLoop(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoImage, err)
	}
	defer control.Close()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("%w: find a loop device: %w", errNoImage, err)
		}
		loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoImage, err)
		}
		c := &unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(c.Info.File_name[:], "agent-env sandbox")
		err = unix.IoctlLoopConfigure(int(loop.Fd()), c)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("%w: attach a loop device: %w", errNoImage, err)
		}
	}
	return nil, fmt.Errorf("%w: all loop devices are taken", errNoImage)
}

// mountImage mounts a device's file system for a user namespace, attached nowhere.
func mountImage(device string, userns int) (*os.File, error) {
	fsfd, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoImage, err)
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigSetString(fsfd, "source", device); err != nil {
		return nil, fmt.Errorf("mount the sandbox's disk: %w", err)
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return nil, fmt.Errorf("mount the sandbox's disk: %w", err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, fmt.Errorf("mount the sandbox's disk: %w", err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns)}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: map the ids of the sandbox's disk: %w", errNoImage, err)
	}
	return os.NewFile(uintptr(fd), "disk"), nil
}

// diskSuffix is that of a box's folder of diskFolder.
const diskSuffix = ".disk"

// removeDisk removes a box's folder, whatever modes its commands gave to what is in it.
func removeDisk(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	// Folders that their owner may not read or change keep what is in them from being removed.
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700) // the removal tells what is wrong
		}
		return nil
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
