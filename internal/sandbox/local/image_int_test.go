//go:build integration

package local_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

// minbaseVar is the path of a tar of a Debian root, for the runs of other users.
const minbaseVar = "LOCAL_TEST_MINBASE"

// missing ends a test that lacks something: a failure where everything has to be there.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("REQUIRE") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// minbase is a tar of a Debian root that debootstrap made, kept between runs.
func minbase(t *testing.T) string {
	t.Helper()
	if file := os.Getenv(minbaseVar); file != "" {
		return file
	}
	if os.Geteuid() != 0 {
		t.Skip("root's run hands the tar on")
	}
	file, err := sandboxtest.Minbase(t.Context())
	if err != nil {
		missing(t, "%v", err)
	}
	return file
}

// asRoot runs a script as the box's root and answers what it says.
func asRoot(t *testing.T, box guest.Box, script string) string {
	t.Helper()
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", script}, User: "root"}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Exit.OK() {
		t.Fatalf("%s: %+v\n%s%s", script, r.Exit, r.Stdout.String(), r.Stderr.String())
	}
	return r.Stdout.String()
}

// A Debian root is what its package manager expects: dpkg and apt install, owners and setuid bits are right, users can be added.
func TestDebian(t *testing.T) {
	file := minbase(t)
	p := openImages(t)
	begin := time.Now()
	info, box := create(t, p, sandbox.Spec{Tied: true, Image: file})
	t.Logf("pull and start %s", time.Since(begin).Round(time.Millisecond))
	one := false
	for _, probe := range info.Isolation.Probes {
		one = one || strings.Contains(probe.Detail, "has one user id")
	}
	asRoot(t, box, "cd /var/cache/apt/archives && dpkg -i passwd_*.deb && apt-get check && apt-get install -y --reinstall ./tzdata_*.deb && useradd -m joe && test -d /home/joe")
	stat := asRoot(t, box, "chown 1000:42 /etc/motd; stat -c '%u:%g %a' /etc/motd /usr/bin/passwd /etc/shadow /usr/bin/expiry /home/joe /var/mail /tmp")
	want := "1000:42 644\n0:0 4755\n0:42 640\n0:42 2755\n1000:1000 755\n0:8 2775\n0:0 1777\n"
	if one {
		want = "0:0 644\n0:0 4755\n0:0 640\n0:0 2755\n0:0 755\n0:0 2775\n0:0 1777\n"
	}
	if stat != want {
		t.Errorf("%q, want %q", stat, want)
	}
	if !one {
		r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "id -un; cat /etc/shadow || echo refused"}, User: "joe"}, guest.Limits{})
		if err != nil || r.Stdout.String() != "joe\nrefused\n" {
			t.Errorf("%q, %v", r.Stdout.String(), err)
		}
	}
	for _, again := range []string{"second", "third"} {
		begin := time.Now()
		_, other := create(t, p, sandbox.Spec{Tied: true, Image: file})
		asRoot(t, other, "true")
		t.Logf("%s start to the end of its first command %s", again, time.Since(begin).Round(100*time.Microsecond))
		if got := asRoot(t, other, "id joe 2>/dev/null || echo nobody"); got != "nobody\n" {
			t.Errorf("%s box: %q", again, got)
		}
	}
}

// The same as a user with one id, and as one with a range of them.
func TestDebianAsUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root becomes others")
	}
	file := minbase(t)
	owner, err := rangeOwner()
	if err != nil {
		missing(t, "%v", err)
	}
	program := filepath.Join(os.TempDir(), fmt.Sprintf("agentenv-test-%d.program", os.Getpid()))
	copyFile(t, "/proc/self/exe", program)
	t.Cleanup(func() { os.Remove(program) })
	for name, id := range map[string]int{"one id": testUser, "a range of ids": owner} {
		home := filepath.Join(os.TempDir(), fmt.Sprintf("agentenv-test-%d", id))
		if err := os.MkdirAll(home, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(home, id, id); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestDebian$", "-test.v", "-test.timeout=300s")
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/local/bin:/usr/bin:/bin", "REQUIRE=1", minbaseVar + "=" + file}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("with %s: %v\n%s", name, err, out)
		}
		t.Logf("with %s:\n%s", name, out)
	}
}

// rangeOwner is a user that /etc/subuid gives ids.
func rangeOwner() (int, error) {
	f, err := os.Open("/etc/subuid")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		name, _, _ := strings.Cut(s.Text(), ":")
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		if id, err := strconv.Atoi(u.Uid); err == nil && id != 0 {
			return id, nil
		}
	}
	return 0, fmt.Errorf("/etc/subuid gives no user ids: useradd makes one with a range")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	r, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
