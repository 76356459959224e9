package doc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{
			`{"b":[1,2.0,true,null],"a":{"z":"é","A":"\ud83d\ude00\u007f/\u0001\t"},"\uffff":1,"\ud83d\ude00":2}`,
			`{"a":{"A":"\ud83d\ude00\u007f/\u0001\t","z":"\u00e9"},"b":[1,2.0,true,null],"\uffff":1,"\ud83d\ude00":2}`,
		},
		{
			`[1e16, 1e15, 1e-5, 0.0001, -0.0, 1.5E300, 123456789012345678, -0, 1E2, 0.1, 5e-324, 12345678901234567890123]`,
			`[1e+16,1000000000000000.0,1e-05,0.0001,-0.0,1.5e+300,123456789012345678,0,100.0,0.1,5e-324,12345678901234567890123]`,
		},
	} {
		if got := string(Canonical(mustJSON(t, c.src))); got != c.want {
			t.Errorf(" got %s\nwant %s", got, c.want)
		}
	}
	toml := mustTOML(t, "i = [0xff, 0o17, 0b11, 1_000, +5, -0]\nf = [1e6, 1_0.5, +1.0, 6.626e-34]\n"+
		"d = [1979-05-27, 07:32:00, 00:32:00.9999999, 1979-05-27T07:32:00, 1979-05-27 07:32:00z, 1979-05-27t00:32:00.5-07:00, 1979-05-27T07:32:00.000-00:00]\n")
	want := `{"d":["1979-05-27","07:32:00","00:32:00.999999","1979-05-27T07:32:00","1979-05-27T07:32:00+00:00","1979-05-27T00:32:00.500000-07:00","1979-05-27T07:32:00+00:00"],` +
		`"f":[1000000.0,10.5,1.0,6.626e-34],"i":[255,15,3,1000,5,0]}`
	if got := string(Canonical(toml)); got != want {
		t.Errorf(" got %s\nwant %s", got, want)
	}
	sum := sha256.Sum256(Canonical(Build(map[string]any{})))
	if got := hex.EncodeToString(sum[:]); got != "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" {
		t.Errorf("an empty config: %s", got)
	}
	if got := string(Canonical(Node{})); got != "null" {
		t.Errorf("absent: %s", got)
	}
	if got := string(JSON(Build(map[string]any{"é\u2028": "\xffé\x01\"\\"}))); got != `{"é`+"\u2028"+`":"\ufffdé\u0001\"\\"}` {
		t.Errorf("got %s", got)
	}
	if got := string(JSONIndent(mustJSON(t, `{"a":[1,{}],"b":[]}`))); got != "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}" {
		t.Errorf("got %s", got)
	}
}

// python runs a script over lines and answers a line for each; the test is skipped where there is no Python, or none with the module.
func python(t *testing.T, module, script string, in []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := exec.CommandContext(ctx, "python3", "-IS", "-c", "import "+module).Run(); err != nil {
		t.Skipf("needs python3 with %s: %v", module, err)
	}
	cmd := exec.CommandContext(ctx, "python3", "-IS", "-c", script)
	cmd.Stdin = strings.NewReader(strings.Join(in, "\n") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(got) != len(in) {
		t.Fatalf("%d lines for %d", len(got), len(in))
	}
	return got
}

const dumps = `
def dumps(v): return json.dumps(v, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=lambda d: d.isoformat())
for line in sys.stdin: print(dumps(read(json.loads(line))))
`

func TestCanonicalIsPythons(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var in, want []string
	for range 2000 {
		src := string(JSON(randomTree(rnd, 4)))
		in = append(in, src)
		want = append(want, string(Canonical(mustJSON(t, src))))
	}
	for range 5000 {
		src := randomNumber(rnd)
		in = append(in, src)
		want = append(want, string(Canonical(mustJSON(t, src))))
	}
	for i, got := range python(t, "json", "import json, sys\ndef read(v): return v\n"+dumps, in) {
		if got != want[i] {
			t.Errorf("%s: python says %s, not %s", in[i], got, want[i])
		}
	}
}

func TestCanonicalOfTOMLIsPythons(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var in, want []string
	for range 500 {
		src := randomTOML(rnd)
		line, err := json.Marshal(src)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, string(line))
		want = append(want, string(Canonical(mustTOML(t, src))))
	}
	for i, got := range python(t, "tomllib", "import json, sys, tomllib\ndef read(v): return tomllib.loads(v)\n"+dumps, in) {
		if got != want[i] {
			t.Errorf("%s:\npython says %s\n       not %s", in[i], got, want[i])
		}
	}
}

