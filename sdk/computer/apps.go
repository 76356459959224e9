package computer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// App is a program on the desktop with a server of its own.
type App struct {
	Name   string   `json:"name"`
	Socket string   `json:"socket"` // Unix socket that the server answers at
	Paths  []string `json:"paths"`  // of its data, relative to the home
}

const (
	appPrefix  = "/svc/"
	appTime    = 5 * time.Second // for an app's card
	maxAppCard = 8 << 20
)

// ParseApps reads the value of AppsVariable, a JSON list; "" is none. It tells everything that is wrong.
func ParseApps(text string) ([]App, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var apps []App
	if err := readVariable(AppsVariable, text, &apps); err != nil {
		return nil, err
	}
	if err := CheckApps(apps); err != nil {
		return nil, fmt.Errorf("%s: %w", AppsVariable, err)
	}
	return apps, nil
}

// CheckApps tells everything that is wrong with apps of one computer: names, and data of two apps in one place.
func CheckApps(apps []App) error {
	var errs []error
	owner := map[string]string{} // of paths
	names := map[string]bool{}
	for i, a := range apps {
		switch {
		case !wire.IsAppName(a.Name):
			errs = append(errs, fmt.Errorf("[%d]: %q can't be the name of an app: lower-case letters, digits, - and _, at most 63", i, a.Name))
		case names[a.Name]:
			errs = append(errs, fmt.Errorf("two apps are named %s", a.Name))
		}
		names[a.Name] = true
		if a.Socket == "" {
			errs = append(errs, fmt.Errorf("%s: its socket is missing", a.Name))
		}
		for _, p := range a.Paths {
			if err := wire.CheckPath(p); err != nil {
				errs = append(errs, fmt.Errorf("%s: paths: %q: %w", a.Name, p, err))
			}
			for other, of := range owner {
				if wire.Overlap(p, other) {
					errs = append(errs, fmt.Errorf("%s: paths: %s overlaps with %s of %s", a.Name, p, other, of))
				}
			}
			owner[p] = a.Name
		}
	}
	return errors.Join(errs...)
}

// front is an app as the driver reaches it.
type front struct {
	App
	wait      time.Duration // for the card
	transport *http.Transport
	proxy     *httputil.ReverseProxy
}

func newFront(a App) *front {
	f := &front{App: a, wait: appTime, transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Socket)
		},
		DisableCompression: true, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
	}}
	f.proxy = &httputil.ReverseProxy{
		Transport: f.transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "app", "localhost"
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it came
			rest := strings.TrimPrefix(r.In.URL.EscapedPath(), appPrefix+a.Name)
			r.Out.URL.Path, r.Out.URL.RawPath = unescaped(rest), rest
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, http.StatusBadGateway, "Proxy request failed: "+err.Error())
		},
	}
	return f
}

func unescaped(p string) string {
	if s, err := url.PathUnescape(p); err == nil {
		return s
	}
	return p
}

func refuse(w http.ResponseWriter, status int, text string) {
	b, _ := json.Marshal(map[string]string{"error": text}) // texts always encode
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that left needs no answer
}

func (c *Computer) addApps() {
	if len(c.apps) == 0 {
		return
	}
	c.env.OnChildren(c.children)
	c.env.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rest, ok := strings.CutPrefix(r.URL.EscapedPath(), appPrefix)
			if !ok {
				next.ServeHTTP(w, r)
				return
			}
			name, _, slash := strings.Cut(rest, "/")
			i := slices.IndexFunc(c.apps, func(f *front) bool { return f.Name == name })
			if i < 0 || !slash {
				refuse(w, http.StatusNotFound, "Unknown service: "+unescaped(name))
				return
			}
			c.apps[i].proxy.ServeHTTP(w, r)
		})
	})
}

// appPaths are the places that apps own.
func (c *Computer) appPaths() []string {
	var out []string
	for _, a := range c.apps {
		out = append(out, a.Paths...)
	}
	return out
}

