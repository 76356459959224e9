package computer_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"agentenv.internal/agentenv/sdk/computer"
	"agentenv.internal/agentenv/sdk/wire"
)

// TestDeclare: lists of platforms multiply out, and each tells what it has; no screen is asked.
func TestDeclare(t *testing.T) {
	d := newDesk()
	d.down = http.ErrAbortHandler
	got, err := computer.Declare(t.Context(), d, computer.Options{Name: "desk", Lookup: none, Supports: []computer.Support{
		{OS: computer.SupportOS{Type: "linux", Distribution: []string{"debian", "ubuntu"}, Display: []string{"x11"}}, Arch: []string{"amd64", "arm64"}},
		{OS: computer.SupportOS{Type: "macos"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range got.Platforms {
		names = append(names, strings.Join([]string{p.Platform.OS, p.Platform.Distribution, p.Platform.Display, p.Platform.Arch}, "/"))
		if !slices.Contains(p.Provides, wire.URNComputerKeyboard) || !slices.Contains(p.Tools, "computer_pointer_list") || len(p.Tools) != 14 || !strings.Contains(string(p.Features), `"max_drag_points":3`) {
			t.Errorf("%+v", p)
		}
	}
	if want := "linux/debian/x11/amd64 linux/debian/x11/arm64 linux/ubuntu/x11/amd64 linux/ubuntu/x11/arm64 macos///"; strings.Join(names, " ") != want || got.Name != "desk" {
		t.Errorf("%s declares %s", got.Name, names)
	}
	if _, err := computer.Declare(t.Context(), d, computer.Options{Lookup: none}); err == nil {
		t.Error("a driver of no platform is declared")
	}
}

// TestSkill is row A8 for the computer: its skill is served at what the card says.
func TestSkill(t *testing.T) {
	const text = "---\nname: desk\ndescription: use it\n---\n"
	r := serve(t, newDesk(), func(o *computer.Options) {
		o.Skill = &computer.Skill{Name: "desk", Description: "use it", Folder: fstest.MapFS{"SKILL.md": {Data: []byte(text)}}}
	})
	resp, err := http.Get(r.url + "/agentenv/ext/skill/get")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Name  string
		Files []struct {
			Path  string
			Bytes []byte
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "desk" || len(got.Files) != 1 || got.Files[0].Path != "SKILL.md" || string(got.Files[0].Bytes) != text {
		t.Errorf("%+v", got)
	}
}
