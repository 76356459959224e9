//go:build integration && linux

package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Minbase is a tar of a Debian root that debootstrap made, kept between runs. Only root can make it.
func Minbase(ctx context.Context) (string, error) {
	return Kept("agentenv-test-minbase-bookworm.tar", func(dir, file string) error {
		root := filepath.Join(dir, "root")
		if err := command(ctx, "debootstrap", "--variant=minbase", "bookworm", root); err != nil {
			return err
		}
		return command(ctx, "tar", "-C", root, "--numeric-owner", "--xattrs", "--xattrs-include=*", "-cf", file, ".")
	})
}

// deskScript makes a Minbase root in the working folder, whose tar is its first argument, one that desktops run in, and packs it as its second argument. What
// nobody reads there is left out.
const deskScript = `
mkdir root
tar -C root --numeric-owner -xf "$1"
cat /etc/resolv.conf > root/etc/resolv.conf
printf 'path-exclude=/usr/share/%s/*\n' doc man locale info > root/etc/dpkg/dpkg.cfg.d/excludes
chroot root sh -ec 'apt-get update -q; apt-get install -q -y --no-install-recommends xvfb openbox python3-tk' 
rm -rf root/var/lib/apt/lists/* root/var/cache/apt/*
echo 'of the image' > root/etc/agentenv-root
tar -C root --numeric-owner --exclude='./dev/*' -cf "$2" .
`

// Desk is a tar of a Debian root with what a desktop needs: an X server, a window manager, Python and Tk. Its /etc/agentenv-root says "of the image".
func Desk(ctx context.Context) (string, error) {
	base, err := Minbase(ctx)
	if err != nil {
		return "", err
	}
	return Kept("agentenv-test-desk-bookworm.tar", func(dir, file string) error {
		cmd := exec.CommandContext(ctx, "sh", "-ec", deskScript, "sh", base, file)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		return said(cmd)
	})
}

// Kept is a file of the machine's temporary folder that is made unless root made it in the last 30 days, once for tests that want it at one time. make
// has a folder of its own that is removed.
func Kept(name string, make func(dir, file string) error) (string, error) {
	file := filepath.Join(os.TempDir(), name)
	lock, err := os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("wait for %s: %w", name, err)
	}
	const most = 30 * 24 * time.Hour
	if info, err := os.Stat(file); err == nil && info.Sys().(*syscall.Stat_t).Uid == 0 && time.Since(info.ModTime()) < most {
		return file, nil
	}
	dir, err := os.MkdirTemp("", "agentenv-test-kept-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := make(dir, file+".new"); err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
	}
	if err := os.Chmod(file+".new", 0o644); err != nil {
		return "", err
	}
	return file, os.Rename(file+".new", file)
}

func command(ctx context.Context, name string, args ...string) error {
	return said(exec.CommandContext(ctx, name, args...))
}

// said runs a command; its error holds the end of what it said.
func said(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd.Args[0], err, out[max(0, len(out)-2000):])
	}
	return nil
}
