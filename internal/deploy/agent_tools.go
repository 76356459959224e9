package deploy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/agent/loop"
	"agentenv.internal/agentenv/internal/agent/mcp"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
)

// Names of the built-in agent's own tools.
const (
	toolBash      = "bash"
	toolReadFile  = "read_file"
	toolWriteFile = "write_file"
	toolReadSkill = "read_skill"
)

func boxToolNames() []string { return []string{toolBash, toolReadFile, toolWriteFile} }

// agentTools are what the built-in agent may call: the tools of its environments, through their gateways and in its role, and its own. Commands and files
// are those of its sandbox. They are offered where it has one, was asked to have them, or has no environment.
type agentTools struct {
	agent   *Agent
	envs    []*Env
	servers []toolServer
	skills  []heldSkill
	peers   []*Agent // that it may ask
	asked   []string // built-in tools by name; nil leaves it to the rule above

	asking       *peerTurns
	conversation string // of the prompt

	mu    sync.Mutex
	at    map[string]place // by the name that the model uses; of the last List
	shown bool             // its skills are in its sandbox
}

// toolServer is an MCP server that stands behind no environment.
type toolServer struct {
	name   string
	server mcp.Server
}

// place is where a tool is: in an environment, or at a server.
type place struct {
	env    *Env
	server toolServer
	name   string
}

