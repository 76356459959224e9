package envdb

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a PostgreSQL server that deployments may use.
type Server struct{ config *pgx.ConnConfig }

// Parse reads a server's URL, postgresql://user:password@host:port/database. Nothing is asked of the server. No error repeats the URL.
func Parse(text string) (*Server, error) {
	c, err := pgx.ParseConfig(text)
	if err != nil || !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return nil, errors.New("the database is no URL of a PostgreSQL server: postgresql://user:password@host:port/database")
	}
	c.ConnectTimeout = connectLimit
	return &Server{c}, nil
}

const (
	connectLimit = 10 * time.Second
	// lockLimit is how long a statement waits for a table that a server is using.
	lockLimit = 10 * time.Second
	// BoxAddress is where a server finds its database in its own box.
	BoxAddress = "127.0.0.1:5432"
	// maxName is how much of an environment's name its schema has; names of PostgreSQL have at most 63 bytes.
	maxName = 40
)

// Database is one environment's.
type Database struct {
	schema   string // and the name of its user
	password string
}

// Databases are those of one deployment. Close drops them. Methods may be called from several goroutines.
type Databases struct {
	server *Server
	key    string // of the log's schema, and the beginning of all names
	by     map[string]Database

	mu     sync.Mutex
	conn   *pgx.Conn // holds the deployment's lock
	closed bool
}

// Open makes a schema and a user for each name, whose order and repeats don't count, and drops what deployments of killed processes left.
// Nothing is left behind when it fails.
func (s *Server) Open(ctx context.Context, names []string) (_ *Databases, err error) {
	d := &Databases{server: s, key: "ae_" + strings.ToLower(rand.Text()[:12]), by: map[string]Database{}}
	for _, n := range names {
		if _, ok := d.by[n]; !ok {
			d.by[n] = Database{schema: d.key + "_" + strconv.Itoa(len(d.by)) + "_" + plain(n), password: rand.Text()}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.connect(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make the databases of the environment: %w", said(err)), d.conn.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := sweep(ctx, d.conn); err != nil {
		return nil, err
	}
	if err := pgx.BeginFunc(ctx, d.conn, func(tx pgx.Tx) error { return d.create(ctx, tx) }); err != nil {
		return nil, err
	}
	return d, nil
}

// connect is called with mu held.
func (d *Databases) connect(ctx context.Context) error {
	if d.conn != nil && !d.conn.IsClosed() {
		return nil
	}
	c, err := pgx.ConnectConfig(ctx, d.server.config.Copy())
	if err != nil {
		return fmt.Errorf("reach the configured PostgreSQL server: %w", said(err))
	}
	if _, err = c.Exec(ctx, "SELECT set_config('lock_timeout', $1, false)", strconv.FormatInt(lockLimit.Milliseconds(), 10)); err == nil {
		_, err = c.Exec(ctx, "SELECT pg_advisory_lock_shared("+lockOf("$1")+")", d.key)
	}
	if err != nil {
		return errors.Join(said(err), c.Close(ctx))
	}
	d.conn = c
	return nil
}

// lockOf is the number of a deployment's lock. Who stands holds it shared; who drops takes it alone.
func lockOf(key string) string { return "hashtextextended('agent-env ' || " + key + ", 0)" }

// create makes the schemas. The texts that it builds are of names and passwords made here, quoted all the same.
func (d *Databases) create(ctx context.Context, tx pgx.Tx) error {
	log := quote(d.key)
	do := []string{
		"CREATE SCHEMA " + log,
		"CREATE TABLE " + log + ".changes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, environment text NOT NULL, \"table\" text NOT NULL, operation text NOT NULL, " +
			"before jsonb, after jsonb, changed_at timestamptz NOT NULL DEFAULT clock_timestamp())",
		// One transaction at a time of a deployment writes changes, so that an id that is seen is never followed by a lower one.
		"CREATE FUNCTION " + log + ".note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $body$ BEGIN " +
			"PERFORM pg_advisory_xact_lock(" + lockOf(literal(d.key+" changes")) + "); " +
			"INSERT INTO " + log + ".changes (environment, \"table\", operation, before, after) VALUES (TG_ARGV[0], TG_TABLE_NAME, TG_OP, to_jsonb(OLD), to_jsonb(NEW)); " +
			"RETURN NULL; END $body$",
	}
	for _, b := range d.by {
		name := quote(b.schema)
		verifier, err := scram(b.password)
		if err != nil {
			return err
		}
		do = append(do,
			"CREATE ROLE "+name+" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD "+literal(verifier),
			"GRANT "+name+" TO CURRENT_USER",
			"CREATE SCHEMA "+name+" AUTHORIZATION "+name,
			"ALTER ROLE "+name+" SET search_path = "+name+", public",
		)
	}
	for _, sql := range do {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// URL is the database of an environment as its server reaches it, through a door at BoxAddress of its box. It holds the password.
func (d *Databases) URL(name string) string {
	b := d.by[name]
	u := url.URL{
		Scheme: "postgresql", User: url.UserPassword(b.schema, b.password), Host: BoxAddress, Path: "/" + d.server.config.Database,
		RawQuery: "sslmode=disable&options=" + url.QueryEscape("-csearch_path="+quote(b.schema)+",public"),
	}
	return u.String()
}

// Secrets are the passwords.
func (d *Databases) Secrets() []string {
	var out []string
	for _, b := range d.by {
		out = append(out, b.password)
	}
	return out
}

// Dial connects to the server, for a box that can't reach it. Where the server wants TLS, this end speaks it.
func (d *Databases) Dial(ctx context.Context) (net.Conn, error) {
	c := d.server.config
	network, addr := "tcp", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	if strings.HasPrefix(c.Host, "/") {
		network, addr = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	}
	conn, err := (&net.Dialer{Timeout: connectLimit}).DialContext(ctx, network, addr)
	if err != nil || c.TLSConfig == nil || network == "unix" {
		return conn, err
	}
	var answer [1]byte
	if _, err = conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}); err == nil { // "do you speak TLS?"
		_, err = io.ReadFull(conn, answer[:])
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	if answer[0] != 'S' {
		conn.Close()
		return nil, errors.New("the database's server speaks no TLS")
	}
	return tls.Client(conn, c.TLSConfig), nil
}

// Watch begins the log of changes of an environment anew: what changed before is forgotten, and every table that is there from now on told of.
func (d *Databases) Watch(ctx context.Context, name string) error {
	b, ok := d.by[name]
	if !ok {
		return nil
	}
	return d.with(ctx, func(c *pgx.Conn) error {
		rows, err := c.Query(ctx, "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1", b.schema)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			for _, t := range tables {
				on := " ON " + quote(b.schema) + "." + quote(t)
				if _, err := tx.Exec(ctx, "DROP TRIGGER IF EXISTS agentenv_changes"+on); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, "CREATE TRIGGER agentenv_changes AFTER INSERT OR UPDATE OR DELETE"+on+" FOR EACH ROW EXECUTE FUNCTION "+quote(d.key)+".note("+literal(name)+")"); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, "DELETE FROM "+quote(d.key)+".changes WHERE environment = $1", name)
			return err
		})
	})
}