func randomString(rnd *rand.Rand) string {
	var b strings.Builder
	for range rnd.IntN(6) {
		switch rnd.IntN(6) {
		case 0:
			b.WriteRune(rune(rnd.IntN(0x80)))
		case 1:
			b.WriteRune([]rune{'é', 0x80, 0x7ff, 0x2028, 0xfffd, 0xffff, 0x10000, 0x1f600, 0x10ffff, 0xe000}[rnd.IntN(10)])
		default:
			b.WriteRune('a' + rune(rnd.IntN(26)))
		}
	}
	return b.String()
}

func randomTree(rnd *rand.Rand, depth int) Node {
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch rnd.IntN(kinds) {
	case 0:
		return Build(nil)
	case 1:
		return Build(rnd.IntN(2) == 0)
	case 2:
		return Build(rnd.Int64() >> rnd.IntN(64))
	case 3:
		return Build(randomFloat(rnd))
	case 6:
		list := []any{}
		for range rnd.IntN(4) {
			list = append(list, randomTree(rnd, depth-1))
		}
		return Build(list)
	case 7:
		m := map[string]any{}
		for range rnd.IntN(4) {
			m[randomString(rnd)] = randomTree(rnd, depth-1)
		}
		return Build(m)
	default:
		return Build(randomString(rnd))
	}
}

func randomFloat(rnd *rand.Rand) float64 {
	for {
		f := math.Float64frombits(rnd.Uint64())
		if rnd.IntN(2) == 0 {
			f = math.Round(rnd.Float64()*1e6) / math.Pow10(rnd.IntN(12)) * math.Pow10(rnd.IntN(16))
		}
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	}
}

// randomNumber is a number as JSON may spell it.
func randomNumber(rnd *rand.Rand) string {
	s := strconv.FormatUint(rnd.Uint64()>>rnd.IntN(64), 10)
	if rnd.IntN(2) == 0 {
		s = "-" + s
	}
	if rnd.IntN(4) > 0 {
		s += "." + strconv.Itoa(rnd.IntN(1000000))
	}
	if rnd.IntN(2) == 0 {
		s += []string{"e", "E+", "e-"}[rnd.IntN(3)] + strconv.Itoa(rnd.IntN(280))
	}
	return s
}

func randomTOML(rnd *rand.Rand) string {
	scalar := func() string {
		switch rnd.IntN(8) {
		case 0:
			return fmt.Sprintf("%d_%03d", rnd.IntN(99)+1, rnd.IntN(1000))
		case 1:
			return []string{"0xdead_BEEF", "0o17", "0b1101", "+7", "-0", "0"}[rnd.IntN(6)]
		case 2:
			return fmt.Sprintf("%d.%d_%de%d", rnd.IntN(100), rnd.IntN(10), rnd.IntN(10), rnd.IntN(40)-20)
		case 3:
			return fmt.Sprintf("%04d-%02d-%02d", rnd.IntN(9998)+1, rnd.IntN(12)+1, rnd.IntN(28)+1)
		case 4:
			s := fmt.Sprintf("%04d-%02d-%02d%c%02d:%02d:%02d", rnd.IntN(9998)+1, rnd.IntN(12)+1, rnd.IntN(28)+1, "Tt "[rnd.IntN(3)], rnd.IntN(24), rnd.IntN(60), rnd.IntN(60))
			if rnd.IntN(2) == 0 {
				s += fmt.Sprintf(".%0*d", rnd.IntN(8)+1, rnd.IntN(10))
			}
			return s + []string{"", "Z", "z", "+00:00", "-00:00", fmt.Sprintf("-%02d:%02d", rnd.IntN(24), rnd.IntN(60))}[rnd.IntN(6)]
		case 5:
			return fmt.Sprintf("%02d:%02d:%02d.%d", rnd.IntN(24), rnd.IntN(60), rnd.IntN(60), rnd.IntN(100000000))
		case 6:
			return []string{"true", "false", "'''\r\na\r\n'''", "\"\"\"\\\r\n  b\\u00e9\r\n\"\"\"", `"\U0001F600\t\"\\"`, "'\\'"}[rnd.IntN(6)]
		default:
			return "'" + strings.Trim(strings.Map(func(r rune) rune {
				if r < 0x20 || r == 0x7f || r == '\'' {
					return -1
				}
				return r
			}, randomString(rnd)), "\x00") + "'"
		}
	}
	var b strings.Builder
	for i := range 3 {
		fmt.Fprintf(&b, "k%d = %s\r\n", i, scalar())
		fmt.Fprintf(&b, "d.\"x y\".k%d = [%s, [%s], {a = %s, b.c = %s}] # tail\n", i, scalar(), scalar(), scalar(), scalar())
	}
	for i := range 2 {
		fmt.Fprintf(&b, "[[t]]\nv = %s\n[t.u.w]\nv%d = %s\n", scalar(), i, scalar())
	}
	fmt.Fprintf(&b, "[z.y]\nv = %s\n[z]\nw = %s\n", scalar(), scalar())
	return b.String()
}
