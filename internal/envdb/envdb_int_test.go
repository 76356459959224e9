//go:build integration && linux

package envdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/envdb"
	"agentenv.internal/agentenv/internal/envdb/envdbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string, names ...string) *envdb.Databases {
	t.Helper()
	s, err := envdb.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Open(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return d
}

// as connects as the user of an environment, through Dial as a box does.
func as(t *testing.T, d *envdb.Databases, name string) *pgx.Conn {
	t.Helper()
	c, err := pgx.ParseConfig(d.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.Dial(ctx) }
	conn, err := pgx.ConnectConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestDatabases(t *testing.T) {
	url, log := envdbtest.Start(t)
	d := open(t, url, "mail", "cal;endar", "mail")
	mail, cal := as(t, d, "mail"), as(t, d, "cal;endar")
	for _, c := range []*pgx.Conn{mail, cal} {
		exec(t, c, "CREATE TABLE items (id int PRIMARY KEY, name text)")
		exec(t, c, "INSERT INTO items VALUES (1, 'seed')")
	}
	// Nobody reaches another's.
	other := strings.Split(strings.SplitN(d.URL("cal;endar"), "://", 2)[1], ":")[0]
	for _, sql := range []string{`SELECT * FROM "` + other + `".items`, "CREATE ROLE x", "CREATE SCHEMA x", "CREATE TABLE public.x (i int)", `SET ROLE "` + other + `"`, "COPY items TO PROGRAM 'true'"} {
		if _, err := mail.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s is allowed", sql)
		}
	}
	// What is there when the log begins is not in it.
	for _, n := range []string{"mail", "cal;endar"} {
		if err := d.Watch(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if id, err := d.Last(t.Context()); id != 0 || err != nil {
		t.Error(id, err)
	}
	exec(t, mail, "INSERT INTO items VALUES (2, 'new')")
	exec(t, cal, "UPDATE items SET name = 'changed'")
	exec(t, mail, "DELETE FROM items WHERE id = 1")
	last, err := d.Last(t.Context())
	if err != nil || last < 3 {
		t.Error(last, err)
	}
	rows, err := d.After(t.Context(), 0, 10)
	if err != nil || len(rows) != 3 {
		t.Fatal(len(rows), err)
	}
	var row struct {
		ID                            int64
		Environment, Table, Operation string
		Before, After                 *struct{ Name string }
	}
	if err := json.Unmarshal(rows[1], &row); err != nil || row.Environment != "cal;endar" || row.Table != "items" || row.Operation != "UPDATE" || row.Before.Name != "seed" || row.After.Name != "changed" {
		t.Errorf("%s %v", rows[1], err)
	}
	if rows, err = d.After(t.Context(), row.ID, 10); err != nil || len(rows) != 1 {
		t.Error(len(rows), err)
	}
	// A new beginning forgets one environment's alone.
	if err := d.Watch(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	if rows, err = d.After(t.Context(), 0, 10); err != nil || len(rows) != 1 {
		t.Error(len(rows), err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := envdbtest.Left(t, url); left != "" {
		t.Error(left)
	}
	if _, err := d.Last(t.Context()); err == nil {
		t.Error("it answers after its end")
	}
	// The server's log, which has every statement, has no password.
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(d.Secrets(), envdbtest.Password) {
		if strings.Contains(string(b), s) {
			t.Error("the server's log holds a password")
		}
	}
}

// What a killed process left is dropped by the next deployment, and what stands is let be.
func TestSweep(t *testing.T) {
	url, _ := envdbtest.Start(t)
	stands := open(t, url, "mail")
	dead := open(t, url, "mail", "calendar")
	as(t, dead, "mail")
	dead.Abandon()
	again := open(t, url, "calendar")
	// The server takes a moment to see that a connection broke; what is opened then sweeps.
	left := envdbtest.Left(t, url)
	for end := time.Now().Add(10 * time.Second); strings.Count(left, "user ") != 2 && time.Now().Before(end); left = envdbtest.Left(t, url) {
		time.Sleep(50 * time.Millisecond)
		if err := again.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		again = open(t, url, "calendar")
	}
	if strings.Count(left, "user ") != 2 || strings.Count(left, "schema ") != 4 {
		t.Error(left)
	}
	as(t, stands, "mail")
	as(t, again, "calendar")
}

func TestManyAtOnce(t *testing.T) {
	url, _ := envdbtest.Start(t)
	s, err := envdb.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 30)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			d, err := s.Open(t.Context(), []string{"mail", "calendar"})
			if err == nil {
				err = d.Close(t.Context())
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if left := envdbtest.Left(t, url); left != "" {
		t.Error(left)
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	s, err := envdb.Parse("postgresql://u:pw-s3cr3t@127.0.0.1:1/d")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), []string{"x"}); err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
}
