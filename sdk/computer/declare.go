package computer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/sdk/wire"
)

// Support is the platforms that a driver is made for, as its card tells them: lists multiply out, and an empty one leaves it open.
type Support struct {
	OS   SupportOS `json:"os"`
	Arch []string  `json:"arch,omitempty"`
}

// SupportOS is the system part of a Support.
type SupportOS struct {
	Type         string   `json:"type"`
	Distribution []string `json:"distribution,omitempty"`
	Version      []string `json:"version,omitempty"`
	Display      []string `json:"display,omitempty"`
}

// Platforms are those that a Support names.
func (s Support) Platforms() []Platform {
	out := []Platform{{OS: s.OS.Type}}
	each := func(values []string, set func(*Platform, string)) {
		if values == nil {
			return
		}
		var more []Platform
		for _, p := range out {
			for _, v := range values {
				set(&p, v)
				more = append(more, p)
			}
		}
		out = more
	}
	each(s.OS.Distribution, func(p *Platform, v string) { p.Distribution = v })
	each(s.OS.Version, func(p *Platform, v string) { p.Version = v })
	each(s.OS.Display, func(p *Platform, v string) { p.Display = v })
	each(s.Arch, func(p *Platform, v string) { p.Arch = v })
	return out
}

// Declaration is what a driver serves on each platform it is made for, as the env that holds the driver records it.
type Declaration struct {
	Name      string             `json:"name"`
	Supports  []Support          `json:"supports"`
	Platforms []DeclaredPlatform `json:"platforms"`
}

// DeclaredPlatform is what a driver serves on one platform.
type DeclaredPlatform struct {
	Platform Platform        `json:"platform"`
	Provides []string        `json:"provides"` // URIs of the card's extensions
	Tools    []string        `json:"tools"`
	Features json.RawMessage `json:"features"` // params of computer/v1
}

// Declare tells what a driver serves without showing a desktop: of it, Features alone is asked. o.Supports names the platforms.
func Declare(ctx context.Context, d Driver, o Options) (Declaration, error) {
	out := Declaration{Supports: o.Supports}
	var platforms []Platform
	for _, s := range o.Supports {
		platforms = append(platforms, s.Platforms()...)
	}
	if platforms == nil {
		return out, errors.New("declare the driver: it names no platform")
	}
	if o.Home == "" {
		o.Home = "/" // of nobody: nothing is read or written
	}
	for _, p := range platforms {
		o.Platform = &p
		one, name, err := declareOn(ctx, d, o)
		if err != nil {
			return out, fmt.Errorf("declare the driver: %w", err)
		}
		out.Name, out.Platforms = name, append(out.Platforms, one)
	}
	return out, nil
}

func declareOn(ctx context.Context, d Driver, o Options) (out DeclaredPlatform, name string, err error) {
	c, err := New(d, o)
	if err != nil {
		return out, "", err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if _, err := c.Handler(); err != nil {
		return out, "", err
	}
	card := c.env.Card()
	out = DeclaredPlatform{Platform: *o.Platform, Provides: []string{}, Tools: []string{}}
	for _, x := range card.Capabilities.Extensions {
		out.Provides = append(out.Provides, x.URI)
		if x.URI == wire.URNComputer {
			out.Features = x.Params
		}
	}
	for _, t := range card.Capabilities.Tools {
		out.Tools = append(out.Tools, t.Name)
	}
	return out, card.Name, nil
}
