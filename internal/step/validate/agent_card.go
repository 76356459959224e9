package validate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// readCard reads the card as it is now.
func (s *subject) readCard(ctx context.Context) (wire.AgentCard, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("the agent did not answer within %s", callLimit))
	defer cancel()
	return s.client.Card(ctx)
}

// checkAgentCard reads the agent's card: where it must be, what it must say, and whether what it lists can be called.
func checkAgentCard(ctx context.Context, s *subject) ([]step.Row, error) {
	if s.client == nil {
		return []step.Row{unchecked("the agent's card", inProcess)}, nil
	}
	rows, err := s.conform(ctx, "A1")
	if err != nil {
		return nil, err
	}
	card, err := s.readCard(ctx)
	row, fatal := said("the card can be read", err)
	rows = append(rows, row)
	if err != nil {
		return rows, fatal
	}
	return append(rows, cardRowsOf(&card)...), nil
}

func cardRowsOf(c *wire.AgentCard) []step.Row {
	missing := ""
	if m := c.Missing(); len(m) > 0 {
		missing = "it lacks " + strings.Join(m, ", ")
	}
	transport := ""
	if t := c.PreferredTransport; t != "" && t != wire.TransportJSONRPC {
		transport = fmt.Sprintf("it prefers %s; agents are asked over %s", diag.Repr(t), wire.TransportJSONRPC)
	}
	return []step.Row{
		outcome("", "it says what a card must say", missing),
		outcome("", "its url is where messages are sent", urlFault(c.URL)),
		outcome("", "its transport is "+wire.TransportJSONRPC, transport),
		outcome("", "its skills can be told apart", strings.Join(skillFaults(c.Skills), "; ")),
		outcome("", "its extensions can be called", strings.Join(extensionFaults(c), "; ")),
	}
}

// urlFault is what is wrong with the address on a card: a path, or an address of http or https.
func urlFault(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Sprintf("%s is no URL", diag.Repr(text))
	case u.Scheme == "" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return ""
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil:
		return ""
	}
	return fmt.Sprintf("%s is neither a path nor an address of http or https", diag.Repr(text))
}

func skillFaults(skills []wire.AgentSkill) []string {
	var f faults
	seen := map[string]bool{}
	for i, k := range skills {
		at := fmt.Sprintf("skills[%d]", i)
		if k.ID == "" || k.Name == "" || k.Description == "" {
			f.add(at, "it lacks an id, a name or a description")
		}
		if k.Tags == nil {
			f.add(at, "it lacks tags")
		}
		if k.ID != "" && seen[k.ID] {
			f.add(at, "%s is there twice", diag.Repr(k.ID))
		}
		seen[k.ID] = true
	}
	return f
}

// extensionFaults are those of the extensions that callers of agents use; others are the agent's own business.
func extensionFaults(c *wire.AgentCard) []string {
	var f faults
	seen := map[string]bool{}
	for _, x := range c.Capabilities.Extensions {
		if seen[x.URI] {
			f.add(x.URI, "it is there twice")
		}
		seen[x.URI] = true
		if !strings.HasPrefix(x.URI, "urn:agentenv:") || x.URI == wire.URNInstall {
			continue
		}
		var p struct {
			Endpoint string `json:"endpoint"`
			Methods  map[string]struct {
				Method   string `json:"method"`
				Endpoint string `json:"endpoint"`
			} `json:"methods"`
		}
		if err := json.Unmarshal(x.Params, &p); err != nil {
			f.add(x.URI, "its params can't be read")
			continue
		}
		places := []string{p.Endpoint}
		for name, m := range p.Methods {
			if m.Method != "" && !slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}, strings.ToUpper(m.Method)) {
				f.add(x.URI, "%s is called by %s, which is no method of HTTP that callers use", name, diag.Repr(m.Method))
			}
			if m.Endpoint != "" {
				places = append(places, m.Endpoint)
			}
		}
		for _, at := range places {
			if u, err := url.Parse(at); err != nil || !strings.HasPrefix(at, "/") || u.Host != "" {
				f.add(x.URI, "its endpoint %s is no path", diag.Repr(at))
			}
		}
	}
	slices.Sort(f)
	return f
}

