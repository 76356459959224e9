package verdicts

import (
	"fmt"
	"strings"
)

// names are about what entries may be called.
func names() []Input {
	artifact := func(name string, folders ...string) Input {
		t := base()
		for i, f := range folders {
			t["artifacts/"+f+"/x"] = fmt.Sprint(i)
		}
		return Input{Name: name, Files: t}
	}
	used := func(name, folder string) Input {
		return Input{Name: name, Files: Tree{"tasks/t.json": loads(folder), "artifacts/" + folder + "/x": "1"}}
	}
	long := strings.Repeat("a", 255)
	deep := Tree{"tasks/t.json": loads("f"), "artifacts/f/x": "1"}
	return []Input{
		{Name: "task names that no id holds", Row: "R", Files: base().with(Tree{"tasks/a:b.json": "[]", "tasks/ a.json": "[]"})},
		artifact("punctuation that no id holds", "a:b", "a*b", "a?b", "a|b", "a\"b", "a<b", "a\\b", "a#b", "a%b", "a$b", "a!b", "a;b", "a=b", "a'b", "a[b]", "a{b}", "a^b", "a`b"),
		used("punctuation that an id holds", "a.b_c-d~e@f(g)+h,i&j"),
		artifact("names with edge spaces", " a", "b ", " "),
		artifact("names with controls", "a\tb", "a\nb", "a\x1bb", "a\x7fb", "a\u0085b"),
		artifact("names with invisible characters", "a\u200bb", "a\u200db", "a\u00adb", "a\u200eb", "a\ufeffb", "a\u2060b", "a\u3164b", "a\u115fb", "a\ufe0fb", "a\u180eb", "a\U000e0001b"),
		artifact("names with other spaces", "a\u00a0b", "a\u2003b", "a\u3000b", "a\u2028b"),
		artifact("names with marks after nothing", "\u0301a", "-\u0301", "a \u0301"),
		used("name with a mark after a letter", "x\u0323\u0307"),
		used("name with a mark after a digit", "7\u0338"),
		artifact("names of symbols", "\u2603", "\U0001f600", "\u20ac", "\u2192", "\u00a9"),
		used("name in another script", "\u65e5\u672c\u8a9e"),
		used("name with Arabic letters and marks", "\u0645\u064f\u062f"),
		used("names with odd digits", "\u0664\u00b2\u2163\u00bd"),
		artifact("private and unassigned characters", "a\ue000b", "a\u0378b", "a\U0010fffeb"),
		artifact("names of dots", "a..", "...", "..a", "a."),
		used("name of dots", "a..b."),
		artifact("names that aren't UTF-8", "a\xffb", "\xc3\x28"),
		used("name that begins with at", "@x"),
		used("name that begins with a dash", "-x"),
		used("tilde as a name", "~"),
		used("name in decomposed form", "cafe\u0301"),
		{Name: "name in decomposed form, reference in composed form", Row: "R", Files: Tree{"tasks/t.json": loads("caf\u00e9"), "artifacts/cafe\u0301/x": "1"}},
		{Name: "name in composed form, reference in decomposed form", Files: Tree{"tasks/t.json": loads("cafe\u0301"), "artifacts/caf\u00e9/x": "1"}},
		used("name of 255 bytes", long),
		{Name: "task name of 255 bytes", Files: deep.with(Tree{"tasks/" + long[:250] + ".json": loads("f")})},
		onBase("derived marks in names", "R", Tree{"artifacts/a__b/x": "1", "skills/a__c/SKILL.md": "x", "artifacts/__/x": "1", "artifacts/c__/x": "1", "artifacts/___/x": "1"}),
		onBase("derived marks where they are free", "", Tree{
			"envs/a__b/Dockerfile": "x", "envs/a__b/env.toml": "environment_name='q'", "agents/a__b/Dockerfile": "x", "tasks/a__b.json": loads("f"), "evals/a__b.toml": "tasks=['t']",
		}),
		onBase("single marks in artifact names", "", Tree{"artifacts/a_b/x": "1", "artifacts/_a_/x": "1"}),
		onBase("bad names in every kind", "", Tree{
			"envs/a:b/Dockerfile": "x", "agents/a:b/Dockerfile": "x", "artifacts/a:b/x": "1", "skills/a:b/SKILL.md": "x", "tasks/a:b.json": loads("f"), "evals/a:b.toml": "tasks=['t']",
		}),
		onBase("bad name with an id of its own", "", Tree{"artifacts/a:b/x": "1", "artifacts/a:b/artifact.toml": "id='@local/x/ab'"}),
		onBase("bad names of loose files", "", Tree{"artifacts/a:b": "1", "tasks/a:b.txt": "1", "images/a:b": "1"}),
	}
}

