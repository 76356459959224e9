// Package gateway is the command that runs a gateway alone, in front of servers that somebody else started.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/redact"
)

type options struct {
	secretFile, stateFile string
	open                  bool
	roles                 []string
	json                  *bool
}

// address is what --json prints before the gateway serves.
type address struct {
	verb.Format
	URL      string            `json:"url"`
	AgentURL map[string]string `json:"agent_urls"` // by role
}

// New is the command.
func New(p *verb.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Serve environments that run already behind one MCP endpoint and one card",
		Long: `Serves the environment servers that the variables name behind one endpoint, until it is stopped. It starts no server and opens no store.

  INTERNAL_MCP_SERVERS      name=http://host:port/mcp, comma-separated; a name alone is http://<name>:18765/mcp
  REST_PROXY_URLS           mcp-<name>=URL of a server's base, <website>=URL of a website's backend
  WEBSITE_URLS              <website>=URL of its pages
  MCP_HOST, MCP_PORT        where to listen: 127.0.0.1 and 18765
  MCP_SERVER_NAME           the name that clients are told: env
  GATEWAY_MODE              performance, or consistent: one tool call at a time
  GATEWAY_TRAJECTORY_FILE   the record of calls, JSON lines
  GATEWAY_INTERNAL_SERVER_TIMEOUT_S  after how long to tell of servers that don't answer: 180
  INTERNAL_MCP_PORT         of servers that are named without a URL

Whoever knows the URL that is printed controls the environments: it holds a secret. Give agents the URL of a role of their own (--agent).`,
		Example: "  INTERNAL_MCP_SERVERS=echo=http://127.0.0.1:9000/mcp agent-env gateway --agent solver",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), p, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.secretFile, "secret-file", "", "take the secret of the owner's URL from a `FILE`, not from chance")
	f.StringVar(&o.stateFile, "state-file", "", "keep rules, clock and triggers in a `FILE`, so that they outlive the gateway")
	f.BoolVar(&o.open, "open", false, "serve everybody on this machine, without a secret")
	f.StringArrayVar(&o.roles, "agent", nil, "print a URL for an agent in this `ROLE`, which controls nothing; repeatable")
	o.json = verb.JSONFlag(cmd, "print where it serves as one JSON object")
	return cmd
}

func run(ctx context.Context, p *verb.Program, o options) error {
	s, err := read(p.Env)
	if err != nil {
		return verb.Usagef("%w", err)
	}
	if err := checkRoles(o.roles); err != nil {
		return err
	}
	secret, err := ownerSecret(o)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(s.host); o.open && s.host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return verb.Usagef("--open serves this machine alone: MCP_HOST must be 127.0.0.1, not %s", s.host)
	}
	for _, v := range s.unused {
		p.Streams.Problem("Warning: %s is not used: a gateway that runs alone reads no log of changes", v)
	}
	s.Log, s.Version, s.StateFile, s.Redact = p.Logger(), app.Version, o.stateFile, new(redact.Redactor)
	s.Redact.Add(secret)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(s.host, strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("listen where MCP_HOST and MCP_PORT say: %w", err)
	}
	g, err := front.New(ctx, s.Options)
	if err != nil {
		l.Close()
		return err
	}
	handler, at := doors(p, g, o, secret, s.Redact, "http://"+l.Addr().String())
	if err := tell(p, o, at); err != nil {
		return errors.Join(err, l.Close(), g.Close())
	}
	return errors.Join(serve(ctx, p, g, s, l, handler), g.Close())
}

func checkRoles(roles []string) error {
	for _, role := range roles {
		if err := access.CheckRole(role); err != nil {
			return verb.Usagef("--agent: %w", err)
		}
	}
	return nil
}

// ownerSecret is that of the owner's URL; "" with --open.
func ownerSecret(o options) (string, error) {
	if o.open {
		if o.secretFile != "" {
			return "", verb.Usagef("--open and --secret-file exclude each other")
		}
		return "", nil
	}
	if o.secretFile == "" {
		return front.NewSecret(), nil
	}
	b, err := os.ReadFile(o.secretFile)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	secret := strings.TrimSpace(string(b))
	if err := front.CheckSecret(secret); err != nil {
		return "", fmt.Errorf("%s: %w", o.secretFile, err)
	}
	return secret, nil
}

// doors are the handler of everything, and the URLs that lead to it.
func doors(p *verb.Program, g *front.Gateway, o options, secret string, r *redact.Redactor, url string) (http.Handler, address) {
	at := address{verb.V1(), url, map[string]string{}}
	owner := g.Door(access.Principal{Owner: true})
	all := map[string]http.Handler{}
	if !o.open {
		all[secret] = owner
		at.URL += front.SecretPrefix + secret
	} else {
		p.Streams.Problem("Warning: everybody on this machine controls these environments: there is no secret")
	}
	for _, role := range o.roles {
		s := front.NewSecret()
		r.Add(s)
		all[s] = g.Door(access.Principal{Role: role})
		at.AgentURL[role] = url + front.SecretPrefix + s
	}
	outside := front.Outside(all)
	if !o.open {
		return outside, at
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, front.SecretPrefix) {
			outside.ServeHTTP(w, r)
			return
		}
		owner.ServeHTTP(w, r)
	}), at
}

// tell prints where the gateway serves.
func tell(p *verb.Program, o options, at address) error {
	if *o.json {
		return p.Streams.JSON(at)
	}
	p.Streams.Printf("%s\n", at.URL)
	for _, role := range o.roles {
		p.Streams.Printf("%s %s\n", at.AgentURL[role], role)
	}
	return nil
}

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 3 * time.Second
)

// serve serves until ctx ends, and tells once whether the servers answer.
func serve(ctx context.Context, p *verb.Program, g *front.Gateway, s settings, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
	ready, stopReady := context.WithTimeout(ctx, s.wait)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	told := make(chan struct{})
	go func() {
		defer close(told)
		if err := g.Ready(ready); err != nil && errors.Is(ready.Err(), context.DeadlineExceeded) {
			p.Streams.Problem("Warning: %v", err)
		} else if err == nil {
			if len(s.Children) == 1 {
				p.Streams.Note("The server answers.")
			} else {
				p.Streams.Note("All %d servers answer.", len(s.Children))
			}
		}
	}()
	defer func() {
		stopReady()
		<-told
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := srv.Shutdown(undo); err != nil {
		_ = srv.Close() // calls that are still under way end with the gateway
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
