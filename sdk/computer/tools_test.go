package computer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/color"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/computer"
)

// TestFrames holds rows F1 to F8: ids, spaces, crops and what is refused.
func TestFrames(t *testing.T) {
	r := serve(t, newDesk(), nil)
	r.refuses("stale_frame", "computer_click", `{"x":1,"y":1}`) // F2
	r.refuses("stale_frame", "computer_screenshot", `{"region":[0,0,1,1]}`)
	f := r.call("computer_screenshot", `{}`)
	if f["frame_id"] != "f1" || f["width"] != 200.0 || f["mime"] != "image/png" || !strings.HasSuffix(f["captured_at"].(string), "Z") {
		t.Errorf("%v", f)
	}
	if got := pixel(t, f["image"].([]byte), 30, 20); got != [3]uint8{7, 20, 30} {
		t.Errorf("pixel 30,20 is %v", got)
	}
	// F6, F7: as measured, end exclusive, with the parent's time.
	crop := r.call("computer_screenshot", `{"region":[10.2,10.7,50.1,60.3]}`)
	if crop["width"] != 41.0 || crop["height"] != 51.0 || crop["parent_frame_id"] != "f1" || crop["captured_at"] != f["captured_at"] {
		t.Errorf("%v", crop)
	}
	if got := pixel(t, crop["image"].([]byte), 0, 0); got != [3]uint8{7, 10, 10} {
		t.Errorf("the crop begins with %v", got)
	}
	r.does("click left 10,10 ×1 []", "computer_click", `{"x":0,"y":0}`)     // F7: it is the latest
	r.does("click left 15,16 ×1 []", "computer_click", `{"x":5.9,"y":6.9}`) // F5: floor
	again := r.call("computer_screenshot", `{"region":[1,1,3,3]}`)          // crops chain
	r.does("click left 12,12 ×1 []", "computer_click", fmt.Sprintf(`{"x":1,"y":1,"frame_id":%q}`, again["frame_id"]))
	r.does("click left 199,99 ×1 []", "computer_click", `{"x":1000,"y":1000,"space":"norm","frame_id":"f1"}`) // F4
	r.does("click left 100,50 ×1 []", "computer_click", `{"x":5,"y":5,"space":"norm","norm_scale":10,"frame_id":"f1"}`)
	for _, args := range []string{`"x":200,"y":0`, `"x":-0.1,"y":0`, `"x":0,"y":100`, `"x":1001,"y":0,"space":"norm"`} {
		r.refuses("out_of_bounds", "computer_click", `{"frame_id":"f1",`+args+`}`)
	}
	for _, region := range []string{`[0,0,0,5]`, `[5,5,1,1]`, `[0,0,201,1]`, `[-1,0,5,5]`} {
		r.refuses("out_of_bounds", "computer_screenshot", `{"frame_id":"f1","region":`+region+`}`)
	}
	for _, args := range []string{`{"region":[1,2,3]}`, `{"frame_id":"f1"}`, `{"quality":50}`, `{"format":"jpeg","quality":96}`, `{"format":"jpeg","quality":0}`} {
		r.refuses("invalid_argument", "computer_screenshot", args) // F6, F8
	}
	low, high := r.call("computer_screenshot", `{"format":"jpeg","quality":1}`), r.call("computer_screenshot", `{"format":"jpeg","quality":95}`)
	if _, err := jpeg.Decode(bytes.NewReader(low["image"].([]byte))); err != nil || low["mime"] != "image/jpeg" || len(low["image"].([]byte)) >= len(high["image"].([]byte)) {
		t.Errorf("jpeg: %v, %d and %d bytes", err, len(low["image"].([]byte)), len(high["image"].([]byte)))
	}
}

func pixel(t *testing.T, b []byte, x, y int) [3]uint8 {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := color.NRGBAModel.Convert(m.At(x, y)).(color.NRGBA)
	if c.A != 255 {
		t.Errorf("the pixel is transparent: %v", c)
	}
	return [3]uint8{c.R, c.G, c.B}
}