// eachCard asks all apps for their cards at the same time.
func (c *Computer) eachCard(ctx context.Context) ([]wire.Card, []error) {
	cards, errs := make([]wire.Card, len(c.apps)), make([]error, len(c.apps))
	var all sync.WaitGroup
	for i, a := range c.apps {
		all.Go(func() { cards[i], errs[i] = a.card(ctx) })
	}
	all.Wait()
	return cards, errs
}

// children are the cards of the apps that answer, rooted at where the driver serves them.
func (c *Computer) children(ctx context.Context) []wire.Card {
	cards, errs := c.eachCard(ctx)
	out := []wire.Card{}
	for i, a := range c.apps {
		err := errs[i]
		var rooted wire.Card
		if err == nil {
			rooted, err = root(cards[i], appPrefix+a.Name)
		}
		if err != nil {
			c.log.WarnContext(ctx, "an app is left out of the card", slog.String("app", a.Name), slog.Any("error", err))
			continue
		}
		out = append(out, rooted)
	}
	return out
}

// appChecks tell of each app whether it answers.
func (c *Computer) appChecks(ctx context.Context) []Check {
	cards, errs := c.eachCard(ctx)
	var out []Check
	for i, a := range c.apps {
		k := Check{"app:" + a.Name, errs[i] == nil, ""}
		if k.OK {
			k.Detail = "answers as " + cards[i].Name
		} else {
			k.Detail = errs[i].Error()
		}
		out = append(out, k)
	}
	return out
}

func (f *front) card(ctx context.Context) (wire.Card, error) {
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://app"+wire.CardPath, nil)
	if err != nil {
		return wire.Card{}, err
	}
	r.Host = "localhost"
	resp, err := f.transport.RoundTrip(r)
	if err != nil {
		return wire.Card{}, fmt.Errorf("ask the app for its card: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAppCard))
	if err != nil {
		return wire.Card{}, fmt.Errorf("ask the app for its card: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return wire.Card{}, fmt.Errorf("ask the app for its card: it answered %d", resp.StatusCode)
	}
	card, err := wire.ParseCard(b)
	if err == nil && card.Name != f.Name { // else one app could stand for another
		err = fmt.Errorf("what answers there is named %q", card.Name)
	}
	return card, err
}

// root puts a prefix before all paths of a card.
func root(c wire.Card, prefix string) (wire.Card, error) {
	mcp := c.MCP()
	hasMCP := slices.ContainsFunc(c.Interfaces, func(i wire.Interface) bool { return strings.EqualFold(i.Transport, wire.TransportMCP) })
	var errs []error
	below := func(p string) string {
		p = "/" + strings.TrimPrefix(p, "/")
		if path.Clean(unescaped(p)) != unescaped(p) { // it would lead out of the app
			errs = append(errs, fmt.Errorf("its card names the path %q", p))
		}
		return prefix + p
	}
	c.URL, c.Children, c.Interfaces = below(c.URL), nil, []wire.Interface{}
	if hasMCP {
		c.Interfaces = append(c.Interfaces, wire.Interface{URL: below(mcp), Transport: wire.TransportMCP})
	}
	exts := slices.Clone(c.Capabilities.Extensions)
	for i := range exts {
		if exts[i].Params == nil {
			continue
		}
		p, err := wire.ParseParams(exts[i].Params)
		if err != nil {
			return c, err
		}
		if p.Endpoint != "" {
			p.Endpoint = below(p.Endpoint)
		}
		for j := range p.Methods {
			if p.Methods[j].Endpoint != "" {
				p.Methods[j].Endpoint = below(p.Methods[j].Endpoint)
			}
		}
		if exts[i].Params, err = json.Marshal(p); err != nil {
			return c, err
		}
	}
	c.Capabilities.Extensions = exts
	return c, errors.Join(errs...)
}
