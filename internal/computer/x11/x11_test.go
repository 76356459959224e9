package x11

import (
	"bytes"
	"encoding/binary"
	"image/color"
	"image/png"
	"math/rand/v2"
	"testing"

	"agentenv.internal/agentenv/sdk/computer"
)

// pictures are of all kinds: flat, text-like, noise, small.
func pictures() map[string]computer.Image {
	out := map[string]computer.Image{}
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, f := range map[string]func(x, y int) uint32{
		"flat":  func(int, int) uint32 { return 0x00336699 },
		"text":  func(x, y int) uint32 { return uint32((x/2*7+y*13)%11/9) * 0x00ffffff },
		"noise": func(int, int) uint32 { return rnd.Uint32() },
		"slope": func(x, y int) uint32 { return uint32(x%256)<<16 | uint32(y%256)<<8 | rnd.Uint32()&7 },
	} {
		for _, size := range [][2]int{{1, 1}, {7, 5}, {1280, 800}} {
			m := computer.Image{Format: computer.BGRX, Width: size[0], Height: size[1]}
			for y := range m.Height {
				for x := range m.Width {
					m.Data = binary.LittleEndian.AppendUint32(m.Data, f(x, y))
				}
			}
			out[name+string(rune('0'+len(m.Data)%7))+"/"+string(rune('a'+size[0]%26))] = m
		}
	}
	return out
}

// TestEncode: every pixel comes back, opaque, whichever way it was stored.
func TestEncode(t *testing.T) {
	var e Encoder
	for name, m := range pictures() {
		b, err := e.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Bounds().Dx() != m.Width || got.Bounds().Dy() != m.Height {
			t.Fatalf("%s: %v", name, got.Bounds())
		}
		for i := 0; i < len(m.Data); i += 4 {
			x, y := i/4%m.Width, i/4/m.Width
			if want := (color.RGBA{m.Data[i+2], m.Data[i+1], m.Data[i], 255}); got.At(x, y) != want {
				t.Fatalf("%s: %d,%d is %v, want %v", name, x, y, got.At(x, y), want)
			}
		}
	}
	if _, err := e.Encode(computer.Image{Format: computer.BGRX, Width: 2, Height: 2, Data: make([]byte, 15)}); err == nil {
		t.Error("a picture that lacks bytes is encoded")
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"text", "noise"} {
		for key, m := range pictures() {
			if m.Width != 1280 || key[:4] != name[:4] {
				continue
			}
			b.Run(name, func(b *testing.B) {
				var e Encoder
				n := 0
				for b.Loop() {
					out, err := e.Encode(m)
					if err != nil {
						b.Fatal(err)
					}
					n = len(out)
				}
				b.ReportMetric(float64(n), "bytes")
			})
		}
	}
}

// TestSymbols: every named key has a symbol or is one that X lacks, and characters have those of Unicode.
func TestSymbols(t *testing.T) {
	lacking := map[computer.Key]bool{"Fn": true, "FnLock": true, "Symbol": true, "SymbolLock": true, "Accept": true, "Props": true}
	for _, k := range computer.NamedKeys() {
		if got := symbol(k) == 0; got != lacking[k] {
			t.Errorf("%s: no symbol is %v", k, got)
		}
	}
	for k, want := range map[computer.Key]keysym{"a": 'a', "ö": 0xf6, "東": 0x01006771, "€": 0x010020ac, "F24": 0xffd5, "F1": 0xffbe, "F": 'F'} {
		if got := symbol(k); got != want {
			t.Errorf("%s is %#x, want %#x", k, got, want)
		}
	}
}

// TestKeymap: a symbol is made without Shift where it can be; keys without symbols are spare.
func TestKeymap(t *testing.T) {
	answer := make([]byte, 32)
	answer[1] = 2
	for _, s := range []uint32{'a', 'A', 'b', 0, '1', '!', '!', 0, 0, 0, 0xffe1, 0} {
		answer = binary.LittleEndian.AppendUint32(answer, s)
	}
	m := parseKeymap(answer, 8)
	for s, want := range map[keysym]stroke{'a': {8, false}, 'A': {8, true}, 'b': {9, false}, 'B': {9, true}, '1': {10, false}, '!': {11, false}} {
		if got, ok := m.known(s); !ok || got != want {
			t.Errorf("%c is %v %v, want %v", rune(s), got, ok, want)
		}
	}
	if len(m.spare) != 1 || m.spare[0] != 12 || m.shift != 13 {
		t.Errorf("spare %v, shift %d", m.spare, m.shift)
	}
}

// TestSteps: a way goes through its corners, in steps of about 20 pixels.
func TestSteps(t *testing.T) {
	way := steps([]computer.Point{{X: 0, Y: 0}, {X: 100, Y: 0}, {X: 101, Y: 0}})
	if len(way) != 7 || way[0] != (computer.Point{X: 20}) || way[4] != (computer.Point{X: 100}) || way[6] != (computer.Point{X: 101}) {
		t.Errorf("%v", way)
	}
}

func TestDisplays(t *testing.T) {
	for s, want := range map[string]string{":0": " 0", ":1.0": " 1", "unix:2": " 2", "host:3": "host 3", "": "", "0": "", ":x": "", ":1.1": "", ":-1": ""} {
		host, number, err := parseDisplay(s)
		if got := host + " " + number; err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q, %v", s, got, err)
		}
	}
	name, secret := cookie(append([]byte{0xff, 0xff, 0, 0, 0, 0, 0, 18}, "MIT-MAGIC-COOKIE-1\x00\x02ab"...), "7")
	if name != "MIT-MAGIC-COOKIE-1" || string(secret) != "ab" {
		t.Errorf("%q %q", name, secret)
	}
}

// FuzzAnswers: no answer of a server makes the driver fail other than by an error.
func FuzzAnswers(f *testing.F) {
	f.Add(make([]byte, 200))
	f.Add([]byte("\xff\xff\x00\x00\x00\x00\x00\x12MIT-MAGIC-COOKIE-1\x00\x02ab"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseSetup(b); err == nil && s.firstKey > s.lastKey {
			t.Errorf("%+v", s)
		}
		cookie(b, "0")
		if len(b) >= 36 { // as ask makes sure
			parseKeymap(b, 8)
			parseResources(b)
			outputName(b)
		}
	})
}