// checkIdentity gives the agent a name and a description, and looks for them on its card.
func checkIdentity(ctx context.Context, s *subject) ([]step.Row, error) {
	const takes, kept = "it takes a name and a description", "its card says them"
	if s.client == nil {
		return []step.Row{unchecked(takes, inProcess)}, nil
	}
	if !s.takes(wire.URNAgentConfig, "set", "name", "description") {
		return []step.Row{outcome("", takes, "its card doesn't list name and description among what "+wire.URNAgentConfig+" takes")}, nil
	}
	before, err := s.readCard(ctx)
	if err != nil {
		row, fatal := said("the card can be read", err)
		return []step.Row{row}, fatal
	}
	want := map[string]any{"name": "IdentityName-" + newID()[:12], "description": "IdentityDesc-" + newID()[:12]}
	row, fatal := said(takes, s.operation(ctx, wire.URNAgentConfig, "set", want, nil))
	if fatal != nil || row["result"] != true {
		return []step.Row{row}, fatal
	}
	defer s.restore(ctx, map[string]any{"name": before.Name, "description": before.Description})
	after, err := s.readCard(ctx)
	if err == nil && (after.Name != want["name"] || after.Description != want["description"]) {
		err = fmt.Errorf("it says %s and %s", diag.Repr(excerpt(after.Name)), diag.Repr(excerpt(after.Description)))
	}
	second, fatal := said(kept, err)
	return []step.Row{row, second}, fatal
}

// restore sets the agent back to what it was; one that refuses keeps what it has.
func (s *subject) restore(ctx context.Context, settings map[string]any) {
	if err := s.operation(context.WithoutCancel(ctx), wire.URNAgentConfig, "set", settings, nil); err != nil {
		s.c.Log.Warn("the agent could not be set back to what it was", "agent", s.agent.Name, "why", err)
	}
}

// settings are those that the agent says it has.
func (s *subject) settings(ctx context.Context) (map[string]any, error) {
	var got struct {
		Config map[string]any `json:"config"`
	}
	if err := s.operation(ctx, wire.URNAgentConfig, "get", nil, &got); err != nil {
		return nil, err
	}
	if got.Config == nil {
		return nil, errors.New("its answer holds no config")
	}
	return got.Config, nil
}

// checkRole gives the agent a role and reads its configuration.
func checkRole(ctx context.Context, s *subject) ([]step.Row, error) {
	const takes, tells, kept = "it takes a role", "it tells its configuration", "it has the role then"
	if s.client == nil {
		return []step.Row{unchecked(takes, inProcess)}, nil
	}
	var rows []step.Row
	listed := func(criterion string, ok bool, what string) {
		problem := ""
		if !ok {
			problem = "its card doesn't list " + what
		}
		rows = append(rows, outcome("", criterion, problem))
	}
	_, get := s.card.AgentOperation(wire.URNAgentConfig, "get")
	set := s.takes(wire.URNAgentConfig, "set", "role")
	listed(takes, set, "role among what "+wire.URNAgentConfig+" takes")
	listed(tells, get, "get of "+wire.URNAgentConfig)
	if !set || !get {
		return rows, nil
	}
	had, err := s.settings(ctx)
	if err != nil {
		row, fatal := said(tells, err)
		return []step.Row{rows[0], row}, fatal
	}
	want := "validator-role-" + newID()[:8]
	if err := s.operation(ctx, wire.URNAgentConfig, "set", map[string]any{"role": want}, nil); err != nil {
		row, fatal := said(takes, err)
		return []step.Row{row, rows[1]}, fatal
	}
	back, _ := had["role"].(string)
	defer s.restore(ctx, map[string]any{"role": back})
	got, err := s.settings(ctx)
	if err == nil && got["role"] != want {
		err = fmt.Errorf("it was given %s and tells %v", want, got["role"])
	}
	row, fatal := said(kept, err)
	return append(rows, row), fatal
}

