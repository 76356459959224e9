package trigger

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/clock"
)

// Kinds of conditions.
const (
	onAction  = "action"
	onState   = "state"
	onTime    = "time"
	onWebsite = "website"
)

// spec is a trigger as it was registered.
type spec struct {
	id      string
	doc     map[string]any // as registered, what is missing and null left out: two registrations are the same when these are
	when    when
	held    bool // barrier at the provoking call
	timeout time.Duration
	actions []action
}

// when is a trigger's condition.
type when struct {
	kind   string
	tool   string
	app    string
	method string
	path   *predicate
	status *predicate
	where  []rule
	repeat bool
	roles  []string
	check  check

	at     *mark
	after  string
	offset float64
	every  *pace
	count  int // 0: no limit
	until  *mark
	unless *unless
	doc    map[string]any
}

// rule is a predicate on a field of the provoking call.
type rule struct {
	field field
	pred  *predicate
}

func all(rules []rule, c facts) bool {
	return !slices.ContainsFunc(rules, func(r rule) bool { return !r.pred.holds(r.field.value(c)) })
}

// unless is the call that cancels a deadline.
type unless struct {
	tool  string
	where []rule
	roles []string
}

// mark is a virtual time, or seconds after the clock's t0.
type mark struct {
	at       time.Time
	relative bool
	seconds  float64
}

func (m *mark) resolve(t0 time.Time) time.Time {
	if m.relative {
		return clock.Advance(t0, m.seconds)
	}
	return m.at
}

// pace is how much virtual time passes: fixed, or drawn from an exponential distribution that a seed fixes.
type pace struct {
	seconds float64 // fixed, or the mean
	drawn   bool
	seed    uint64
}

// check is a sequence of tool calls and questions to their results.
type check []step

type step struct {
	tool    string
	args    any
	extract *extract
	bind    string
	pred    *predicate
}

type extract struct {
	path  path
	match []rule // nil without a search
	find  bool
	take  string
}

// action is one thing that a trigger does.
type action struct {
	kind        string // tool, permission, nl
	tool        string
	args        any
	as          string
	role        string
	allow       bool
	tools       []string
	instruction string
	executor    string
	delay       *pace
	verify      check
}

// Executor is who carries out instructions in words.
type executor struct {
	URL     string  `json:"a2a_url"`
	Role    string  `json:"role"`
	Timeout float64 `json:"timeout_seconds"`
	Hours   *hours  `json:"hours,omitempty"`
}

