package pid1

import (
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// diskEvery is how often a disk that is a folder of the host is measured, at least; it takes no more than a twentieth of the time.
const diskEvery = time.Second

// diskFile is what a file takes on the disk at least, so that a limit on bytes is one on files too.
const diskFile = 512

// openDisk is a descriptor of the folder that is the box's disk; nil where the disk holds its limit by itself.
func openDisk(b *guest.Boot) (*os.File, error) {
	if b.DiskDir == "" {
		return nil, nil
	}
	fd, err := unix.Open(b.DiskDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's disk: %w", err)
	}
	// No single file grows past the limit between two looks.
	if err := lowerLimit(unix.RLIMIT_FSIZE, uint64(b.Disk)); err != nil {
		return nil, fmt.Errorf("limit files: %w", err)
	}
	return os.NewFile(uintptr(fd), b.DiskDir), nil
}

// watchDisk calls over once what is below dir takes more than limit.
func watchDisk(dir *os.File, limit int64, over func()) {
	for {
		begin := time.Now()
		if used := diskUsage(int(dir.Fd()), limit); used > limit {
			over()
			return
		}
		time.Sleep(max(diskEvery, 20*time.Since(begin)))
	}
}

// diskUsage sums what is below a folder, hard links each time, and stops soon after limit. Folders that can't be read, as their owner may
// make them, count as full: nothing is to hide in them. PID 1 reads folders of every mode, but for those of other ids.
func diskUsage(dir int, limit int64) int64 {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return math.MaxInt64
	}
	f := os.NewFile(uintptr(fd), "disk")
	defer f.Close()
	var sum int64
	for {
		names, err := f.Readdirnames(512)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // gone meanwhile
			}
			sum += diskFile + st.Blocks*512
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				sum += below(fd, name, limit-sum)
			}
			if sum > limit || sum < 0 {
				return math.MaxInt64
			}
		}
		if err != nil || len(names) == 0 {
			return sum
		}
	}
}

func below(dir int, name string, limit int64) int64 {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0 // gone meanwhile
	}
	defer unix.Close(fd)
	return diskUsage(fd, limit)
}

// littleRoom is when a disk counts as full: file systems fail somewhat before their last block is taken.
const littleRoom = 256 << 10

// diskFull tells whether the file system that the box writes to has no room.
func diskFull() bool {
	var st unix.Statfs_t
	if unix.Statfs("/", &st) != nil || st.Blocks == 0 {
		return false
	}
	return int64(st.Bavail)*st.Bsize < littleRoom || st.Files > 0 && st.Ffree == 0
}
