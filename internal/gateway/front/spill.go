package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/rawjson"
)

// shown is how much of a spilled result's head, and of its tail, an agent is shown.
const shown = 4 << 10

// spill hands a result that is too large for an agent to whoever keeps such things, and leaves its head, tail, size and handle. Pictures and sounds that
// were held in memory stay: agents look at them.
func (g *Gateway) spill(ctx context.Context, role string, out *outcome) error {
	size := out.result.Len()
	if g.o.Spill == nil || out.own || size <= g.o.SpillAbove || media(out.result.Memory()) {
		return nil
	}
	r := io.NewSectionReader(out.result, 0, size)
	handle, err := g.o.Spill(ctx, r, "application/json")
	if err != nil {
		return fmt.Errorf("keep a large result: %w", err)
	}
	how := ""
	if g.o.Kept != nil {
		how = "; the tool " + readResult + " reads parts of it, and " + resultsPath + handle + " at the environment's address is all of it"
		if g.kept.add(role, handle) {
			g.rebuild()
			g.sessions.listChanged()
		}
	}
	text := fmt.Sprintf("The result has %d bytes, which is too much to show; all of it is kept as %s%s. It begins:\n%s\n\n[…]\n\nIt ends:\n%s",
		size, handle, how, part(out.result, 0), part(out.result, size-shown))
	isError := flag(out.result)
	b := rawjson.AppendString([]byte(`{"content":[{"type":"text","text":`), text)
	b = rawjson.AppendString(append(b, `}],"_meta":{"agentenv.io/spilled":{"handle":`...), handle)
	b = fmt.Appendf(b, `,"bytes":%d}},"isError":%v}`, size, isError)
	out.result = child.Bytes(b)
	return nil
}

// part is a piece of a value, cut between characters.
func part(v child.Value, from int64) string {
	from = max(from, 0)
	b := make([]byte, min(shown, v.Len()-from))
	if n, err := v.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
		b = b[:n]
	}
	for len(b) > 0 && from > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return string(whole(b, false))
}

// media tells whether a result holds what isn't read but looked at or listened to.
func media(result []byte) bool {
	for item := range rawjson.Elements(rawjson.Get(result, "content")) {
		if kind, _ := rawjson.Text(rawjson.Get(item, "type")); kind == "image" || kind == "audio" {
			return true
		}
	}
	return false
}

// flag is the isError of a result of any size.
func flag(v child.Value) bool {
	if mem := v.Memory(); mem != nil {
		return string(rawjson.Get(mem, "isError")) == "true"
	}
	f := rawjson.NewFinder("isError")
	if _, err := v.WriteTo(f); err != nil {
		return false
	}
	span, ok := f.Span("isError")
	if !ok || span.Len() != 4 {
		return false
	}
	var b [4]byte
	_, err := v.ReadAt(b[:], span.From)
	return (err == nil || errors.Is(err, io.EOF)) && string(b[:]) == "true"
}
