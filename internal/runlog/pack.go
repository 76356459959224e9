package runlog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// packFormat begins a packed value. Then come texts (length, bytes) and numbers (varint); times are microseconds, 0 for none.
const packFormat = 1

func packText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func packTime(b []byte, t time.Time) []byte { return binary.AppendVarint(b, micros(t)) }

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// PackMeta packs what never changes of a summary, and PackState what events change: a log keeps the two values of a run beside the
// columns that it selects by, since reading 16 columns of 10,000 rows takes three times as long.
func PackMeta(m Meta) []byte {
	b := make([]byte, 0, 256)
	b = append(b, packFormat)
	for _, s := range [...]string{m.ID, m.Task, m.Label, m.Bundle, m.Group, m.Eval} {
		b = packText(b, s)
	}
	b = binary.AppendVarint(b, int64(m.TaskVersion))
	b = binary.AppendVarint(b, int64(m.Trial))
	b = packTime(b, m.Created)
	b = binary.AppendUvarint(b, uint64(len(m.Labels)))
	for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
		b = packText(packText(b, k), m.Labels[k])
	}
	if !m.Options.IsZero() {
		text, err := json.Marshal(m.Options)
		if err != nil { // PrepareMeta has refused such
			panic(fmt.Sprintf("runlog: pack the options of a run: %v", err))
		}
		b = packText(b, string(text))
	}
	return b
}

// PackState packs Status, Started, Ended, Error, Scores and, where it is true, TakenOver.
func PackState(s Summary) []byte {
	b := make([]byte, 0, 64)
	b = append(b, packFormat)
	b = packText(b, string(s.Status))
	b = packTime(b, s.Started)
	b = packTime(b, s.Ended)
	b = packText(b, s.Error)
	b = binary.AppendUvarint(b, uint64(len(s.Scores)))
	for _, k := range slices.Sorted(maps.Keys(s.Scores)) {
		b = packText(b, k)
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(s.Scores[k]))
	}
	if s.TakenOver {
		b = append(b, 1)
	}
	return b
}

// unpacker reads a packed value. Its texts share one string; after a fault everything reads as zero.
type unpacker struct {
	s   string
	bad bool
}

func newUnpacker(b []byte) unpacker {
	u := unpacker{s: string(b)}
	if len(u.s) == 0 || u.s[0] != packFormat {
		return unpacker{bad: true}
	}
	u.s = u.s[1:]
	return u
}

func (u *unpacker) uvarint() uint64 {
	var v uint64
	for i := 0; i < len(u.s) && i < binary.MaxVarintLen64; i++ {
		c := u.s[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			u.s = u.s[i+1:]
			return v
		}
	}
	u.s, u.bad = "", true
	return 0
}

func (u *unpacker) varint() int64 {
	v := u.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (u *unpacker) text() string {
	n := u.uvarint()
	if n > uint64(len(u.s)) {
		u.s, u.bad = "", true
		return ""
	}
	t := u.s[:n]
	u.s = u.s[n:]
	return t
}

func (u *unpacker) time() time.Time { return fromMicros(u.varint()) }

func (u *unpacker) float() float64 {
	if len(u.s) < 8 {
		u.s, u.bad = "", true
		return 0
	}
	v := binary.BigEndian.Uint64([]byte(u.s[:8]))
	u.s = u.s[8:]
	return math.Float64frombits(v)
}

// count is a length that what is left can hold, each element taking at least size bytes.
func (u *unpacker) count(size int) int {
	n := u.uvarint()
	if n > uint64(len(u.s)/size) {
		u.s, u.bad = "", true
		return 0
	}
	return int(n)
}

// Unpack puts together what PackMeta and PackState packed.
func Unpack(meta, state []byte) (Summary, error) {
	var s Summary
	u := newUnpacker(meta)
	for _, p := range [...]*string{&s.ID, &s.Task, &s.Label, &s.Bundle, &s.Group, &s.Eval} {
		*p = u.text()
	}
	s.TaskVersion, s.Trial, s.Created = int(u.varint()), int(u.varint()), u.time()
	if n := u.count(2); n > 0 {
		s.Labels = make(map[string]string, n)
		for range n {
			k := u.text()
			s.Labels[k] = u.text()
		}
	}
	if u.s != "" {
		u.bad = json.Unmarshal([]byte(u.text()), &s.Options) != nil || u.bad
	}
	bad := u.bad || u.s != ""
	u = newUnpacker(state)
	s.Status, s.Started, s.Ended, s.Error = Status(u.text()), u.time(), u.time(), u.text()
	if n := u.count(9); n > 0 {
		s.Scores = make(map[string]float64, n)
		for range n {
			k := u.text()
			s.Scores[k] = u.float()
		}
	}
	if u.s != "" {
		s.TakenOver = u.uvarint() == 1
		u.bad = u.bad || !s.TakenOver
	}
	if bad || u.bad || u.s != "" {
		return Summary{}, fmt.Errorf("the packed record of run %q is damaged", s.ID)
	}
	return s, nil
}
