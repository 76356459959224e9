package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// ComputerBoot is the check of computers: the gate that their drivers and apps pass once they are deployed.
const ComputerBoot = "computer_boot"

// computerTools are those of every computer, pointerTools and keyboardTools of those that declare the group.
var (
	computerTools = []string{"computer_screenshot", "computer_click", "computer_drag", "computer_scroll", "computer_type", "computer_key", "computer_wait"}
	pointerTools  = []string{"computer_pointer_move", "computer_pointer_down", "computer_pointer_up", "computer_pointer_position", "computer_pointer_list"}
	keyboardTools = []string{"computer_keyboard_down", "computer_keyboard_up"}
)

// CheckComputer looks at a computer as agents will: its tools, what its screen is like, what it refuses, and asks the computer and each app that can be
// exported for its data, once. No input is sent, so the desktop stays as it is. An environment that is no computer has no rows.
func CheckComputer(ctx context.Context, v *deploy.Env) ([]step.Row, error) {
	name, ok := v.Computer()
	if !ok {
		return nil, nil
	}
	p := probe{v: v, name: name}
	for _, c := range []struct {
		criterion string
		check     func(context.Context) error
	}{
		{"the tools of a computer are there, and those of the groups that its card declares", p.tools},
		{"a screenshot is a picture of the size that the screen says", p.screenshot},
		{"a part of it has the size that was asked for", p.part},
		{"what can't be done is refused with its code, before anything is sent", p.refusals},
		{"commands end as they end, with what they write", p.commands},
	} {
		err := p.limited(ctx, c.check)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p.add(name, c.criterion, err)
	}
	for _, app := range v.Exporting() {
		err := v.Probe(ctx, app)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p.add(app, "its data can be exported", err)
	}
	return p.rows, nil
}

// BootComputer is CheckComputer, and keeps what it finds with the version of the environment that is deployed.
func BootComputer(ctx context.Context, v *deploy.Env, s store.Store) ([]step.Row, error) {
	rows, err := CheckComputer(ctx, v)
	if err != nil || rows == nil {
		return rows, err
	}
	raw, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	b := envstore.ValidatedBoot{Passed: Verification("", rows).Score == 1, At: time.Now().UTC().Truncate(time.Second), Rows: raw}
	return rows, envstore.KeepBoot(ctx, s, v.ID, v.Version, b)
}

// probe asks one computer.
type probe struct {
	v    *deploy.Env
	name string
	rows []step.Row
}

// errNotDeclared: what a check is about isn't declared, so there is nothing to check.
var errNotDeclared = errors.New("the card doesn't declare it")

func (p *probe) add(environment, criterion string, err error) {
	switch {
	case errors.Is(err, errNotDeclared):
		p.rows = append(p.rows, skipped(environment, criterion, err.Error()))
	case err != nil:
		p.rows = append(p.rows, outcome(environment, criterion, err.Error()))
	default:
		p.rows = append(p.rows, outcome(environment, criterion, ""))
	}
}

func (p *probe) limited(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("it was not answered within %s", callLimit))
	defer cancel()
	return check(ctx)
}