// TestFrameWindow: the last 64 frames are kept (F1), and frames of another display are stale (F3), also when it changes while a call waits (Q2).
func TestFrameWindow(t *testing.T) {
	d := newDesk()
	r := serve(t, d, nil)
	for range 65 {
		r.call("computer_screenshot", `{}`)
	}
	r.refuses("stale_frame", "computer_click", `{"x":1,"y":1,"frame_id":"f1"}`)
	r.does("click left 1,1 ×1 []", "computer_click", `{"x":1,"y":1,"frame_id":"f2"}`)
	if got := pixel(t, r.call("computer_screenshot", `{"region":[5,5,9,9],"frame_id":"f3"}`)["image"].([]byte), 1, 1); got != [3]uint8{7, 6, 6} {
		t.Errorf("a crop of an old frame has %v", got)
	}
	r.call("computer_screenshot", `{}`)
	d.entered = make(chan struct{}, 100)
	d.block = make(chan struct{})
	first := make(chan result)
	go func() { first <- r.call("computer_key", `{"keys":["a"]}`) }()
	<-d.entered
	second := make(chan result)
	go func() { second <- r.call("computer_click", `{"x":1,"y":1}`) }()
	if status, body := r.ext("/agentenv/ext/computer-display/get", ""); status != 200 || body != `{"width":200,"height":100,"scale":1,"modes":[[200,100],[100,100]]}` {
		t.Errorf("%d %s", status, body)
	}
	if _, err := d.SetDisplay(t.Context(), computer.Display{Width: 100, Height: 100, Scale: 1}); err != nil {
		t.Fatal(err)
	}
	close(d.block)
	<-first
	if got := <-second; got["code"] != "stale_frame" {
		t.Errorf("a click that waited for another display: %v", got)
	}
	if status, body := r.ext("/agentenv/ext/computer-display/set", `{"width":200,"height":100}`); status != 200 || !strings.HasPrefix(body, `{"width":200`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.ext("/agentenv/ext/computer-display/set", `{"width":201,"height":100}`); status != 400 || !strings.Contains(body, `"invalid_argument"`) {
		t.Errorf("%d %s", status, body)
	}
}

// TestInputs: what each tool makes the driver do, and the ranges that the driver told (K1 to K3, K6, F9).
func TestInputs(t *testing.T) {
	r := serve(t, newDesk(), nil)
	r.call("computer_screenshot", `{}`)
	r.does("click right 3,4 ×3 [Shift Control]", "computer_click", `{"x":3,"y":4,"button":"right","count":3,"modifiers":["shift","CONTROL"]}`)
	r.does("drag left [{0 0} {9 9}] 500ms []", "computer_drag", `{"path":[[0,0],[9,9]]}`)
	r.does("drag left [{0 0} {9 9} {1 1}] 20ms [Alt]", "computer_drag", `{"path":[[0,0],[9,9],[1,1]],"duration_ms":20,"modifiers":["Alt"]}`)
	r.does("scroll down 1,2 ×3 []", "computer_scroll", `{"direction":"down","x":1,"y":2}`)
	r.does(`type "ö\n東" 50ms 10ms`, "computer_type", `{"text":"ö\n東"}`)
	r.does("press [Control s]; press [Control s]", "computer_key", `{"keys":["control","s"],"repeat":2}`)
	r.does("move 7,8", "computer_pointer_move", `{"x":7,"y":8}`)
	r.does("down left", "computer_pointer_down", `{}`)
	r.does("move 1,1; up right", "computer_pointer_up", `{"x":1,"y":1,"button":"right"}`)
	r.does("click left 1,1 ×1 []", "computer_click", `{}`) // F9: at the pointer
	if p := r.call("computer_pointer_position", `{}`); fmt.Sprintf("%v %v %v %v", p["screen"], p["x"], p["inside_frame"], p["frame_id"]) != "map[x:1 y:1] 1 true f1" {
		t.Errorf("%v", p)
	}
	for _, c := range [][2]string{
		{"computer_click", `{"x":1}`},
		{"computer_click", `{"frame_id":"f1"}`},
		{"computer_click", `{"x":1,"y":1,"count":4}`},
		{"computer_click", `{"x":1,"y":1,"count":0}`},
		{"computer_drag", `{"path":[[0,0]]}`},
		{"computer_drag", `{"path":[[0,0],[1]]}`},
		{"computer_drag", `{"path":[[0,0],[1,1],[2,2],[3,3]]}`},
		{"computer_drag", `{"path":[[0,0],[1,1]],"duration_ms":10001}`},
		{"computer_scroll", `{"direction":"up","amount":5}`},
		{"computer_key", `{"keys":[]}`},
		{"computer_key", `{"keys":["a"],"repeat":3}`},
		{"computer_key", `{"keys":["ctrl"]}`},
		{"computer_key", `{"keys":["ctrl+s"]}`},
		{"computer_key", `{"keys":["Return"]}`},
		{"computer_key", `{"keys":["a","a"]}`},
		{"computer_type", `{"text":""}`},
		{"computer_type", `{"text":"123456"}`},
		{"computer_type", `{"text":"a\u001b"}`},
		{"computer_wait", `{"ms":60001}`},
		{"computer_wait", `{"ms":-1}`},
		{"computer_keyboard_down", `{"keys":["a"],"hold_ms":10001}`},
		{"computer_keyboard_up", `{}`},
	} {
		r.refuses("invalid_argument", c[0], c[1])
	}
	r.refuses("unsupported", "computer_click", `{"x":1,"y":1,"button":"middle"}`)
	hints := map[string]string{`["ctrl","s"]`: "Control", `["ctrl+s"]`: `["Control", "s"]`, `["esc"]`: "Escape", `["cmd"]`: "Meta", `["Return"]`: "Enter"}
	for keys, want := range hints {
		if got := r.call("computer_key", `{"keys":`+keys+`}`); !strings.Contains(fmt.Sprint(got["hint"]), want) {
			t.Errorf("%s: hint %v, want %s", keys, got["hint"], want)
		}
	}
}

// TestResults: what is sent but fails is unknown (Q5), and a screenshot that fails leaves the input standing (Q4).
func TestResults(t *testing.T) {
	d := newDesk()
	r := serve(t, d, nil)
	r.call("computer_screenshot", `{}`)
	d.fail = errBroken
	if got := r.call("computer_click", `{"x":1,"y":1}`); got["code"] != "delivery_failed" || got["applied"] != "unknown" || got["retryable"] != false || got["text"] != "delivery_failed: it broke" {
		t.Errorf("%v", got)
	}
	d.fail = computer.Fail(computer.Unsupported, "no such key")
	if got := r.call("computer_key", `{"keys":["Fn"]}`); got["code"] != "unsupported" || got["applied"] != "no" {
		t.Errorf("%v", got)
	}
	got := r.does(`type "a" 50ms 10ms`, "computer_type", `{"text":"a","screenshot":true}`)
	if got["applied"] != "yes" || got["delivery"] != "foreground" || got["image"] == nil || got["frame"].(map[string]any)["frame_id"] != "f2" || got["others_since_frame"] != 0.0 {
		t.Errorf("%v", got)
	}
	d.down = errBroken
	got = r.does(`type "b" 50ms 10ms`, "computer_type", `{"text":"b","screenshot":true}`)
	if got["frame"] != nil || got["image"] != nil || !strings.Contains(got["summary"].(string), "it broke") {
		t.Errorf("%v", got)
	}
	if got := r.call("computer_screenshot", `{}`); got["code"] != "internal" || got["applied"] != "unknown" {
		t.Errorf("%v", got)
	}
}

// TestReady: tools refuse until everything has held once, and never ask again (Q6).
func TestReady(t *testing.T) {
	d := newDesk()
	d.down = errBroken
	r := serve(t, d, nil)
	r.refuses("device_unavailable", "computer_wait", `{"ms":0}`)
	if _, body := r.ext("/agentenv/ext/computer-ready/status", ""); body != `{"ready":false,"checks":[{"name":"display","ok":true,"detail":"200×100"},{"name":"capture","ok":false,"detail":"it broke"}]}` {
		t.Error(body)
	}
	d.down = nil
	if got := r.call("computer_wait", `{"ms":0}`); got["waited_ms"] != 0.0 {
		t.Errorf("%v", got)
	}
	d.down = errBroken
	if got := r.call("computer_wait", `{"ms":0}`); got["code"] != nil {
		t.Errorf("%v", got)
	}
}

// TestListing: tools, their schemas and annotations, on the card and in lists.
func TestListing(t *testing.T) {
	r := serve(t, newDesk(), nil)
	list, err := r.c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.OutputSchema == nil || tool.Annotations == nil || *tool.Annotations.OpenWorldHint {
			t.Errorf("%s lacks a schema of its results, or annotations: %+v", tool.Name, tool.Annotations)
		}
		if tool.Name == "computer_click" {
			b, err := json.Marshal(tool.InputSchema)
			if want := `"x":{"anyOf":[{"type":"number"},{"type":"null"}],"default":null,"description":"Without`; err != nil || !strings.Contains(string(b), want) {
				t.Errorf("%v: %s", err, b)
			}
			if *tool.Annotations.DestructiveHint || tool.Annotations.ReadOnlyHint {
				t.Errorf("%+v", tool.Annotations)
			}
		}
	}
	if got := strings.Join(names, " "); got != "computer_screenshot computer_click computer_drag computer_scroll computer_type computer_key computer_wait computer_pointer_move "+
		"computer_pointer_down computer_pointer_up computer_pointer_position computer_pointer_list computer_keyboard_down computer_keyboard_up" {
		t.Error(got)
	}
	_, card := r.ext("/.well-known/agent-env.json", "")
	for _, want := range []string{
		`"operations":["data/add","data/get"]`, `"children_environments":null`, `"delivery":"foreground"`, `"max_click_count":3`, `"keys":"all"`,
		`"x":{"type":"number","description":"Without x and y: at the pointer, where the computer has the pointer tools.","default":null}`, `"spaces":["frame","norm"]`,
		`"modes":[[200,100],[100,100]]`, `"max_output_bytes":1048576,"max_timeout_s":3600`, `"tap_hold_ms":{"min":0,"max":1000}`, `"load":"additive"`,
	} {
		if !strings.Contains(card, want) {
			t.Errorf("the card lacks %s", want)
		}
	}
	before := r.tool("computer_drag")
	if status, body := r.ext("/agentenv/ext/computer-spaces/set", `{"default_space":"norm","default_norm_scale":100}`); status != 200 || body != `{"default_space":"norm","default_norm_scale":100}` {
		t.Errorf("%d %s", status, body)
	}
	if after := r.tool("computer_drag"); after == before || !strings.Contains(after, "0 to 100") {
		t.Error(after)
	}
	r.call("computer_screenshot", `{}`)
	r.does("click left 100,50 ×1 []", "computer_click", `{"x":50,"y":50}`)
	if status, _ := r.ext("/agentenv/ext/computer-spaces/set", `{"default_space":"screen"}`); status != 400 {
		t.Error(status)
	}
}

