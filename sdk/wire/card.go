package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Card says what an environment is and serves. All its URLs are paths relative to where the card was fetched.
// Optional members that are absent are written as null.
type Card struct {
	Name               string
	ProtocolVersion    string
	URL                string // of the data plane
	PreferredTransport string
	Interfaces         []Interface  // additionalInterfaces; nil is null
	Capabilities       Capabilities // null reads as the zero value
	Children           []Card       // children_environments; nil is null, as of an environment that has none, empty is []
	Extra              []Member
}

// Interface is another way to reach an environment.
type Interface struct {
	URL       string
	Transport string
	Extra     []Member
}

// Capabilities is what an environment offers.
type Capabilities struct {
	Extensions []Extension
	Tools      []Tool
	// Operations is the served methods of the data plane; nil is null: an old card, of which all three are assumed. Empty is none.
	Operations []string
	Extra      []Member
}

// Extension is an offer beside tools and data.
type Extension struct {
	URI         string
	Description string
	Params      json.RawMessage // an object, or nil for null; see Methods
	Required    *bool
	Extra       []Member
}

// Tool is the advertisement of a tool; it is called over MCP.
type Tool struct {
	Name        string
	Description string
	InputSchema json.RawMessage
	Extra       []Member
}

// ParseCard reads a card and checks that what callers need is there. It is what a client uses; the gateway rewrites what it answers.
func ParseCard(b []byte) (Card, error) {
	var c Card
	if err := c.UnmarshalJSON(b); err != nil {
		return Card{}, fmt.Errorf("read an environment's card: %w", err)
	}
	if missing := c.Missing(); len(missing) > 0 {
		return Card{}, fmt.Errorf("read an environment's card: it lacks %s", strings.Join(missing, ", "))
	}
	return c, nil
}

// Missing is the names of required members that are empty. capabilities isn't among them: null stands for none.
func (c *Card) Missing() []string {
	var out []string
	for _, f := range []struct{ name, value string }{{"name", c.Name}, {"protocolVersion", c.ProtocolVersion}, {"url", c.URL}, {"preferredTransport", c.PreferredTransport}} {
		if f.value == "" {
			out = append(out, f.name)
		}
	}
	return out
}

// Serves tells whether a method of the data plane is served, as far as the card says.
func (c *Card) Serves(method string) bool {
	return c.Capabilities.Operations == nil || slices.Contains(c.Capabilities.Operations, method)
}

// MCP is the path of the environment's MCP endpoint.
func (c *Card) MCP() string {
	for _, i := range c.Interfaces {
		if strings.EqualFold(i.Transport, TransportMCP) && i.URL != "" {
			return i.URL
		}
	}
	return MCPPath
}

// Extension finds an extension by its URI; nil when the card has none.
func (c *Card) Extension(uri string) *Extension {
	for i := range c.Capabilities.Extensions {
		if c.Capabilities.Extensions[i].URI == uri {
			return &c.Capabilities.Extensions[i]
		}
	}
	return nil
}

// maxDepth is how many cards deep children may be: reading and writing cost their size once per level.
const maxDepth = 8

// UnmarshalJSON reads a card, null for absent.
func (c *Card) UnmarshalJSON(b []byte) error { return c.read(b, maxDepth) }

func (c *Card) read(b []byte, depth int) error {
	if depth == 0 {
		return fmt.Errorf("children are more than %d deep", maxDepth)
	}
	ms, err := parseObject(b)
	if err != nil {
		return err
	}
	*c = Card{}
	for _, m := range ms {
		switch m.name {
		case "name":
			err = readInto(m.value, &c.Name)
		case "protocolVersion":
			err = readInto(m.value, &c.ProtocolVersion)
		case "url":
			err = readInto(m.value, &c.URL)
		case "preferredTransport":
			err = readInto(m.value, &c.PreferredTransport)
		case "additionalInterfaces":
			c.Interfaces, err = readList[Interface](m.value)
		case "capabilities":
			err = readInto(m.value, &c.Capabilities)
		case "children_environments":
			c.Children, err = readChildren(m.value, depth-1)
		default:
			c.Extra = append(c.Extra, Member{m.name, m.value})
		}
		if err != nil {
			return at(m.name, err)
		}
	}
	return nil
}