// reader reads one trigger. The first fault is the one that is told.
type reader struct {
	executors map[string]executor // the unnamed one under ""
	websites  []string
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// present is a member that is there and not null.
func present(o map[string]any, name string) (any, bool) {
	v, ok := o[name]
	return v, ok && v != nil
}

func textOf(o map[string]any, name string) string {
	s, _ := o[name].(string)
	return s
}

// texts is a list of non-empty texts; false when it is something else.
func texts(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]string, 0, len(list))
	for _, e := range list {
		s, ok := e.(string)
		if !ok || s == "" {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

func (r reader) trigger(doc map[string]any) (*spec, error) {
	s := &spec{id: textOf(doc, "id"), doc: withoutNulls(doc)}
	w := fmt.Sprintf("trigger '%s'", s.id)
	obj, _ := doc["when"].(map[string]any)
	s.when.kind, s.when.doc = textOf(obj, "type"), obj
	var err error
	switch s.when.kind {
	case onAction:
		err = r.actionWhen(&s.when, obj, w)
	case onWebsite:
		err = r.websiteWhen(&s.when, obj, w)
	case onState:
		s.when.check, err = readCheck(obj["check"], w+": when.check", nil)
	case onTime:
		err = r.timeWhen(&s.when, obj, w)
	default:
		return nil, bad("%s: when.type must be 'action', 'state', 'time' or 'website'", w)
	}
	if err == nil {
		err = r.common(s, obj, w)
	}
	if err == nil {
		err = r.barrier(s, doc, w)
	}
	if err == nil {
		err = r.actions(s, doc, w)
	}
	return s, err
}

// provoking are the facts that triggers of a kind have.
func provoking(kind string) []string {
	switch kind {
	case onAction:
		return []string{"args", "result"}
	case onWebsite:
		return []string{"args"}
	}
	return nil
}

func (r reader) common(s *spec, obj map[string]any, w string) error {
	if _, ok := obj["repeat"]; ok && s.when.kind != onAction && s.when.kind != onWebsite {
		return bad("%s: when.repeat is for action and website triggers (time triggers recur by 'every')", w)
	}
	if _, ok := present(obj, "unless"); ok && s.when.kind != onTime {
		return bad("%s: when.unless is for time triggers", w)
	}
	v, ok := present(obj, "roles")
	if !ok {
		return nil
	}
	if s.when.kind == onTime {
		return bad("%s: when.roles is for action, state and website triggers", w)
	}
	if s.when.roles, ok = texts(v); !ok || len(s.when.roles) == 0 {
		return bad("%s: when.roles must be a non-empty list of roles", w)
	}
	return nil
}

func readWhere(v any, w string, facts []string) ([]rule, error) {
	if v == nil {
		return nil, nil
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, bad("%s must be an object", w)
	}
	var out []rule
	for name, p := range obj {
		pred, err := parsePredicate(p, w+"."+name)
		if err != nil {
			return nil, bad("%w", err)
		}
		f := field{name: name}
		if fact, rest := root(name); fact != "" && rest != "" {
			if !slices.Contains(facts, fact) {
				return nil, bad("%s.%s reads a result, and a website's request has arguments alone", w, name)
			}
			if f.path, err = parsePath(rest); err != nil {
				return nil, bad("%s.%s: %w", w, name, err)
			}
			f.fact = fact
		}
		out = append(out, rule{f, pred})
	}
	return out, nil
}

func (r reader) provoked(out *when, obj map[string]any, w string) (err error) {
	if out.where, err = readWhere(obj["where"], w+": when.where", provoking(out.kind)); err != nil {
		return err
	}
	if v, ok := obj["repeat"]; ok {
		if out.repeat, ok = v.(bool); !ok {
			return bad("%s: when.repeat must be true or false", w)
		}
	}
	return nil
}

func (r reader) actionWhen(out *when, obj map[string]any, w string) error {
	if out.tool = textOf(obj, "tool"); out.tool == "" {
		return bad("%s: when.tool must be a non-empty text", w)
	}
	return r.provoked(out, obj, w)
}

func (r reader) websiteWhen(out *when, obj map[string]any, w string) (err error) {
	if out.app = textOf(obj, "app"); !slices.Contains(r.websites, out.app) {
		return bad("%s: when.app must name one of the websites %q, not %q", w, r.websites, out.app)
	}
	if v, ok := present(obj, "method"); ok {
		s, isText := v.(string)
		if out.method = strings.ToUpper(strings.TrimSpace(s)); !isText || out.method == "" {
			return bad("%s: when.method must be an HTTP method such as 'POST'", w)
		}
	}
	for name, into := range map[string]**predicate{"path": &out.path, "status": &out.status} {
		if v, ok := present(obj, name); ok {
			if *into, err = parsePredicate(v, w+": when."+name); err != nil {
				return bad("%w", err)
			}
		}
	}
	return r.provoked(out, obj, w)
}

func seconds(v any, what string) (float64, error) {
	s, ok := v.(string)
	if !ok {
		return 0, bad("%s must be an ISO 8601 duration", what)
	}
	d, err := clock.ParseDuration(s)
	if err != nil {
		return 0, bad("%s: %w", what, err)
	}
	return d, nil
}

func readMark(v any, what string) (*mark, error) {
	s, ok := v.(string)
	if !ok {
		return nil, bad("%s must be a time or a duration", what)
	}
	if clock.IsDuration(s) {
		d, err := seconds(v, what)
		return &mark{relative: true, seconds: d}, err
	}
	t, err := clock.ParseTime(s)
	if err != nil {
		return nil, bad("%s: %w", what, err)
	}
	return &mark{at: t}, nil
}

// readPace reads a positive duration, or {dist: "exp", mean} with a seed, which stands in seed's object.
func readPace(v any, seed map[string]any, what string) (*pace, error) {
	obj, isObject := v.(map[string]any)
	if !isObject {
		d, err := seconds(v, what)
		if err == nil && d <= 0 {
			err = bad("%s must be longer than nothing", what)
		}
		return &pace{seconds: d}, err
	}
	if obj["dist"] != "exp" {
		return nil, bad("%s.dist must be 'exp'", what)
	}
	mean, err := seconds(obj["mean"], what+".mean")
	if err != nil {
		return nil, err
	}
	if seed == nil {
		seed = obj
	}
	n, err := whole(seed["seed"])
	if mean <= 0 || err != nil {
		return nil, bad("%s is drawn: it needs a mean longer than nothing and a 'seed', a whole number", what)
	}
	return &pace{seconds: mean, drawn: true, seed: uint64(max(n, -n))}, nil
}

func whole(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, bad("no whole number")
	}
	return n.Int64()
}

func (r reader) timeWhen(out *when, obj map[string]any, w string) (err error) {
	_, hasAt := obj["at"]
	_, hasAfter := obj["after"]
	_, hasEvery := obj["every"]
	switch {
	case !hasAt && !hasAfter && !hasEvery:
		return bad("%s: a time trigger needs 'at', 'after' or 'every'", w)
	case hasAt && hasAfter:
		return bad("%s: a time trigger has 'at' or 'after', not both", w)
	}
	if u, ok := present(obj, "unless"); ok {
		if hasEvery {
			return bad("%s: when.unless is for a time trigger that fires once ('at' or 'after')", w)
		}
		if out.unless, err = readUnless(u, w); err != nil {
			return err
		}
	}
	if hasAfter {
		if out.after = textOf(obj, "after"); out.after == "" {
			return bad("%s: when.after must be the id of a trigger", w)
		}
		if out.offset, err = seconds(obj["offset"], w+": when.offset"); err != nil {
			return err
		}
	} else if _, ok := obj["offset"]; ok {
		return bad("%s: 'offset' goes with 'after'", w)
	}
	if hasAt {
		if out.at, err = readMark(obj["at"], w+": when.at"); err != nil {
			return err
		}
	}
	if hasEvery {
		if out.every, err = readPace(obj["every"], obj, w+": when.every"); err != nil {
			return err
		}
	}
	return r.recurrence(out, obj, w)
}

func (r reader) recurrence(out *when, obj map[string]any, w string) (err error) {
	if _, ok := obj["seed"]; ok && (out.every == nil || !out.every.drawn) {
		return bad("%s: 'seed' goes with an 'every' that is drawn", w)
	}
	for _, name := range []string{"until", "count"} {
		if _, ok := obj[name]; ok && out.every == nil {
			return bad("%s: '%s' needs an 'every'", w, name)
		}
	}
	if v, ok := obj["count"]; ok {
		n, err := whole(v)
		if err != nil || n <= 0 || n > math.MaxInt32 {
			return bad("%s: count must be a whole number above 0", w)
		}
		out.count = int(n)
	}
	if v, ok := obj["until"]; ok {
		out.until, err = readMark(v, w+": when.until")
	}
	return err
}

func readUnless(v any, w string) (*unless, error) {
	obj, _ := v.(map[string]any)
	u := &unless{tool: textOf(obj, "tool")}
	if u.tool == "" {
		return nil, bad("%s: when.unless must be an object with a 'tool'", w)
	}
	var err error
	if u.where, err = readWhere(obj["where"], w+": when.unless.where", provoking(onAction)); err != nil {
		return nil, err
	}
	if roles, ok := present(obj, "roles"); ok {
		if u.roles, ok = texts(roles); !ok || len(u.roles) == 0 {
			return nil, bad("%s: when.unless.roles must be a non-empty list of roles", w)
		}
	}
	return u, nil
}

func (r reader) barrier(s *spec, doc map[string]any, w string) error {
	v, ok := present(doc, "barrier")
	if !ok {
		return nil
	}
	obj, isObject := v.(map[string]any)
	if !isObject {
		return bad(`%s: barrier must be an object such as {"at": "provoking_call"}`, w)
	}
	for k := range obj {
		if k != "at" && k != "timeout_seconds" {
			return bad("%s: barrier has no key %q; it has at and timeout_seconds", w, k)
		}
	}
	switch {
	case obj["at"] != "provoking_call":
		return bad("%s: barrier.at must be 'provoking_call'", w)
	case provoking(s.when.kind) == nil:
		return bad("%s: only action and website triggers have a provoking call that a barrier could hold", w)
	}
	s.held, s.timeout = true, defaultBarrier
	if v, ok := present(obj, "timeout_seconds"); ok {
		n, isNumber := v.(json.Number)
		f, err := n.Float64()
		if !isNumber || err != nil || !(f > 0) || f > 1e6 {
			return bad("%s: barrier.timeout_seconds must be a number above 0", w)
		}
		s.timeout = time.Duration(f * float64(time.Second))
	}
	return nil
}

func (r reader) actions(s *spec, doc map[string]any, w string) error {
	list, ok := doc["actions"].([]any)
	if !ok {
		return bad("%s: actions must be a list", w)
	}
	for i, v := range list {
		w := fmt.Sprintf("%s: actions[%d]", w, i)
		obj, _ := v.(map[string]any)
		a, err := r.action(obj, w, provoking(s.when.kind))
		if err != nil {
			return err
		}
		target := r.executors[a.executor]
		if a.kind == "nl" && slices.Contains(s.when.roles, target.Role) {
			return bad("%s: when.roles has %q, the role of its executor, so that each of its answers would provoke it again", w, target.Role)
		}
		if s.held && (a.delay != nil || a.kind == "nl" && target.Hours != nil) {
			return bad("%s: an action with a delay, or whose executor keeps hours, can't run under a barrier, which holds the call until the actions end", w)
		}
		s.actions = append(s.actions, a)
	}
	return nil
}

func (r reader) action(obj map[string]any, w string, facts []string) (a action, err error) {
	a.kind = textOf(obj, "type")
	if a.kind != "tool" && a.kind != "permission" && a.kind != "nl" {
		return a, bad("%s: type must be 'nl', 'tool' or 'permission'", w)
	}
	if _, ok := obj["as"]; ok && a.kind != "tool" {
		return a, bad("%s: 'as' is for tool actions", w)
	}
	if _, ok := obj["executor"]; ok && a.kind != "nl" {
		return a, bad("%s: 'executor' is for nl actions", w)
	}
	if v, ok := present(obj, "delay"); ok {
		if a.delay, err = readPace(v, nil, w+": delay"); err != nil {
			return a, err
		}
	}
	switch a.kind {
	case "tool":
		err = toolAction(&a, obj, w, facts)
	case "permission":
		err = permissionAction(&a, obj, w)
	default:
		err = r.wordsAction(&a, obj, w)
	}
	if v, ok := obj["verify"]; ok && err == nil {
		a.verify, err = readCheck(v, w+".verify", facts)
	}
	return a, err
}

func toolAction(a *action, obj map[string]any, w string, facts []string) error {
	if a.tool = textOf(obj, "tool"); a.tool == "" {
		return bad("%s: tool must be a non-empty text", w)
	}
	var err error
	if a.args, err = arguments(obj, w, facts); err != nil {
		return err
	}
	if v, ok := present(obj, "as"); ok {
		s, _ := v.(string)
		if a.as = strings.TrimSpace(s); a.as == "" || a.as == access.DefaultRole || likePlaceholder().MatchString(a.as) {
			return bad("%s: 'as' must be a role other than %q, and no placeholder", w, access.DefaultRole)
		}
	}
	return nil
}

func arguments(obj map[string]any, w string, facts []string) (any, error) {
	v, ok := obj["args"]
	if !ok {
		return map[string]any{}, nil
	}
	if _, isObject := v.(map[string]any); !isObject {
		return nil, bad("%s: args must be an object", w)
	}
	if err := checkTemplate(v, w+".args", facts); err != nil {
		return nil, bad("%w", err)
	}
	return v, nil
}

func permissionAction(a *action, obj map[string]any, w string) error {
	what := textOf(obj, "action")
	if what != "enable" && what != "disable" {
		return bad("%s: action must be 'enable' or 'disable'", w)
	}
	a.allow = what == "enable"
	if a.role = textOf(obj, "role"); a.role == "" {
		return bad("%s: role must be a non-empty text", w)
	}
	if obj["tools"] == access.Any {
		a.tools = []string{access.Any}
		return nil
	}
	var ok bool
	if a.tools, ok = texts(obj["tools"]); !ok {
		return bad("%s: tools must be a list of names, or '*'", w)
	}
	return nil
}

func (r reader) wordsAction(a *action, obj map[string]any, w string) error {
	if a.instruction = textOf(obj, "instruction"); a.instruction == "" {
		return bad("%s: instruction must be a non-empty text", w)
	}
	for _, like := range likePlaceholder().FindAllString(a.instruction, -1) {
		compact := strings.Join(strings.Fields(like), "")
		if strings.HasPrefix(compact, "${args.") || strings.HasPrefix(compact, "${result.") {
			return bad("%s: the instruction holds %q, but instructions aren't filled in; use a tool action to pass on what was called", w, like)
		}
	}
	if v, ok := present(obj, "executor"); ok {
		a.executor, _ = v.(string)
		if _, known := r.executors[a.executor]; !known || a.executor == "" {
			return bad("%s: executor %v is not registered", w, v)
		}
	} else if _, known := r.executors[""]; !known {
		return bad("%s: an nl action needs an executor", w)
	}
	return nil
}

func readCheck(v any, w string, facts []string) (check, error) {
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, bad("%s must be an object", w)
	}
	list, ok := obj["steps"].([]any)
	if _, has := obj["steps"]; !has && obj["tool"] != nil {
		list, ok = []any{v}, true
	}
	if !ok || len(list) == 0 {
		return nil, bad("%s needs 'steps', or a 'tool' and a 'predicate'", w)
	}
	var out check
	for i, e := range list {
		s, err := readStep(e, fmt.Sprintf("%s.steps[%d]", w, i), facts)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if out[len(out)-1].pred == nil {
		return nil, bad("%s: the last step must have a predicate", w)
	}
	return out, nil
}

func readStep(v any, w string, facts []string) (s step, err error) {
	obj, _ := v.(map[string]any)
	if s.tool = textOf(obj, "tool"); s.tool == "" {
		return s, bad("%s: tool must be a non-empty text", w)
	}
	if s.args, err = arguments(obj, w, facts); err != nil {
		return s, err
	}
	s.bind = textOf(obj, "bind")
	if e, ok := present(obj, "extract"); ok {
		if s.extract, err = readExtract(e, w+".extract"); err != nil {
			return s, err
		}
	}
	if p, ok := obj["predicate"]; ok {
		if s.pred, err = parsePredicate(p, w+".predicate"); err != nil {
			return s, bad("%w", err)
		}
	}
	return s, nil
}

func readExtract(v any, w string) (*extract, error) {
	var err error
	x := &extract{}
	if s, ok := v.(string); ok {
		if x.path, err = parsePath(s); err != nil {
			return nil, bad("%s: %w", w, err)
		}
		return x, nil
	}
	obj, _ := v.(map[string]any)
	p, ok := obj["path"].(string)
	if !ok {
		return nil, bad("%s must be a path, or {path, match, take}", w)
	}
	if x.path, err = parsePath(p); err != nil {
		return nil, bad("%s: %w", w, err)
	}
	x.find, x.take = true, textOf(obj, "take")
	match, _ := obj["match"].(map[string]any)
	for name, pv := range match {
		pred, err := parsePredicate(pv, w+".match."+name)
		if err != nil {
			return nil, bad("%w", err)
		}
		x.match = append(x.match, rule{field{name: name}, pred})
	}
	return x, nil
}

// from is what an extract takes from a result: data is the result's text as JSON, nil when it is none.
func (x *extract) from(data any, raw string) any {
	if x == nil {
		return raw
	}
	v := x.path.get(data)
	if !x.find {
		return v
	}
	list, _ := v.([]any)
	for _, item := range list {
		obj, ok := item.(map[string]any)
		if !ok || !all(x.match, facts{args: obj}) {
			continue
		}
		if x.take != "" {
			return obj[x.take]
		}
		return obj
	}
	return nil
}

// withoutNulls is a copy in which members that are null are missing.
func withoutNulls(v map[string]any) map[string]any {
	out := make(map[string]any, len(v))
	for k, e := range v {
		if e == nil {
			continue
		}
		if obj, ok := e.(map[string]any); ok {
			e = withoutNulls(obj)
		}
		out[k] = e
	}
	return out
}
