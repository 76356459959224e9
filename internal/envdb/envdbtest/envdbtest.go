// Package envdbtest starts PostgreSQL servers for tests, from the programs of this machine, on a socket in a folder of the test's.
package envdbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Password is the superuser's.
const Password = "superuser-s3cr3t"

// Start starts a server that is gone at the test's end, and answers its URL and its log's path. Where there is no PostgreSQL the test is skipped, and
// fails where REQUIRE is set.
func Start(t testing.TB) (url, log string) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("there is no PostgreSQL in /usr/lib/postgresql")
		}
		t.Skip("there is no PostgreSQL in /usr/lib/postgresql")
	}
	slices.Sort(found)
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "agentenv-pg-") //nolint:usetesting // sockets have short names, and another user's server has to get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pwfile := filepath.Join(dir, "pw")
	if err := os.WriteFile(pwfile, []byte(Password), 0o644); err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 { // it refuses to be root
		attr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // initdb ends with the thread that began it
	defer runtime.UnlockOSThread()
	data, log := filepath.Join(dir, "data"), filepath.Join(dir, "log")
	command := func(name string, args ...string) *exec.Cmd {
		c := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, name), args...)
		c.SysProcAttr, c.Dir, c.Env = attr, dir, []string{"LC_ALL=C.UTF-8", "PATH=" + os.Getenv("PATH")}
		return c
	}
	if out, err := command("initdb", "-D", data, "-U", "admin", "--pwfile", pwfile, "-A", "scram-sha-256", "--no-sync", "-E", "UTF8").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	server := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "log_statement=all", "-c", "max_connections=300")
	server.Stdout, server.Stderr = out, out
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the kernel kills the server when the thread that began it ends
		defer runtime.UnlockOSThread()
		started <- server.Start()
		<-done
	}()
	t.Cleanup(func() { close(done) })
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
	})
	url = fmt.Sprintf("postgresql://admin:%s@/postgres?host=%s", Password, dir)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := pgx.Connect(t.Context(), url)
		if err == nil {
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			return url, log
		}
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(log)
			t.Fatalf("PostgreSQL does not start: %v\n%s", err, b)
		}
	}
}

// Left are the schemas and users of deployments that a server has.
func Left(t testing.TB, url string) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	rows, err := c.Query(ctx, "SELECT 'schema ' || nspname FROM pg_namespace WHERE starts_with(nspname::text, 'ae_') UNION ALL SELECT 'user ' || rolname FROM pg_roles WHERE starts_with(rolname::text, 'ae_') ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, ", ")
}