// tool is a tool's description.
func (r *rig) tool(name string) string {
	r.t.Helper()
	list, err := r.c.ListTools(r.t.Context(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if tool.Name == name {
			return tool.Description
		}
	}
	return ""
}

// reuser is a desk that captures into the memory it is given.
type reuser struct {
	*desk
	reused int
}

func (d *reuser) CaptureInto(ctx context.Context, buf []byte) (computer.Image, error) {
	m, err := d.Capture(ctx)
	if cap(buf) >= len(m.Data) {
		d.reused++
	}
	m.Data = append(buf[:0], m.Data...)
	return m, err
}

// TestCaptureInto: captures share one piece of memory, and frames stay what they were.
func TestCaptureInto(t *testing.T) {
	d := &reuser{desk: newDesk()}
	r := serve(t, d.desk, func(o *computer.Options) { o.Identity = nil }, d)
	const white = "\xff\xff\xff\xff"
	for range 3 {
		r.call("computer_screenshot", `{}`)
		d.spot(10, 20)
	}
	for id, want := range map[string]bool{"f1": false, "f2": true, "f3": true} {
		got := r.call("computer_screenshot", `{"frame_id":"`+id+`","region":[10,20,11,21]}`)
		b, _ := got["image"].([]byte)
		m, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(id, err)
		}
		if at := color.RGBAModel.Convert(m.At(0, 0)).(color.RGBA); (string([]byte{at.R, at.G, at.B, at.A}) == white) != want {
			t.Errorf("%s shows %v", id, at)
		}
	}
	if d.reused < 2 {
		t.Errorf("memory was used again %d times", d.reused)
	}
}