// Last is the id of the last change; 0 for none.
func (d *Databases) Last(ctx context.Context) (id int64, err error) {
	err = d.with(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT coalesce(max(id), 0) FROM "+quote(d.key)+".changes").Scan(&id)
	})
	return id, err
}

// After are changes with greater ids, oldest first: objects with id, environment, table, operation, before, after and changed_at.
func (d *Databases) After(ctx context.Context, after int64, limit int) (out []json.RawMessage, err error) {
	err = d.with(ctx, func(c *pgx.Conn) error {
		rows, err := c.Query(ctx, "SELECT row_to_json(x)::text FROM (SELECT * FROM "+quote(d.key)+".changes WHERE id > $1 ORDER BY id LIMIT $2) x", after, limit)
		if err != nil {
			return err
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, t := range texts {
			out = append(out, json.RawMessage(t))
		}
		return err
	})
	return out, err
}

// with gives f the connection, alone.
func (d *Databases) with(ctx context.Context, f func(*pgx.Conn) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	if err := d.connect(ctx); err != nil {
		return err
	}
	return said(f(d.conn))
}

var errClosed = errors.New("the databases of the environment are gone")

// Close ends the sessions of the environments' users and drops all that was made. A second call does nothing when the first has.
func (d *Databases) Close(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if err := d.connect(ctx); err != nil {
		return err
	}
	if err := drop(ctx, d.conn, d.key); err != nil {
		return fmt.Errorf("drop the databases of the environment: %w", said(err))
	}
	d.closed = true
	return d.conn.Close(ctx)
}

// sweep drops what deployments left whose processes are gone.
func sweep(ctx context.Context, c *pgx.Conn) error {
	rows, err := c.Query(ctx, `SELECT nspname FROM pg_namespace WHERE nspname ~ '^ae_[a-z0-9]{12}$'`)
	if err != nil {
		return err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, key := range keys {
		var dead bool
		if err := c.QueryRow(ctx, "SELECT pg_try_advisory_lock("+lockOf("$1")+")", key).Scan(&dead); err != nil {
			return err
		}
		if !dead {
			continue
		}
		if err := drop(ctx, c, key); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, "SELECT pg_advisory_unlock("+lockOf("$1")+")", key); err != nil {
			return err
		}
	}
	return nil
}

// drop removes the schemas and users of a deployment.
func drop(ctx context.Context, c *pgx.Conn, key string) error {
	roles, err := c.Query(ctx, "SELECT rolname FROM pg_roles WHERE starts_with(rolname::text, $1) ORDER BY 1", key+"_")
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(roles, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, n := range names {
		if _, err := c.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", n); err != nil {
			return err
		}
		for _, sql := range []string{"DROP SCHEMA IF EXISTS " + quote(n) + " CASCADE", "DROP OWNED BY " + quote(n) + " CASCADE", "DROP ROLE " + quote(n)} {
			if _, err := c.Exec(ctx, sql); err != nil {
				return err
			}
		}
	}
	_, err = c.Exec(ctx, "DROP SCHEMA IF EXISTS "+quote(key)+" CASCADE") // last: what finds the rest
	return err
}

// plain is what a schema's name has of an environment's.
func plain(name string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(name))
	return out[:min(len(out), maxName)]
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