// declared are about ids that tomls declare.
func declared() []Input {
	ids := func(name, row string, values ...string) Input {
		t := base()
		for i, v := range values {
			dir := fmt.Sprintf("artifacts/a%02d/", i)
			t[dir+"x"], t[dir+"artifact.toml"] = "1", "id = "+v
		}
		return Input{Name: name, Row: row, Files: t}
	}
	good := func(name, id string) Input {
		return Input{Name: name, Files: Tree{"tasks/t.json": loads("g", id), "artifacts/g/x": "1", "artifacts/g/artifact.toml": "id = '" + id + "'"}}
	}
	return []Input{
		ids("ids that aren't strings", "R", "3", "true", "[]", "{}", "1.5", "2020-01-01"),
		ids("ids without the prefix", "R", "'bare'", "''", "'@local'", "'@LOCAL/x'", "'local/x'", "'@other/x'", "' @local/x'"),
		ids("ids with bad segments", "R", "'@local/'", "'@local/a//b'", "'@local/./b'", "'@local/a/../b'", "'@local/a/'", "'@local//a'", "'@local/a/ b'", "'@local/a /b'"),
		ids("ids with bad characters", "R", "'@local/a:b'", "\"@local/a\\nb\"", "\"@local/a\\u200bb\"", "'@local/\U0001f600'", "'@local/a*b/c'"),
		ids("id in decomposed form", "", "'@local/e\u0301'"),
		ids("ids with derived marks", "R", "'@local/x/y__z'", "'@local/__'", "'@local/a__b/c__'"),
		good("derived marks before the last segment", "@local/a__b/c"),
		ids("ids that are too long", "", "'@local/"+strings.Repeat("a", 4065)+"'", "'@local/"+strings.Repeat("\u00e9", 2033)+"'"),
		good("longest id", "@local/"+strings.Repeat("a", 4064)),
		good("id with a tilde", "@local/~/elsewhere/x"),
		good("id of an installed bundle", "@local/some-dist/x"),
		good("id under the bundle's own root", "@local/~/b/other"),
		onBase("two artifacts of one id", "R", Tree{"artifacts/g/x": "1", "artifacts/g/artifact.toml": "id='@local/x'", "artifacts/h/x": "1", "artifacts/h/artifact.toml": "id='@local/x'"}),
		onBase("three artifacts of one id", "", Tree{"artifacts/g/x": "1", "artifacts/g/artifact.toml": "id='@local/x'", "artifacts/h/x": "1", "artifacts/h/artifact.toml": "id='@local/x'", "artifacts/i/x": "1", "artifacts/i/artifact.toml": "id='@local/x'"}),
		onBase("id that is another folder's default", "R", Tree{"artifacts/g/x": "1", "artifacts/g/artifact.toml": "id='@local/~/b/f'"}),
		onBase("id that is a skill's default", "", Tree{"artifacts/g/x": "1", "artifacts/g/artifact.toml": "id='@local/~/b/s'", "skills/s/SKILL.md": "x"}),
		onBase("one id in several stores", "", Tree{"envs/e/Dockerfile": "x", "envs/e/env.toml": "id='@local/x'\nenvironment_name='q'", "artifacts/g/x": "1", "artifacts/g/artifact.toml": "id='@local/x'", "evals/e.toml": "id='@local/x'\ntasks=['t']"}),
		onBase("ids in every toml", "", Tree{"envs/e/env.toml": "id=1\nenvironment_name='q'", "agents/a/agent.toml": "id='bare'", "evals/e.toml": "id='@local/..'\ntasks=['t']", "artifacts/g/artifact.toml": "id='@local/'", "artifacts/g/x": "1"}),
		onBase("ids with marks where they are free", "", Tree{"envs/e/Dockerfile": "x", "envs/e/env.toml": "id='@local/a__b'\nenvironment_name='q'", "evals/e.toml": "id='@local/c__d'\ntasks=['t']"}),
		onBase("id in a skill folder", "", Tree{"skills/s/SKILL.md": "x", "skills/s/artifact.toml": "id = [", "skills/s/skill.toml": "id = 3"}),
	}
}