func (p *probe) tools(ctx context.Context) error {
	card, err := p.v.Gateway.Card(ctx)
	if err != nil {
		return err
	}
	declared := func(uri string) bool {
		return slices.ContainsFunc(card.Children, func(c wire.Card) bool { return c.Name == p.name && c.Extension(uri) != nil })
	}
	if !declared(wire.URNComputer) {
		return fmt.Errorf("the driver's card doesn't declare %s", wire.URNComputer)
	}
	var names []string
	for _, raw := range p.v.Gateway.Tools(access.Principal{Owner: true}) {
		var t struct{ Name string }
		if err := json.Unmarshal(raw, &t); err != nil {
			return fmt.Errorf("a tool can't be read: %w", err)
		}
		names = append(names, t.Name)
	}
	var faults []string
	look := func(group []string, want bool) {
		for _, t := range group {
			if slices.Contains(names, t) != want {
				faults = append(faults, map[bool]string{true: t + " is missing", false: t + " is there, and its group isn't declared"}[want])
			}
		}
	}
	look(computerTools, true)
	look(pointerTools, declared(wire.URNComputerPointer))
	look(keyboardTools, declared(wire.URNComputerKeyboard))
	if faults != nil {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// answered is what the checks read of a tool's result.
type answered struct {
	Content []struct {
		Type, Text, MimeType string
		Data                 []byte
	}
	Structured struct {
		Frame         string `json:"frame_id"`
		Parent        string `json:"parent_frame_id"`
		Width, Height int
		Display       display `json:"display"`
		Code          string  `json:"code"`
		Applied       string  `json:"applied"`
	} `json:"structuredContent"`
	IsError bool
}

type display struct {
	Width, Height int
	Scale         float64
}

func (p *probe) call(ctx context.Context, tool string, args map[string]any) (answered, error) {
	var out answered
	raw, err := json.Marshal(args)
	if err != nil {
		return out, err
	}
	if raw, err = p.v.Gateway.CallTool(ctx, access.Principal{Owner: true}, tool, raw); err != nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("the result of %s can't be read: %w", tool, err)
	}
	return out, nil
}

// picture calls computer_screenshot and answers the size of its picture, which must be that of the frame.
func (p *probe) picture(ctx context.Context, args map[string]any) (answered, error) {
	out, err := p.call(ctx, "computer_screenshot", args)
	if err != nil {
		return out, err
	}
	if out.IsError {
		return out, fmt.Errorf("computer_screenshot fails: %s", toldBy(out))
	}
	for _, c := range out.Content {
		if c.Type != "image" {
			continue
		}
		cfg, err := png.DecodeConfig(bytes.NewReader(c.Data))
		switch {
		case c.MimeType != "image/png" || err != nil:
			return out, fmt.Errorf("the picture is no PNG: %s %w", diag.Clean(c.MimeType), err)
		case cfg.Width != out.Structured.Width || cfg.Height != out.Structured.Height:
			return out, fmt.Errorf("the picture is %d×%d, and the frame says %d×%d", cfg.Width, cfg.Height, out.Structured.Width, out.Structured.Height)
		}
		return out, nil
	}
	return out, errors.New("computer_screenshot answers no picture")
}

func toldBy(a answered) string {
	for _, c := range a.Content {
		if c.Text != "" {
			return diag.Clean(c.Text)
		}
	}
	return "it says nothing"
}

func (p *probe) screenshot(ctx context.Context) error {
	a, err := p.picture(ctx, map[string]any{})
	if err != nil {
		return err
	}
	d := a.Structured.Display
	if w, h := int(float64(d.Width)*d.Scale+0.5), int(float64(d.Height)*d.Scale+0.5); w != a.Structured.Width || h != a.Structured.Height { //nolint:mnd // rounded
		return fmt.Errorf("the frame is %d×%d, and the screen %d×%d at a scale of %g", a.Structured.Width, a.Structured.Height, d.Width, d.Height, d.Scale)
	}
	return nil
}

const partSide = 8 // pixels of the part of a screen that is looked at

func (p *probe) part(ctx context.Context) error {
	whole, err := p.picture(ctx, map[string]any{})
	if err != nil {
		return err
	}
	a, err := p.picture(ctx, map[string]any{"frame_id": whole.Structured.Frame, "region": []int{1, 1, 1 + partSide, 1 + partSide}})
	switch {
	case err != nil:
		return err
	case a.Structured.Width != partSide || a.Structured.Height != partSide:
		return fmt.Errorf("a part of %d×%d has %d×%d", partSide, partSide, a.Structured.Width, a.Structured.Height)
	case a.Structured.Parent != whole.Structured.Frame:
		return fmt.Errorf("the part of %s says that it is one of %s", diag.Repr(whole.Structured.Frame), diag.Repr(a.Structured.Parent))
	}
	return nil
}

func (p *probe) refusals(ctx context.Context) error {
	whole, err := p.picture(ctx, map[string]any{})
	if err != nil {
		return err
	}
	var faults []string
	for _, c := range []struct {
		tool string
		args map[string]any
		code string
	}{
		{"computer_click", map[string]any{"x": whole.Structured.Width, "y": 0, "frame_id": whole.Structured.Frame}, "out_of_bounds"},
		{"computer_click", map[string]any{"x": 0, "y": 0, "frame_id": "f999999999"}, "stale_frame"},
		{"computer_key", map[string]any{"keys": []string{"ctrl", "s"}}, "invalid_argument"},
		{"computer_type", map[string]any{"text": "\x1b"}, "invalid_argument"},
	} {
		a, err := p.call(ctx, c.tool, c.args)
		if err != nil {
			return err
		}
		if !a.IsError || a.Structured.Code != c.code || a.Structured.Applied != "no" {
			args, _ := json.Marshal(c.args) // texts and numbers always encode
			faults = append(faults, fmt.Sprintf("%s %s must be refused with %s and applied no, not %s and %s", c.tool, args, c.code, diag.Repr(a.Structured.Code), diag.Repr(a.Structured.Applied)))
		}
	}
	if faults != nil {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

func (p *probe) commands(ctx context.Context) error {
	raw, err := p.v.Extend(ctx, p.name, wire.URNComputerExec, "run", json.RawMessage(`{"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"], "request_id": "agentenv-boot"}`))
	if errors.Is(err, deploy.ErrNotAdvertised) {
		return errNotDeclared
	}
	if err != nil {
		return err
	}
	var r struct {
		Code *int   `json:"exit_code"`
		Out  string `json:"stdout"`
		Err  string `json:"stderr"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("its answer can't be read: %w", err)
	}
	if r.Code == nil || *r.Code != 3 || r.Out != "out\n" || r.Err != "err\n" {
		return fmt.Errorf("a command that ends with 3 and writes to both streams is answered by %s", diag.Clean(string(raw)))
	}
	return nil
}
