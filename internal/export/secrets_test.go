package export

import (
	"strings"
	"testing"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/doc"
)

// Parts of the credentials below. They are put together here, so that no file holds one whole.
var (
	mixed = strings.Repeat("a1b2c3d4e5f6g7h8i9j0", 5)
	lower = strings.Repeat("abcdefghijklmnopqrstuvwxyz", 4)
	upper = strings.Repeat("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", 3)
	jwt   = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)

func pem(what string) string {
	return "-----BEGIN " + what + "-----\nabc\ndef\n-----END " + what + "-----"
}

// canary is a text with what becomes of it; "" for one that stays.
type canary struct{ text, want, what string }

func canaries() []canary {
	var out []canary
	kept := func(texts ...string) {
		for _, t := range texts {
			out = append(out, canary{text: t})
		}
	}
	gone := func(what string, texts ...string) {
		for _, t := range texts {
			out = append(out, canary{t, masked, what})
		}
	}
	mask := func(what, text, want string) { out = append(out, canary{text, want, what}) }

	const key = "an API key"
	gone(key, "sk-"+mixed[:20], "sk_"+mixed[:20], "sk-ant-api03-"+mixed[:20], "sk_live_"+mixed[:24], "sk-"+mixed[:10]+"-"+mixed[:10], "sk-"+mixed[:10]+"_"+mixed[:10])
	kept("sk-"+mixed[:19], "sk_"+mixed[:19], "sk-"+lower[:30], "xsk-"+mixed[:30], "ask-"+mixed[:30], "_sk-"+mixed[:30], "SK-"+mixed[:30], "sk-"+mixed[:10]+"."+mixed[:10], "disk-sizes")
	mask(key, "x sk-"+mixed[:30]+" y", "x *** y")
	mask(key, "/sk-"+mixed[:30], "/***")
	mask(key, "-sk-"+mixed[:30], "-***")
	mask(key, `{"sk":"sk-`+mixed[:30]+`"}`, `{"sk":"***"}`)
	mask(key, `echo "a\nsk-`+mixed[:30]+`"`, `echo "a\n***"`)

	const github = "a GitHub token"
	for _, p := range []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"} {
		gone(github, p+upper[:36], p+upper[:40])
		kept(p + upper[:35])
	}
	kept("ghx_"+upper[:40], "gha_"+upper[:40], "github_pat_"+upper[:21])
	gone(github, "github_pat_"+upper[:22], "github_pat_"+upper[:82])
	mask(github, "https://x:y@h?"+"t=ghp_"+upper[:36], "https://***@h?t=***")

	const aws = "an AWS key id"
	gone(aws, "AKIA"+upper[:16], "ASIA"+upper[:16])
	kept("AKIA"+upper[:15], "AKIA"+upper[:17], "AKIA"+lower[:16], "xAKIA"+upper[:16], "AKIA"+upper[:16]+"x")
	mask(aws, " AKIA"+upper[:16]+".", " ***.")

	const slack = "a Slack token"
	for _, c := range "bpasroe" {
		gone(slack, "xox"+string(c)+"-"+mixed[:12])
	}
	gone(slack, "xoxb-"+mixed[:10])
	kept("xoxb-"+mixed[:9], "xox1-"+mixed[:12], "xox-"+mixed[:12])

	gone("a Google API key", "AIza"+upper[:35], "AIza"+strings.Repeat("-_", 18)[:35], "AIza"+upper[:40])
	kept("AIza" + upper[:34])
	gone("a Hugging Face token", "hf_"+mixed[:30], "hf_"+lower[:34])
	kept("hf_"+mixed[:29], "hf_"+lower[:20])

	gone("a JSON web token", jwt)
	kept("eyJ"+"hbGci.eyJzdWIi.abc", jwt[:strings.LastIndex(jwt, ".")+1], "eyJ"+"hbGciOiJIUzI1NiJ9.x.y", "eyJ"+"hbGciO.eyJzdWIiOi.dozjgNryP4")
	mask("a JSON web token", "Authorization: Bearer "+jwt, "Authorization: Bearer ***")

	const private = "a private key"
	for _, w := range []string{"RSA ", "", "EC ", "OPENSSH ", "DSA ", "ENCRYPTED ", "PGP "} {
		mask(private, pem(w+"PRIVATE KEY")+"\ntail", "***\ntail")
	}
	gone(private, "-----BEGIN RSA PRIVATE KEY-----\nabc no end", pem("PGP PRIVATE KEY BLOCK"))
	kept(pem("PUBLIC KEY"), pem("CERTIFICATE"))
	mask(private, "pre "+strings.ReplaceAll(pem("RSA PRIVATE KEY"), "\n", " ")+" post", "pre *** post")

	const url = "a URL's credentials"
	for text, want := range map[string]string{
		"https://u:p@h/x": "https://***@h/x", "https://" + mixed[:16] + "@h/x": "https://***@h/x", "https://:p@h": "https://***@h", "https://u:@h": "https://***@h",
		"postgres://u:p@h:5432/db": "postgres://***@h:5432/db", "ssh://git:x@h": "ssh://***@h", "HTTPS://u:p@h": "HTTPS://***@h", "x+y-z.1://a:b@c": "x+y-z.1://***@c",
		"ftp://a:b@h and http://c:d@h": "ftp://***@h and http://***@h", "scheme://u:p@q@h": "scheme://***@h", "https://h?x=a:b@c": "https://***@c", "https://u:p@": "https://***@",
		"https://<user>:<pw>@h": "https://***@h",
	} {
		mask(url, text, want)
	}
	kept("https://user@h/x", "https://"+mixed[:15]+"@h/x", "http://h/x@y", "http://h/a:b@c", "//u:p@h", "mailto:a:b@h", "git+ssh://git@host.example/x", "u:p@h", "https://u:p p@h")
	kept("bearer abcdef", "Authorization: Bearer "+mixed[:30], "password=hunter2", "", "***", "plain text with nothing in it", "日本 é")
	return out
}

