package front

import (
	"context"
	"slices"
	"time"
	_ "time/tzdata" // get_time knows the world's zones on every machine

	"agentenv.internal/agentenv/internal/gateway/clock"
	"agentenv.internal/agentenv/internal/gateway/tools"
	"agentenv.internal/agentenv/internal/rawjson"
)

// Names of the gateway's own tools.
const (
	getTime      = "get_time"
	listWebsites = "list_website_urls"
)

// ownTools are those that the gateway serves itself now.
type ownTools struct {
	tools    []*ownTool
	reserved []string
}

type ownTool struct {
	name        string
	entry, step []byte
	// call gives a CallToolResult to a role.
	call func(ctx context.Context, role string, args []byte) []byte
}

func (o *ownTools) get(name string) *ownTool {
	for _, t := range o.tools {
		if t.name == name {
			return t
		}
	}
	return nil
}

// hideTaken leaves a name to the server that has it: get_time isn't reserved.
func (o *ownTools) hideTaken(set *tools.Set) {
	o.tools = slices.DeleteFunc(o.tools, func(t *ownTool) bool { return set.Get(t.name) != nil })
}

func (g *Gateway) makeOwn() *ownTools {
	o := &ownTools{}
	if g.websites() != nil {
		o.reserved = append(o.reserved, listWebsites)
		o.tools = append(o.tools, own(listWebsites, "Lists the URLs of the websites of this environment, to be opened in a browser.",
			`{"type":"object","properties":{},"additionalProperties":false}`, func(context.Context, string, []byte) []byte { return g.websiteList() }))
	}
	if _, armed := g.clock.Now(); armed {
		o.tools = append(o.tools, own(getTime, getTimeText, getTimeSchema, g.tellTime))
	}
	if g.o.Kept != nil && g.kept.any() {
		o.tools = append(o.tools, own(readResult, readResultText, readResultSchema, g.page))
	}
	return o
}

const (
	getTimeText = "Tells the date and time of this environment. Take every date and time that you pass to other tools, and words such as today or " +
		"this week, from here: the clock of the machine that you run on is a different one. current_time is in UTC, as the other tools expect. Time " +
		"goes on while you work, so ask again before you write. With time_zone, the answer also holds local_time, the same moment there."
	getTimeSchema = `{"type":"object","properties":{"time_zone":{"type":"string","description":"An IANA time zone, such as Europe/Paris."}},"additionalProperties":false}`
)

func own(name, description, schema string, call func(context.Context, string, []byte) []byte) *ownTool {
	t := &ownTool{name: name, call: call}
	head := rawjson.AppendString(append(rawjson.AppendString([]byte(`{"name":`), name), `,"description":`...), description)
	t.step = append(append(append(slices.Clone(head), `,"parameters":`...), schema...), '}')
	t.entry = append(append(append(head, `,"inputSchema":`...), schema...), `,"annotations":{"readOnlyHint":true}}`...)
	return t
}

// structured is a result that holds an object both ways.
func structured(object []byte) []byte {
	b := rawjson.AppendString([]byte(`{"content":[{"type":"text","text":`), string(object))
	return append(append(append(b, `}],"structuredContent":`...), object...), `,"isError":false}`...)
}

func refused(text string) []byte {
	return append(rawjson.AppendString([]byte(`{"content":[{"type":"text","text":`), text), `}],"isError":true}`...)
}

// tellTime answers get_time.
func (g *Gateway) tellTime(_ context.Context, _ string, args []byte) []byte {
	now, armed := g.clock.Now()
	if !armed {
		return refused("the time is not available")
	}
	now = now.Truncate(time.Second)
	b := rawjson.AppendString([]byte(`{"current_time":`), clock.Format(now))
	zone := rawjson.Get(args, "time_zone")
	if rawjson.IsNull(zone) {
		return structured(append(b, '}'))
	}
	name, _ := rawjson.Text(zone)
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return refused("there is no time zone " + string(zone) + ": name one of the IANA time zones, such as Europe/Paris")
	}
	b = rawjson.AppendString(append(b, `,"time_zone":`...), name)
	b = rawjson.AppendString(append(b, `,"local_time":`...), now.In(loc).Format("2006-01-02T15:04:05-07:00"))
	return structured(append(b, '}'))
}

// websites are the children with pages; nil for none.
func (g *Gateway) websites() []*backing {
	var out []*backing
	for _, b := range g.children {
		if b.Frontend != "" {
			out = append(out, b)
		}
	}
	return out
}

// websiteList is a result with a text for each URL.
func (g *Gateway) websiteList() []byte {
	content, list := []byte(`{"content":[`), []byte(`],"structuredContent":{"result":[`)
	for i, b := range g.websites() {
		if i > 0 {
			content, list = append(content, ','), append(list, ',')
		}
		content = append(rawjson.AppendString(append(content, `{"type":"text","text":`...), b.Frontend), '}')
		list = rawjson.AppendString(list, b.Frontend)
	}
	return append(append(content, list...), `]},"isError":false}`...)
}
