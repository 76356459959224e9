package step

import "testing"

func TestChild(t *testing.T) {
	for _, name := range []string{"hello", "a/b", "100%", "%2F", "%25/%2F", ""} {
		h := &History{}
		d := &Diff{}
		if err := d.Set(Child("metadata/x", name), 7); err != nil {
			t.Fatal(err)
		}
		h.Commit(0, d.Ops())
		v := h.View(func(int) bool { return true })
		var got int
		if ok, err := v.Get(Child("metadata/x", name), &got); !ok || err != nil || got != 7 {
			t.Errorf("%q: %v %v %v", name, got, ok, err)
		}
		if under := v.Under("metadata/x"); len(under) != 1 || Unchild(under[0]) != name {
			t.Errorf("%q is under its parent as %q", name, under)
		}
	}
}