// listed is an entry of a list of tools.
type listed struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"inputSchema"`
}

// offer is what one environment or server has.
type offer struct {
	title string
	place place
	tools []listed
}

// system is the system prompt with what the agent has to know of its skills.
func (t *agentTools) system(own string) string {
	if len(t.skills) == 0 {
		return own
	}
	var b strings.Builder
	if own != "" {
		b.WriteString(own + "\n\n")
	}
	b.WriteString("You have skills. When a task falls under one, read it with read_skill before you begin.\n")
	for _, s := range t.skills {
		fmt.Fprintf(&b, "- %s: %s\n", s.Name, s.Description)
	}
	return b.String()
}

// List is the tools now. A name that several environments or servers have is that of the environment and the tool's; what still is taken is left out.
func (t *agentTools) List(ctx context.Context) ([]model.Tool, error) {
	offers, err := t.offers(ctx)
	if err != nil {
		return nil, err
	}
	own := t.own()
	taken := map[string]int{}
	for _, o := range offers {
		for _, l := range o.tools {
			taken[l.Name]++
		}
	}
	for _, o := range own {
		taken[o.Name]++
	}
	at := map[string]place{}
	var out []model.Tool
	for _, o := range offers {
		for _, l := range o.tools {
			name := l.Name
			if taken[name] > 1 || name != legal(name) {
				name = legal(o.title + "__" + name)
			}
			if _, twice := at[name]; twice || name == "" {
				continue
			}
			p := o.place
			p.name = l.Name
			at[name] = p
			out = append(out, model.Tool{Name: name, Description: l.Description, Schema: l.Schema})
		}
	}
	t.mu.Lock()
	t.at = at
	t.mu.Unlock()
	return append(out, own...), nil
}

// offers are the tools of every environment and server. A server that is gone offers none: the others go on.
func (t *agentTools) offers(ctx context.Context) ([]offer, error) {
	var out []offer
	for _, v := range t.envs {
		o := offer{title: v.Title, place: place{env: v}}
		for _, raw := range v.Gateway.Tools(t.agent.Principal()) {
			var l listed
			if err := json.Unmarshal(raw, &l); err != nil {
				return nil, fmt.Errorf("a tool of %s can't be read: %w", v.ID, err)
			}
			o.tools = append(o.tools, l)
		}
		out = append(out, o)
	}
	for _, s := range t.servers {
		o := offer{title: s.name, place: place{server: s}}
		raws, err := s.server.Tools(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for _, raw := range raws {
			var l listed
			if err == nil && json.Unmarshal(raw, &l) == nil && len(l.Schema) > 0 {
				o.tools = append(o.tools, l)
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// maxToolName is what models take.
const maxToolName = 64

// legal is a name that every model takes.
func legal(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), maxToolName)]
}

// own are the agent's own tools.
func (t *agentTools) own() []model.Tool {
	schema := func(props string, required ...string) json.RawMessage {
		req, _ := json.Marshal(append([]string{}, required...)) // of strings: it can't fail
		return json.RawMessage(`{"type":"object","properties":{` + props + `},"required":` + string(req) + `,"additionalProperties":false}`)
	}
	var out []model.Tool
	all := map[string]model.Tool{
		toolBash: {
			Name: toolBash, Description: "Run a shell command in your sandbox. Answers its exit code and what it wrote; long output is cut in the middle.",
			Schema: schema(`"command":{"type":"string"},"timeout_seconds":{"type":"number","description":"Default 120, at most 3600."}`, "command"),
		},
		toolReadFile: {Name: toolReadFile, Description: "Read a text file of your sandbox, or look at a picture there.", Schema: schema(`"path":{"type":"string"}`, "path")},
		toolWriteFile: {
			Name: toolWriteFile, Description: "Write a file of your sandbox, in place of one that is there. Folders are made.",
			Schema: schema(`"path":{"type":"string"},"content":{"type":"string"}`, "path", "content"),
		},
	}
	for _, name := range boxToolNames() {
		if slices.Contains(t.asked, name) || t.asked == nil && (len(t.envs) == 0 || t.agent.HasBox()) {
			out = append(out, all[name])
		}
	}
	if len(t.skills) > 0 {
		out = append(out, model.Tool{
			Name: toolReadSkill, Description: "Read a file of one of your skills; SKILL.md is where each begins.",
			Schema: schema(`"skill":{"type":"string"},"path":{"type":"string","description":"Default SKILL.md."}`, "skill"),
		})
	}
	if len(t.peers) > 0 {
		out = append(out, peerTools(schema)...)
	}
	return out
}

// Call makes one call. What a tool refuses is a result; an error is the machinery's.
func (t *agentTools) Call(ctx context.Context, name string, args json.RawMessage) (loop.Result, error) {
	t.mu.Lock()
	p, ok := t.at[name]
	t.mu.Unlock()
	switch {
	case ok && p.env == nil:
		return t.callServer(ctx, p, args)
	case ok:
		return t.callEnv(ctx, p, args)
	}
	var in struct {
		Command string  `json:"command"`
		Timeout float64 `json:"timeout_seconds"`
		Path    string  `json:"path"`
		Content string  `json:"content"`
		Skill   string  `json:"skill"`
		Name    string  `json:"name"`
		Prompt  string  `json:"prompt"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return said("The arguments are not what this tool takes: %v", err), nil
	}
	switch name {
	case toolBash:
		return t.bash(ctx, in.Command, in.Timeout)
	case toolReadFile:
		return t.readFile(ctx, in.Path)
	case toolWriteFile:
		return t.writeFile(ctx, in.Path, in.Content)
	case toolPeers:
		return t.listPeers(), nil
	case toolAskPeer:
		return t.askPeer(ctx, in.Name, in.Prompt)
	default:
		return t.readSkill(in.Skill, in.Path), nil
	}
}

func said(format string, args ...any) loop.Result {
	return loop.Result{Error: true, Parts: []model.Part{{Text: fmt.Sprintf(format, args...)}}}
}

// callEnv calls a tool of an environment. An environment that is gone is a fault of the machinery; every other failure is told to the agent.
func (t *agentTools) callEnv(ctx context.Context, p place, args json.RawMessage) (loop.Result, error) {
	b, err := p.env.Gateway.CallTool(ctx, t.agent.Principal(), p.name, args)
	switch {
	case err == nil:
		return result(b)
	case ctx.Err() != nil:
		return loop.Result{}, context.Cause(ctx)
	case errors.Is(err, child.ErrDown), errors.Is(err, child.ErrLost):
		return loop.Result{}, step.Infra(&step.Error{Type: "EnvironmentError", Err: fmt.Errorf("environment %s: %w", p.env.ID, err)})
	case errors.Is(err, front.ErrUnknownTool), errors.Is(err, front.ErrDisabled):
		return said("The tool %s can't be used now.", p.name), nil
	default:
		return said("%v", err), nil
	}
}

