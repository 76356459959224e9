package runlog

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPack(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, want := range []Summary{
		{},
		{Meta: Meta{ID: "a", Created: at}, Status: Queued},
		{
			Meta: Meta{
				ID: "@local/ä/x", Task: "t", TaskVersion: 1 << 40, Label: strings.Repeat("l", 300), Bundle: "b\x00", Group: "g", Eval: "e", Trial: -1,
				Created: time.Unix(-5, 0).UTC(), Labels: map[string]string{"": "", "k": "v"},
			},
			Status: Failed, Started: at, Ended: at.Add(time.Hour), Error: "no\nway", Scores: map[string]float64{"a": 0.1, "": -1e300},
		},
		{Status: Running, TakenOver: true},
	} {
		got, err := Unpack(PackMeta(want.Meta), PackState(want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	s := Summary{Meta: Meta{ID: "a", Labels: map[string]string{"k": "v"}, Created: time.Unix(1, 0)}, Status: Passed, Scores: map[string]float64{"x": 1}}
	f.Add(PackMeta(s.Meta), PackState(s))
	f.Add([]byte{}, []byte{1})
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, []byte{2})
	f.Fuzz(func(t *testing.T, meta, state []byte) {
		s, err := Unpack(meta, state)
		if err != nil {
			return
		}
		again, err := Unpack(PackMeta(s.Meta), PackState(s))
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", s) {
			t.Errorf("got  %+v, %v\nwant %+v", again, err, s)
		}
	})
}
