package cli

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/gateway/front"
)

type upOptions struct {
	port      int
	listen    string
	names     []string
	tokenFile string
	takeOver  bool
	json      *bool
}

// consolePort is where people expect the console.
const consolePort = 8234

func newUp(p *verb.Program) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Serve the console: pages, and an HTTP API, for the workspace's git plugins and the computers of this machine",
		Long: `Serves the console of the workspace here until Ctrl-C and prints its address. The part behind # is the token: the page keeps it, and programs send it as
Authorization: Bearer TOKEN. Whoever has it may install plugins and turn them on.

What is installed here is turned on and set up at once, unlike with agent-env plugin install; what comes from a source that nobody vouches for needs consent first, to
everything that it brings. AGENT_ENV_PLUGIN_INSTALL_NO_ENABLE=1 makes the console only fetch.

Agents of workspaces that are started here are served on the loopback, at an address that holds a secret, until they are stopped or the console ends.

Its page Computers shows the screens of the computers that stand on this machine now, deployed by hand or by runs. They are watched and not touched, unless --take-over says
otherwise.

It is served on the loopback alone, unless --listen says otherwise; then the token crosses the network as it is: put a server that speaks TLS before it.`,
		Example: "  agent-env up\n  agent-env up --port 0 --token-file ~/.config/console-token",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return up(cmd.Context(), p, o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.port, "port", consolePort, "the `PORT`; 0 is any")
	f.StringVar(&o.listen, "listen", "127.0.0.1", "the `ADDRESS` of this machine that it is served at")
	f.StringArrayVar(&o.names, "name", nil, "a host `NAME` that people reach it by, where that isn't an address; repeatable")
	f.StringVar(&o.tokenFile, "token-file", "", "take the token from a `FILE`, not from chance: of 22 to 200 letters, digits, - and _")
	f.BoolVar(&o.takeOver, "take-over", false, "let whoever has the token use the mouse and the keyboard of computers, which are only watched otherwise")
	o.json = verb.JSONFlag(cmd, "print where it is served as one JSON object")
	return cmd
}

// consoleAt is what --json prints.
type consoleAt struct {
	verb.Format
	URL   string `json:"url"` // of the page, with the token behind #
	API   string `json:"api_url"`
	Token string `json:"token"`
}

func up(ctx context.Context, p *verb.Program, o upOptions) error {
	if o.port < 0 || o.port > 65535 {
		return verb.Usagef("--port is from 0 to 65535")
	}
	at, err := netip.ParseAddr(o.listen)
	if err != nil {
		return verb.Usagef("--listen takes an address of this machine, such as 127.0.0.1, not %q", o.listen)
	}
	token := front.NewSecret()
	if o.tokenFile != "" {
		if token, err = readToken(o.tokenFile); err != nil {
			return err
		}
	}
	a, err := p.Ready()
	if err != nil {
		return err
	}
	s, err := a.Console(app.ConsoleOptions{Token: token, Names: o.names, TakeOver: o.takeOver, Environ: os.Environ()})
	if err != nil {
		return err
	}
	if !at.Unmap().IsLoopback() {
		p.Streams.Problem("Warning: the console is served to the network at %s, and its token crosses it unencrypted", o.listen)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(o.listen, strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("serve the console: %w; choose another --port, or 0 for any", err)
	}
	base := "http://" + reached(at, o.names, l.Addr()) + "/"
	if err := tellUp(p, consoleAt{verb.V1(), base + "#token=" + token, base + "api/", token}, *o.json); err != nil {
		_ = l.Close()
		return err
	}
	return s.Serve(ctx, l)
}

// reached is where people reach a listener: at a name that was given or, where it listens everywhere, at the loopback.
func reached(at netip.Addr, names []string, l net.Addr) string {
	_, port, err := net.SplitHostPort(l.String())
	switch {
	case err != nil:
		return l.String()
	case len(names) > 0:
		return net.JoinHostPort(names[0], port)
	case at.IsUnspecified():
		return net.JoinHostPort("127.0.0.1", port)
	default:
		return l.String()
	}
}

func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if err := front.CheckSecret(token); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

func tellUp(p *verb.Program, at consoleAt, asJSON bool) error {
	if asJSON {
		return p.Streams.JSON(at)
	}
	p.Streams.Printf("Console: %s\n", at.URL)
	p.Streams.Note("It is served until Ctrl-C.")
	return nil
}