// checkTrajectory reads the trajectory of a task that ended: whole, in pages, and what is refused.
func checkTrajectory(ctx context.Context, s *subject) ([]step.Row, error) {
	const listed, whole, paged, unknown = "it tells trajectories", "that of a task that ended", "in pages", "that of no task is refused"
	task, events, err := s.lastTask()
	if err != nil {
		return nil, err
	}
	if s.client == nil {
		problem := ""
		if !events {
			problem = "nothing is recorded of the last prompt"
		}
		return []step.Row{outcome("", whole, problem), unchecked(paged, inProcess)}, nil
	}
	if !s.takes(wire.URNTrajectory, "get", "task_id") {
		return []step.Row{outcome("", listed, "its card doesn't list get of "+wire.URNTrajectory+" by task_id")}, nil
	}
	var got struct {
		Trajectory json.RawMessage `json:"trajectory"`
	}
	err = s.operation(ctx, wire.URNTrajectory, "get", map[string]any{"task_id": task}, &got)
	if text := string(got.Trajectory); err == nil && slices.Contains([]string{"", "null", "[]", "{}", `""`}, text) {
		err = errors.New("the trajectory is empty")
	}
	row, fatal := said(whole, err)
	rows := []step.Row{outcome("", listed, ""), row}
	if fatal != nil {
		return nil, fatal
	}
	row, fatal = s.checkPages(ctx, paged, task)
	if fatal != nil {
		return nil, fatal
	}
	rows = append(rows, row)
	err = s.operation(ctx, wire.URNTrajectory, "get", map[string]any{"task_id": "00000000-0000-4000-8000-000000000000"}, nil)
	if status, ok := errors.AsType[*a2a.StatusError](err); ok && status.Status == http.StatusNotFound {
		err = nil
	} else if err == nil {
		err = errors.New("it answers one of a task that there is not; want HTTP 404")
	}
	row, fatal = said(unknown, err)
	return append(rows, row, unchecked("by upload", "no store here gives grants that reach the agent")), fatal
}

// checkPages reads the trajectory's pages from the first to the last.
func (s *subject) checkPages(ctx context.Context, criterion, task string) (step.Row, error) {
	if !s.takes(wire.URNTrajectory, "get", "task_id", "after") {
		return unchecked(criterion, "its card doesn't list after"), nil
	}
	const mostPages = 1000
	for after, n := 0, 0; ; n++ {
		var p struct {
			State  string            `json:"state"`
			Events []json.RawMessage `json:"events"`
			Next   int               `json:"next"`
			More   bool              `json:"has_more"`
		}
		err := s.operation(ctx, wire.URNTrajectory, "get", map[string]any{"task_id": task, "after": after}, &p)
		switch {
		case err != nil:
		case p.Next != after+len(p.Events):
			err = fmt.Errorf("the page after %d holds %d events, and the next is after %d", after, len(p.Events), p.Next)
		case p.More && len(p.Events) == 0:
			err = fmt.Errorf("the page after %d is empty and has more", after)
		case !p.More && !wire.TaskEnded(p.State):
			err = fmt.Errorf("the last page says that the task is %s", diag.Repr(p.State))
		case p.More && n < mostPages:
			after = p.Next
			continue
		}
		return said(criterion, err)
	}
}

// lastTask is the agent's own id of the last task that a step before had it make, and whether anything is recorded of it.
func (s *subject) lastTask() (id string, events bool, err error) {
	for _, raw := range s.c.State.List(step.PromptsPath) {
		var p step.PromptResponse
		if json.Unmarshal(raw, &p) == nil && p.Agent == s.agent.Name && (p.Session != "" || s.client == nil) && p.ErrorType != wire.InfraError {
			id, events = p.Session, p.Trajectory != nil && p.Trajectory.ATIF.Size > 0
		}
	}
	if v, found, verr := verification(s.c, AgentMCP); id == "" && verr == nil && found {
		for _, r := range v.Results {
			if t, _ := r["task_id"].(string); t != "" {
				return t, true, nil
			}
		}
	}
	if id == "" && !events {
		return "", false, step.Errorf("NotFoundError", "the agent %s was given no prompt before this step, so that there is no trajectory", diag.Repr(s.agent.Name))
	}
	return id, events, nil
}
