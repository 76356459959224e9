package access_test

import (
	"reflect"
	"testing"

	"agentenv.internal/agentenv/sdk/access"
)

func TestAllowed(t *testing.T) {
	type write struct {
		role  string
		tools []string
		allow bool
	}
	type ask struct {
		role, tool string
		hidden     bool
		want       bool
	}
	all := []string{"*"}
	tests := []struct {
		name   string
		writes []write
		asks   []ask
	}{
		{"no rules", nil, []ask{{"bob", "add", false, true}, {"bob", "admin", true, false}}},
		{
			"a rule that names the tool beats the role's rule for all",
			[]write{{"bob", all, false}, {"bob", []string{"add"}, true}},
			[]ask{{"bob", "add", false, true}, {"bob", "del", false, false}, {"eve", "del", false, true}},
		},
		{
			"the role's rule for all beats a rule of every role",
			[]write{{"*", []string{"add"}, false}, {"bob", all, true}},
			[]ask{{"bob", "add", false, true}, {"eve", "add", false, false}},
		},
		{
			"a rule for every role reaches roles that have rules",
			[]write{{"bob", []string{"del"}, true}, {"*", []string{"del"}, false}},
			[]ask{{"bob", "del", false, false}, {"eve", "del", false, false}},
		},
		{"a hidden tool skips rules for all", []write{{"bob", all, true}, {"*", all, true}, {"bob", all, true}}, []ask{{"bob", "admin", true, false}}},
		{"a hidden tool that is named", []write{{"bob", []string{"admin"}, true}}, []ask{{"bob", "admin", true, true}, {"eve", "admin", true, false}}},
		{"everything at once clears", []write{{"bob", []string{"add"}, false}, {"*", all, true}}, []ask{{"bob", "add", false, true}}},
		{"a role's rule for all replaces its rules", []write{{"bob", []string{"add"}, false}, {"bob", all, true}}, []ask{{"bob", "add", false, true}}},
		{"no role is the default role", []write{{"", []string{"add"}, false}}, []ask{{" default ", "add", false, false}, {"", "add", false, false}, {"bob", "add", false, true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r access.Rules
			for _, w := range tt.writes {
				r.Set(w.role, w.tools, w.allow)
			}
			var again access.Rules
			again.Restore(r.State())
			for _, a := range tt.asks {
				if got := r.Allowed(a.role, a.tool, a.hidden); got != a.want {
					t.Errorf("Allowed(%q, %q, hidden %v) = %v", a.role, a.tool, a.hidden, got)
				}
				if got := again.Allowed(a.role, a.tool, a.hidden); got != a.want {
					t.Errorf("restored: Allowed(%q, %q, hidden %v) = %v", a.role, a.tool, a.hidden, got)
				}
			}
		})
	}
}

func TestState(t *testing.T) {
	var r access.Rules
	before := r.Generation()
	r.Set("bob", []string{"z", "a"}, false)
	r.Set("bob", []string{"m"}, true)
	want := access.RoleRules{Disabled: []string{"a", "z"}, Allowed: []string{"m"}}
	if got := r.Of("bob"); !reflect.DeepEqual(got, want) {
		t.Errorf("Of = %+v", got)
	}
	if got := r.State(); !reflect.DeepEqual(got, map[string]access.RoleRules{"bob": want}) {
		t.Errorf("State = %+v", got)
	}
	if got := r.Of("eve"); got.Disabled == nil || got.Allowed == nil {
		t.Errorf("a role without rules has %+v, want empty lists", got)
	}
	if r.Generation() == before {
		t.Error("the generation stayed")
	}
}