// callServer calls a tool of a server. All that fails is told to the agent, also that the server is gone: it may have others.
func (t *agentTools) callServer(ctx context.Context, p place, args json.RawMessage) (loop.Result, error) {
	b, err := p.server.server.Call(ctx, p.name, args)
	switch {
	case err == nil:
		return result(b)
	case ctx.Err() != nil:
		return loop.Result{}, context.Cause(ctx)
	case errors.Is(err, mcp.ErrGone):
		return said("The server %s of this tool is gone.", p.server.name), nil
	default:
		return said("%v", err), nil
	}
}

// result is a CallToolResult as a model is shown it.
func result(b json.RawMessage) (loop.Result, error) {
	var in struct {
		Content []struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Data     string `json:"data"`
			MIME     string `json:"mimeType"`
			URI      string `json:"uri"`
			Resource struct {
				URI  string  `json:"uri"`
				Text *string `json:"text"`
				MIME string  `json:"mimeType"`
			} `json:"resource"`
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		Error      bool            `json:"isError"`
		Meta       struct {
			Spilled *trajectory.Spill `json:"agentenv.io/spilled"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return said("The tool's answer can't be read: %v", err), nil
	}
	out := loop.Result{Error: in.Error, Spill: in.Meta.Spilled}
	for _, c := range in.Content {
		switch c.Type {
		case "text":
			out.Parts = append(out.Parts, model.Part{Text: c.Text})
		case "image":
			data, err := base64.StdEncoding.DecodeString(c.Data)
			if err != nil {
				return said("The tool's picture can't be read."), nil
			}
			out.Parts = append(out.Parts, model.Part{Media: c.MIME, Data: data})
		case "resource":
			text := fmt.Sprintf("[resource %s of type %s]", c.Resource.URI, c.Resource.MIME)
			if c.Resource.Text != nil {
				text = *c.Resource.Text
			}
			out.Parts = append(out.Parts, model.Part{Text: text})
		case "resource_link":
			out.Parts = append(out.Parts, model.Part{Text: "[resource " + c.URI + "]"})
		default:
			out.Parts = append(out.Parts, model.Part{Text: fmt.Sprintf("[%s of type %s]", c.Type, c.MIME)})
		}
	}
	if len(out.Parts) == 0 && len(in.Structured) > 0 {
		out.Parts = []model.Part{{Text: string(in.Structured)}}
	}
	return out, nil
}

// Bounds of the agent's own tools.
const (
	bashTime    = 120 * time.Second
	maxBashTime = time.Hour
	maxShown    = 24 << 10 // bytes of each stream of a command, head and tail each
	maxRead     = 4 << 20
	skillFolder = "/root/skills"
)

// box is the agent's sandbox with its skills in it.
func (t *agentTools) box(ctx context.Context) (guest.Box, error) {
	b, err := t.agent.Box(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shown {
		return b, nil
	}
	t.shown = true
	for _, s := range t.skills {
		if err := guest.Put(ctx, b, path.Join(skillFolder, s.Name), s.Files); err != nil {
			return nil, step.Infra(fmt.Errorf("put the skill %s into the agent's sandbox: %w", s.Name, err))
		}
	}
	return b, nil
}

// boxFault keeps apart what the agent's sandbox refuses and a sandbox that is gone.
func boxFault(ctx context.Context, what string, err error) (loop.Result, error) {
	switch {
	case ctx.Err() != nil:
		return loop.Result{}, context.Cause(ctx)
	case errors.Is(err, guest.ErrGone), step.IsInfra(err):
		return loop.Result{}, err
	case errors.Is(err, fs.ErrNotExist):
		return said("%s: there is no such file.", what), nil
	case errors.Is(err, guest.ErrTooBig):
		return said("%s: the file is too large; look at parts of it with bash.", what), nil
	default:
		return said("%s: %v", what, err), nil
	}
}

func (t *agentTools) bash(ctx context.Context, command string, seconds float64) (loop.Result, error) {
	box, err := t.box(ctx)
	if err != nil {
		return boxFault(ctx, toolBash, err)
	}
	limit := bashTime
	if seconds > 0 {
		limit = min(time.Duration(seconds*float64(time.Second)), maxBashTime)
	}
	var vars []string
	for _, k := range slices.Sorted(maps.Keys(t.agent.req.Vars)) {
		vars = append(vars, k+"="+t.agent.req.Vars[k])
	}
	r, err := guest.Output(ctx, box, guest.Command{Argv: []string{"bash", "-c", command}, Env: vars, Timeout: limit}, guest.Limits{Stdout: maxShown, Stderr: maxShown})
	if err != nil {
		return boxFault(ctx, toolBash, err)
	}
	var b strings.Builder
	t.stream(&b, "", r.Stdout)
	t.stream(&b, "stderr:\n", r.Stderr)
	switch e := r.Exit; {
	case e.TimedOut:
		fmt.Fprintf(&b, "[it was ended after %s]", limit)
	case e.OOM:
		b.WriteString("[it ran out of memory]")
	case !e.OK():
		fmt.Fprintf(&b, "[exit code %d]", e.Status())
	}
	return loop.Result{Error: !r.Exit.OK(), Parts: []model.Part{{Text: b.String()}}}, nil
}

// stream writes what is kept of a stream and how much is left out.
func (t *agentTools) stream(b *strings.Builder, name string, c guest.Captured) {
	if c.Total == 0 {
		return
	}
	head, tail := strings.ToValidUTF8(string(c.Head), "�"), strings.ToValidUTF8(string(c.Tail), "�")
	if c.Truncated { // half a secret would be found by nobody later
		head, tail = t.agent.all.o.Redact.Ends(head, tail)
	}
	b.WriteString(name + head)
	if c.Truncated {
		fmt.Fprintf(b, "\n[… %d bytes left out …]\n%s", c.Total-int64(len(c.Head))-int64(len(c.Tail)), tail)
	}
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
}

var pictures = map[string]string{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}

func (t *agentTools) readFile(ctx context.Context, name string) (loop.Result, error) {
	box, err := t.box(ctx)
	if err != nil {
		return boxFault(ctx, toolReadFile, err)
	}
	b, err := box.ReadFile(ctx, absolute(name), maxRead)
	if err != nil {
		return boxFault(ctx, name, err)
	}
	if media, ok := pictures[strings.ToLower(path.Ext(name))]; ok {
		return loop.Result{Parts: []model.Part{{Media: media, Data: b}}}, nil
	}
	if strings.ToValidUTF8(string(b), "") != string(b) {
		return said("%s is no text; look at it with bash.", name), nil
	}
	return loop.Result{Parts: []model.Part{{Text: string(b)}}}, nil
}

// absolute is a path of the box; relative ones begin where commands do.
func absolute(name string) string {
	if !path.IsAbs(name) {
		name = "/root/" + name
	}
	return path.Clean(name)
}

func (t *agentTools) writeFile(ctx context.Context, name, content string) (loop.Result, error) {
	box, err := t.box(ctx)
	if err != nil {
		return boxFault(ctx, toolWriteFile, err)
	}
	name = absolute(name)
	if name == "/" {
		return said("Name a file."), nil
	}
	if err := guest.Put(ctx, box, path.Dir(name), []guest.PutFile{guest.PutBytes(path.Base(name), 0o644, []byte(content))}); err != nil {
		return boxFault(ctx, name, err)
	}
	return loop.Result{Parts: []model.Part{{Text: fmt.Sprintf("Wrote %d bytes to %s.", len(content), name)}}}, nil
}

func (t *agentTools) readSkill(name, file string) loop.Result {
	if file == "" {
		file = "SKILL.md"
	}
	for _, s := range t.skills {
		if s.Name != name {
			continue
		}
		if text, ok := s.texts[path.Clean(file)]; ok {
			return loop.Result{Parts: []model.Part{{Text: text}}}
		}
		return said("The skill %s has no file %s that can be read; it has %s.", name, file, strings.Join(slices.Sorted(maps.Keys(s.texts)), ", "))
	}
	return said("You have no skill %s.", name)
}