func TestMask(t *testing.T) {
	m := newMasker()
	for _, c := range canaries() {
		want := c.want
		if c.what == "" {
			want = c.text
		}
		got, found := m.mask(c.text)
		if got != want || (len(found) > 0) != (c.what != "") || c.what != "" && !strings.Contains(strings.Join(found, ", "), c.what) {
			t.Errorf("%q becomes %q (%v), want %q (%s)", c.text, got, found, want, c.what)
		}
		// Within other text it is the same.
		for _, around := range []string{"token=%", "a % b", `"%"`, "line\n%\nline", "(%)", "%,x"} {
			got, _ := m.mask(strings.ReplaceAll(around, "%", c.text))
			if c.what == "" || c.what == "a private key" && !strings.HasSuffix(want, "tail") && !strings.Contains(c.text, "END") {
				continue
			}
			if again := strings.ReplaceAll(around, "%", want); got != again {
				t.Errorf("%q becomes %q, want %q", strings.ReplaceAll(around, "%", c.text), got, again)
			}
		}
	}
	got, found := m.mask("sk-" + mixed[:30] + " and ghp_" + upper[:36])
	if got != "*** and ***" || strings.Join(found, ", ") != "an API key, a GitHub token" {
		t.Errorf("%q, %v", got, found)
	}
}

func TestSecretNames(t *testing.T) {
	for name, want := range map[string]bool{
		"DB_PASSWORD": true, "passwd": true, "X_PASSPHRASE_Y": true, "MY_SECRET": true, "API_TOKEN": true, "MAXTOKENS": true, "AWS_CREDENTIAL_FILE": true, "OPENAI_API_KEY": true,
		"private_key": true, "AUTHOR": true, "BEARER": true, "HTTP_HEADERS": true, "APIKEY": false, "PRIVATEKEY": false, "API-KEY": false, "KEY": false, "PWD": false, "PASS": false,
		"LANG": false, "": false,
	} {
		if got := secretName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestScrub(t *testing.T) {
	key := "sk-" + mixed[:30]
	src := map[string]any{
		"env_vars": map[string]any{
			"API_TOKEN": "1", "A.SECRET.B": "x", "N_TOKENS": 5, "OK": "plain", "WITH": "https://u:p@h", "NUMBER": 3, "BARE_TOKEN": "env:X", "EMPTY_AUTH": "",
		},
		"metadata": map[string]any{
			"env_vars": map[string]any{"TOKEN": "1", "OK": "2"}, "api_key": "not a variable", "headers": map[string]any{"Authorization": "Bearer " + jwt}, key: "v", "deep": []any{[]any{"a", key}},
		},
		"artifact_id": "AKIA" + upper[:16],
		"text":        "x " + key + " ghp_" + upper[:36],
		"none":        nil,
	}
	var left []string
	out := newMasker().scrub(doc.Build(src), map[string]bool{"artifact_id": true}, func(path, why string) { left = append(left, path+": "+why) })
	const want = `{"artifact_id":"AKIA` + `ABCDEFGHIJKLMNOP","env_vars":{"NUMBER":3,"OK":"plain"},"metadata":{"api_key":"not a variable","deep":[["a","***"]],"env_vars":{"OK":"2"},` +
		`"headers":{"Authorization":"Bearer ***"}},"none":null,"text":"x *** ***"}`
	if got := string(doc.Canonical(out)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const told = `env_vars.A.SECRET.B: dropped: its name looks like a secret
env_vars.API_TOKEN: dropped: its name looks like a secret
env_vars.BARE_TOKEN: dropped: its name looks like a secret
env_vars.EMPTY_AUTH: dropped: its name looks like a secret
env_vars.N_TOKENS: dropped: its name looks like a secret
env_vars.WITH: dropped: its value holds a URL's credentials
metadata.deep[0][1]: masked: an API key
metadata.env_vars.TOKEN: dropped: its name looks like a secret
metadata.headers.Authorization: masked: a JSON web token
metadata.***: dropped: its name holds an API key
text: masked: an API key, a GitHub token`
	if got := strings.Join(left, "\n"); got != told {
		t.Errorf("told\n%s", got)
	}
}

func FuzzMask(f *testing.F) {
	for _, c := range canaries() {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m := newMasker()
		once, found := m.mask(text)
		if (once != text) != (len(found) > 0) {
			t.Errorf("%q becomes %q, and %v is told", text, once, found)
		}
		if again, more := m.mask(once); again != once {
			t.Errorf("%q: %q still holds %v", text, once, more)
		}
		if utf8.ValidString(text) && !utf8.ValidString(once) {
			t.Errorf("%q becomes %q", text, once)
		}
	})
}