func readChildren(raw json.RawMessage, depth int) ([]Card, error) {
	raws, err := readList[json.RawMessage](raw)
	if raws == nil || err != nil {
		return nil, err
	}
	out := make([]Card, len(raws))
	for i, r := range raws {
		if err := out[i].read(r, depth); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return out, nil
}

// MarshalJSON writes a card, null for absent.
func (c Card) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("name", c.Name)
	w.put("protocolVersion", c.ProtocolVersion)
	w.put("url", c.URL)
	w.put("preferredTransport", c.PreferredTransport)
	w.put("additionalInterfaces", c.Interfaces)
	w.put("capabilities", c.Capabilities)
	w.put("children_environments", c.Children)
	w.extra(c.Extra)
	return w.bytes()
}

// UnmarshalJSON reads an interface.
func (i *Interface) UnmarshalJSON(b []byte) error {
	ms, err := parseObject(b)
	if err != nil {
		return err
	}
	*i = Interface{}
	for _, m := range ms {
		switch m.name {
		case "url":
			err = readInto(m.value, &i.URL)
		case "transport":
			err = readInto(m.value, &i.Transport)
		default:
			i.Extra = append(i.Extra, Member{m.name, m.value})
		}
		if err != nil {
			return at(m.name, err)
		}
	}
	return nil
}

// MarshalJSON writes an interface.
func (i Interface) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("url", i.URL)
	w.put("transport", i.Transport)
	w.extra(i.Extra)
	return w.bytes()
}

// UnmarshalJSON reads capabilities.
func (c *Capabilities) UnmarshalJSON(b []byte) error {
	ms, err := parseObject(b)
	if err != nil {
		return err
	}
	*c = Capabilities{}
	for _, m := range ms {
		switch m.name {
		case "extensions":
			c.Extensions, err = readList[Extension](m.value)
		case "tools":
			c.Tools, err = readList[Tool](m.value)
		case "operations":
			c.Operations, err = readList[string](m.value)
		default:
			c.Extra = append(c.Extra, Member{m.name, m.value})
		}
		if err != nil {
			return at(m.name, err)
		}
	}
	return nil
}

// MarshalJSON writes capabilities, null for absent.
func (c Capabilities) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("extensions", c.Extensions)
	w.put("tools", c.Tools)
	w.put("operations", c.Operations)
	w.extra(c.Extra)
	return w.bytes()
}

// UnmarshalJSON reads an extension; its URI must not be empty.
func (e *Extension) UnmarshalJSON(b []byte) error {
	ms, err := parseObject(b)
	if err != nil {
		return err
	}
	*e = Extension{}
	for _, m := range ms {
		switch m.name {
		case "uri":
			err = readInto(m.value, &e.URI)
		case "description":
			err = readInto(m.value, &e.Description)
		case "params":
			if !isNull(m.value) {
				if e.Params = m.value; m.value[0] != '{' {
					err = errors.New("want a JSON object")
				}
			}
		case "required":
			err = readInto(m.value, &e.Required)
		default:
			e.Extra = append(e.Extra, Member{m.name, m.value})
		}
		if err != nil {
			return at(m.name, err)
		}
	}
	if e.URI == "" {
		return errors.New("an extension without uri")
	}
	return nil
}

// MarshalJSON writes an extension, null for absent.
func (e Extension) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("uri", e.URI)
	w.putOr("description", e.Description)
	w.put("params", e.Params)
	w.put("required", e.Required)
	w.extra(e.Extra)
	return w.bytes()
}

// UnmarshalJSON reads a tool; its name must not be empty.
func (t *Tool) UnmarshalJSON(b []byte) error {
	ms, err := parseObject(b)
	if err != nil {
		return err
	}
	*t = Tool{}
	for _, m := range ms {
		switch m.name {
		case "name":
			err = readInto(m.value, &t.Name)
		case "description":
			err = readInto(m.value, &t.Description)
		case "inputSchema":
			if !isNull(m.value) {
				t.InputSchema = m.value
			}
		default:
			t.Extra = append(t.Extra, Member{m.name, m.value})
		}
		if err != nil {
			return at(m.name, err)
		}
	}
	if t.Name == "" {
		return errors.New("a tool without name")
	}
	return nil
}

// MarshalJSON writes a tool, null for absent.
func (t Tool) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("name", t.Name)
	w.putOr("description", t.Description)
	w.put("inputSchema", t.InputSchema)
	w.extra(t.Extra)
	return w.bytes()
}
