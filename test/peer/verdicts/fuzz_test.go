package verdicts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/test/peer/verdicts"
)

// mangler changes a folder as bytes say: each change takes three of them.
type mangler struct {
	all   []verdicts.Input
	bytes []byte
}

func (m *mangler) next(n int) int {
	if len(m.bytes) == 0 {
		return 0
	}
	b := m.bytes[0]
	m.bytes = m.bytes[1:]
	return int(b) % n
}

// oddNames are what files and folders are renamed to, oddTexts what they hold: of all kinds of wrong.
var (
	oddNames = []string{
		"Dockerfile", "dockerfile", "artifact.toml", "env.toml", "agent.toml", "SKILL.md", "metadata", "tasks", "evals", "a__b", "a:b", " ", "\xff", "e\u0301",
		"\u0301", "..json", "t.json", "t.JSON", "e.toml", strings.Repeat("n", 255), "aliases.toml", "bundle.toml", "README.md", ".hidden", "__pycache__", "~", "\n",
	}
	oddTexts = []string{
		"", "\x00", "\xff", "[", "[[", "{}", "[]", "[{}]", "null", "type='file'", "type='environment'", "type='environment_universe'", "type='docker_image'", "type='cli'",
		"type='multi'\nmcp_server_envs=['m']", "id='@local/~/b/f'", "file='x'", "tasks=['t']", "image='i'", "a.b.c=1\n[a]", "---\nname: &a [*a]\n---\n", "---\n? [\n---",
		"@environment_card(name='", "'''", strings.Repeat("[", 2000), strings.Repeat("{a=", 200), `[{"id":"a","type":"load_artifact","artifacts":[{"id":{}}]}]`,
		"\x00link .", "\x00link ..", "\x00link $B", "\x00link /", "\x00link $B/tasks/t.json", "\x00link nowhere", "\x00link x/../x", "\x00fifo", "\x00exec x",
	}
	oddPieces = []string{"'", "\"", "=", "[", "]", "{", "}", "\n", "\\", "\\ud800", "\ufeff", "\u2028", "1e999", "-0", "null", "@local/", "__", ": ", "#", "\x00", "\xc3"}
)

// mangle answers the input with changes.
func (m *mangler) mangle(in verdicts.Input) verdicts.Input {
	in.Files = maps.Clone(in.Files)
	in.Before = nil
	for range min(len(m.bytes)/3, 12) {
		paths := slices.Sorted(maps.Keys(in.Files))
		if len(paths) == 0 {
			break
		}
		at := paths[m.next(len(paths))]
		text := in.Files[at]
		switch m.next(8) {
		case 0:
			in.Files[at] = oddTexts[m.next(len(oddTexts))]
		case 1:
			cut := min(len(text), m.next(256))
			in.Files[at] = text[:cut] + oddPieces[m.next(len(oddPieces))] + text[cut:]
		case 2:
			in.Files[at] = text[:len(text)*m.next(256)/256]
		case 3, 4:
			parts := strings.Split(at, "/")
			parts[m.next(len(parts))] = oddNames[m.next(len(oddNames))]
			delete(in.Files, at)
			in.Files[strings.Join(parts, "/")] = text
		case 5:
			maps.Copy(in.Files, m.all[(m.next(256)*256+m.next(256))%len(m.all)].Files)
		case 6:
			in.Files[at+"/"+oddNames[m.next(len(oddNames))]] = oddTexts[m.next(len(oddTexts))]
			delete(in.Files, at)
		default:
			parts := strings.Split(at, "/")
			parts[len(parts)-1] = oddNames[m.next(len(oddNames))]
			in.Files[strings.Join(parts, "/")] = oddTexts[m.next(len(oddTexts))]
		}
	}
	return in
}

// FuzzFolders mangles the inputs: whatever a folder holds, the answer comes soon, in clean lines that show nothing of the program.
func FuzzFolders(f *testing.F) {
	all := slices.DeleteFunc(verdicts.Inputs(), func(in verdicts.Input) bool {
		size := 0
		for _, text := range in.Files {
			size += len(text)
		}
		return size > 1<<16 // large ones would only slow this down
	})
	for i := range 20 {
		f.Add(uint16(i*37), []byte{byte(i), byte(i % 8), byte(3 * i), byte(7 * i), byte(i % 5), byte(i)})
	}
	f.Fuzz(func(t *testing.T, n uint16, changes []byte) {
		m := &mangler{all: all, bytes: changes}
		in := m.mangle(all[int(n)%len(all)])
		home := homeFolder(t)
		dir, err := in.Lay(home)
		if err != nil {
			t.Skip() // two names stand in each other's way, or one is no name
		}
		lines := judge(t, in, dir, home)
		var own strings.Builder
		for name, text := range in.Files {
			own.WriteString(name + "\n" + text + "\n")
		}
		for _, line := range lines {
			if found := leaks.FindString(line); found != "" && strings.Contains(own.String(), found) {
				continue
			}
			checkLines(t, []string{line}, home)
		}
	})
}
