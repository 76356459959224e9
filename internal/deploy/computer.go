package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sleep"
	"agentenv.internal/agentenv/sdk/wire"
)

// desktopNeeds are what a desktop needs of the system that it runs in; the packages are Debian's.
var desktopNeeds = [...]appdir.Need{{Find: []string{"Xvfb"}, Package: "xvfb"}, {Find: []string{"openbox"}, Package: "openbox"}}

// lacking are the packages that this machine lacks of what a computer and its apps need, each once, sorted.
func (m *maker) lacking(c *envstore.Computer) []string {
	var out []string
	for _, n := range slices.Concat(desktopNeeds[:], c.Needs) {
		if !n.Met(m.options.LookPath, filepath.Glob) {
			out = append(out, n.Package)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// computerWay is how a provider would run a computer: in its image, or among this machine's own programs, which only local boxes see.
func (m *maker) computerWay(w way, engine sandbox.Builder, builds bool, p envstore.Part) (way, error) {
	w.process, w.spec.Self = true, true
	root := p.Computer.Root
	switch {
	case !p.Computer.HasRoot():
		if w.provider != localProvider {
			return w, unsupported("computer %q names no image, and runs among this machine's programs on local sandboxes alone: give it an image", p.Name)
		}
		if packages := m.lacking(p.Computer); packages != nil {
			return w, unsupported("computer %q needs what this machine lacks: install %s (on Debian: apt-get install %s), or give the computer an image that has it",
				p.Name, strings.Join(packages, ", "), strings.Join(packages, " "))
		}
		return w, nil
	case root.Reference != "":
		w.spec.Image = root.Reference
		if builds {
			p.Source = root
			return w, w.byReference(engine, p)
		}
		return w, nil
	case builds:
		w.engine, w.spec.Image = engine, toBeBuilt
		return w, nil
	default:
		return w, unsupported("computer %q has a Dockerfile, which only a container engine builds: name a built image, or leave it out to use this machine's programs", p.Name)
	}
}

// readyPause is between looks at whether a desktop is ready.
const readyPause = 25 * time.Millisecond

// composed is the card of a computer as it was when the computer got ready, with a child for each app that its driver stands in front of.
type composed struct{ card wire.Card }

// app is the card of an app; nil for a name that no app has.
func (c *composed) app(name string) *wire.Card {
	for i := range c.card.Children {
		if c.card.Children[i].Name == name {
			return &c.card.Children[i]
		}
	}
	return nil
}

// desktops waits until the computers among the servers say that they are ready, and keeps the cards that they have then.
func (v *Env) desktops(ctx context.Context) error {
	var errs []error
	for _, s := range v.Servers {
		if s.computer == nil {
			continue
		}
		if err := s.desktop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("computer %s: %w", diag.Repr(s.Name), err))
		}
	}
	return errors.Join(errs...)
}

func (s *Server) desktop(ctx context.Context) error {
	t := s.transport()
	defer t.CloseIdleConnections()
	card, err := s.card(ctx, t)
	if err != nil {
		return err
	}
	status, err := operationOf(&card, wire.URNComputerReady, "status")
	if err != nil {
		return fmt.Errorf("its driver can't tell when it is ready: %w", err)
	}
	var last error // before the time was up
	for {
		open, err := s.unready(ctx, t, status)
		if err == nil && open == nil {
			break
		}
		if err == nil {
			err = fmt.Errorf("the desktop isn't ready: %s", strings.Join(open, "; "))
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if sleep.For(ctx, readyPause) != nil {
			return last
		}
	}
	if card, err = s.card(ctx, t); err != nil { // an app is on it once it answers
		return err
	}
	c := &composed{card}
	var missing []string
	for _, app := range s.computer.Apps {
		if c.app(app) == nil {
			missing = append(missing, diag.Repr(app))
		}
	}
	if missing != nil {
		return fmt.Errorf("the driver's card doesn't list the apps %s: they aren't served under these names, or the driver stands in front of none", strings.Join(missing, ", "))
	}
	s.composed = c
	return nil
}

// unready are the checks of a desktop that don't hold yet; nil when it is ready.
func (s *Server) unready(ctx context.Context, t *Way, status wire.Call) ([]string, error) {
	at := s.at(status)
	b, err := exchange(ctx, t, status.Verb, at.String(), nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Ready  bool `json:"ready"`
		Checks []struct {
			Name   string `json:"name"`
			OK     bool   `json:"ok"`
			Detail string `json:"detail"`
		} `json:"checks"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("what it says of being ready can't be read: %w", err)
	}
	if answer.Ready {
		return nil, nil
	}
	open := []string{}
	for _, c := range answer.Checks {
		if !c.OK {
			open = append(open, c.Name+": "+c.Detail)
		}
	}
	return open, nil
}

// holder has the data of an environment: a server, or an app that a computer's driver stands in front of.
type holder struct {
	server *Server
	app    *wire.Card // nil: the server itself
}

// DataNames are the environment names that have data here: those of the servers, each computer's before those of its apps.
func (v *Env) DataNames() []string {
	out := v.Names()
	for _, s := range v.Servers {
		if s.composed == nil {
			continue
		}
		for _, c := range s.composed.card.Children {
			if !slices.Contains(out, c.Name) { // a name shared with its computer means the computer
				out = append(out, c.Name)
			}
		}
	}
	return out
}

// holder finds an environment by its name; false when there is none.
func (v *Env) holder(name string) (holder, bool) {
	if s := v.server(name); s != nil {
		return holder{server: s}, true
	}
	for _, s := range v.Servers {
		if s.composed == nil {
			continue
		}
		if c := s.composed.app(name); c != nil {
			return holder{s, c}, true
		}
	}
	return holder{}, false
}

// root is the path of its server that an environment's own paths are below; "" for a server's.
func (p holder) root() string {
	if p.app == nil {
		return ""
	}
	return "/svc/" + p.app.Name
}

// card is what an app, or a computer, said of itself when the computer got ready; nil for other servers.
func (p holder) card() *wire.Card {
	if p.app == nil && p.server.composed != nil {
		return &p.server.composed.card
	}
	return p.app
}

// serves tells whether an environment serves a method of the data plane; what isn't known counts as served.
func (p holder) serves(method string) bool {
	card := p.card()
	return card == nil || card.Serves(method)
}

// takesTree tells whether an environment says that it is given data as a tree of files.
func (p holder) takesTree() bool {
	card := p.card()
	if card == nil {
		return false
	}
	type intake struct {
		Format string `json:"format"`
	}
	var params struct {
		Add []intake `json:"add"`
	}
	x := card.Extension(wire.URNIntake)
	return x != nil && json.Unmarshal(x.Params, &params) == nil && slices.ContainsFunc(params.Add, func(a intake) bool { return a.Format == "file-tree" })
}

const (
	// appStop is how long an app may take to end before it is killed, and answerMargin what an answer may take besides.
	appStop      = 10 * time.Second
	answerMargin = 30 * time.Second
	appTimeout   = 300 * time.Second // of an app that says nothing of it
	maxAppTime   = 24 * time.Hour    // of one that says whatever it likes
)

// limit is how long a data call of an app may take; 0 for a server.
func (p holder) limit() time.Duration {
	if p.app == nil {
		return 0
	}
	var params struct {
		Timeout float64 `json:"data_timeout_s"`
	}
	d := appTimeout
	if x := p.app.Extension(wire.URNComputerApp); x != nil && json.Unmarshal(x.Params, &params) == nil && params.Timeout > 0 {
		d = time.Duration(min(params.Timeout, maxAppTime.Seconds()) * float64(time.Second))
	}
	return d + answerMargin + appStop
}

// data calls a method of an environment's data plane.
func (v *Env) data(ctx context.Context, name, method string, params json.RawMessage) (json.RawMessage, error) {
	p, ok := v.holder(name)
	if !ok || p.app == nil {
		return v.Gateway.Data(ctx, name, method, params)
	}
	return v.Gateway.DataAt(ctx, p.server.Name, p.app.URL, method, params)
}
