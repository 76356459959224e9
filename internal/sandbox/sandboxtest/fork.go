package sandboxtest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// forker is a provider that can fork; one that can't has no such methods, and these tests are not for it.
func (s *suite) forker(t *testing.T) (sandbox.Provider, sandbox.Forker) {
	t.Helper()
	p := s.provider(t)
	f, ok := p.(sandbox.Forker)
	if !ok {
		t.Skip("the provider has no snapshots")
	}
	return p, f
}

// snapshot takes one that the test removes.
func snapshot(t *testing.T, f sandbox.Forker, box string, o sandbox.SnapshotOptions) sandbox.Snapshot {
	t.Helper()
	s, err := f.Snapshot(t.Context(), box, o)
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	t.Cleanup(func() {
		if err := f.RemoveSnapshot(context.WithoutCancel(t.Context()), s.ID); err != nil {
			t.Errorf("remove snapshot %s: %v", s.ID, err)
		}
	})
	return s
}

func (s *suite) from(t *testing.T, p sandbox.Provider, snap string) (string, guest.Box) {
	t.Helper()
	info := create(t, p, s.spec(func(s *sandbox.Spec) { s.From = snap }))
	if info.From != snap {
		t.Errorf("the box says that it began with %q, not %q", info.From, snap)
	}
	return info.ID, connect(t, p, info.ID)
}

func run(t *testing.T, b guest.Box, script string) string {
	t.Helper()
	r := output(t, b, sh(script), guest.Limits{})
	if !r.Exit.OK() {
		t.Fatalf("%s: %+v: %s", script, r.Exit, r.Stderr.String())
	}
	return r.Stdout.String()
}

// everywhere writes into every place of a box, and takes away what it began with.
const everywhere = `set -e
long=$(printf '%0250d' 0)
mkdir -p /work/deep/er /work/empty /srv/data /var/lib/app /opt/mine /root/.cfg /home/me
echo one >/work/one; echo two >/work/deep/er/two; echo "$long" >"/work/$long"; printf 'nl' >"/work/a
b"; echo spaces >"/work/  x  "
ln -s ../one /work/deep/link; ln -s /etc/passwd /work/absolute; ln /work/one /work/hard
chmod 4750 /work/deep/er/two; chmod 1777 /work/empty; mkfifo /work/fifo
touch -d '2001-02-03 04:05:06' /work/deep/er/two
echo etc >/etc/mine.conf; echo changed >>/etc/hosts; echo usr >/usr/local/bin/mine; chmod 755 /usr/local/bin/mine
echo opt >/opt/mine/x; echo tmp >/tmp/t; echo var >/var/lib/app/x; echo home >/root/.cfg/x; echo run >/run/x
rm -rf /usr/share/doc 2>/dev/null || true; rm -f /etc/hostname; rm -rf /srv; mkdir /srv; echo new >/srv/only
rm -rf /etc/default; mkdir /etc/default; echo mine >/etc/default/only
echo shm >/dev/shm/x
`

// looks tells of everything that everywhere did.
const looks = `cd /
for f in /work /work/* /work/deep /work/deep/* /work/deep/er/two /srv /srv/* /etc/default /etc/default/* /etc/mine.conf /usr/local/bin/mine /opt/mine/x /var/lib/app/x /root/.cfg/x /run/x /tmp/t /home/me /tmp /root; do
  stat -c '%A %u %g %s %F %N' "$f" | sed 's/^\(d[^ ]* [0-9]* [0-9]*\) [0-9]*/\1 -/'
done
stat -c '%Y' /work/deep/er/two; [ /work/one -ef /work/hard ] && echo same
cat /work/one /work/deep/er/two /work/absolute /etc/mine.conf /usr/local/bin/mine /opt/mine/x /var/lib/app/x /root/.cfg/x /run/x /tmp/t /srv/only
grep -c changed /etc/hosts; ls -A /srv /etc/default; ls /usr/share/doc /etc/hostname 2>&1 | wc -l; ls /dev/shm`

func forkKeepsEverything(t *testing.T, s *suite) {
	p, f := s.forker(t)
	info := create(t, p, s.spec())
	box := connect(t, p, info.ID)
	run(t, box, everywhere)
	want := run(t, box, looks)
	snap := snapshot(t, f, info.ID, sandbox.SnapshotOptions{Name: "all"})
	if snap.Box != info.ID || snap.Name != "all" || snap.Bytes == 0 || snap.Files < 20 || snap.Layers != 1 || time.Since(snap.Created) > time.Minute {
		t.Errorf("the snapshot: %+v", snap)
	}
	if got := run(t, box, looks); got != want {
		t.Errorf("the snapshot changed its box:\n%s\nwas\n%s", got, want)
	}
	_, child := s.from(t, p, snap.ID)
	want = strings.Replace(want, "\nx\n", "\n", 1) // /dev/shm is memory of processes, not of the snapshot
	if got := run(t, child, looks); strings.TrimSuffix(got, "x\n") != strings.TrimSuffix(want, "x\n") {
		t.Errorf("the fork:\n%s\nits parent:\n%s", got, want)
	}
	if got := run(t, child, "hostname; cat /proc/1/comm >/dev/null 2>&1; touch /etc/x /usr/x /opt/x /work/x /tmp/x && echo ok; echo hi >/dev/null; ls /dev/null"); !strings.Contains(got, "ok") {
		t.Errorf("the fork can't write: %q", got)
	}
	if _, err := p.Create(t.Context(), s.spec(func(s *sandbox.Spec) { s.From = "no-such-snapshot" })); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a box from a snapshot that isn't there: %v", err)
	}
	if _, err := f.Snapshot(t.Context(), "no-such-box", sandbox.SnapshotOptions{}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a snapshot of no box: %v", err)
	}
}

func forksAreApart(t *testing.T, s *suite) {
	p, f := s.forker(t)
	info := create(t, p, s.spec())
	parent := connect(t, p, info.ID)
	run(t, parent, "mkdir /w && echo base >/w/a && ln /w/a /w/b && echo keep >/w/keep")
	snap := snapshot(t, f, info.ID, sandbox.SnapshotOptions{})
	boxes := []guest.Box{parent}
	for range 3 {
		_, b := s.from(t, p, snap.ID)
		boxes = append(boxes, b)
	}
	for i, b := range boxes {
		run(t, b, fmt.Sprintf("echo mine%d >>/w/a; echo %d >/w/only%d; rm /w/keep; chmod 600 /w/b", i, i, i))
	}
	for i, b := range boxes {
		want := fmt.Sprintf("base\nmine%d\na\nb\nonly%d\n", i, i)
		if got := run(t, b, "cat /w/a; ls /w"); got != want {
			t.Errorf("box %d has %q, want %q", i, got, want)
		}
	}
	_, late := s.from(t, p, snap.ID)
	if got := run(t, late, "cat /w/a /w/b; ls /w; stat -c %a /w/b"); got != "base\nbase\na\nb\nkeep\n644\n" {
		t.Errorf("the snapshot was changed by the boxes that began with it: %q", got)
	}
}

func forkOfForks(t *testing.T, s *suite) {
	p, f := s.forker(t)
	info := create(t, p, s.spec())
	id, box := info.ID, connect(t, p, info.ID)
	run(t, box, "mkdir /w && echo 0 >/w/gen && mkdir /w/gone && echo x >/w/gone/x && echo y >/w/file && head -c 300000 /dev/urandom >/w/big")
	sum := run(t, box, "cksum </w/big")
	const generations = 20 // more than a chain may be long
	var last sandbox.Snapshot
	for i := 1; i <= generations; i++ {
		last = snapshot(t, f, id, sandbox.SnapshotOptions{Passing: i < generations})
		next, b := s.from(t, p, last.ID)
		if last.Added > 200_000 && i > 1 {
			t.Errorf("generation %d copied %d bytes", i, last.Added)
		}
		script := fmt.Sprintf("echo %d >>/w/gen; echo %d >/w/f%d; rm -f /w/f%d", i, i, i, i-3)
		switch i {
		case 4:
			script += "; rm -rf /w/gone; rm /w/file; mkdir /w/file"
		case 9:
			script += "; mkdir /w/gone; echo z >/w/gone/z; rmdir /w/file"
		}
		run(t, b, script)
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := f.RemoveSnapshot(t.Context(), last.ID); err != nil && i < generations {
			t.Fatal(err)
		}
		id, box = next, b
	}
	if got := run(t, box, "wc -l </w/gen | tr -d ' '; ls /w /w/gone"); got != "21\n/w:\nbig\nf18\nf19\nf20\ngen\ngone\n\n/w/gone:\nz\n" {
		t.Errorf("after %d generations: %q", generations, got)
	}
	if got := run(t, box, "cksum </w/big"); got != sum {
		t.Errorf("the large file changed: %q, was %q", got, sum)
	}
	if last.Layers > 16 {
		t.Errorf("the chain has %d layers", last.Layers)
	}
}

func forkPauses(t *testing.T, s *suite) {
	p, f := s.forker(t)
	info := create(t, p, s.spec())
	box := connect(t, p, info.ID)
	// Two files that are always alike when nothing is in between, one process that was stopped before, and one that runs.
	run(t, box, `mkdir /w; echo 0 >/w/a; echo 0 >/w/b
(i=0; while :; do i=$((i+1)); echo $i >/w/a; echo $i >/w/b; done) >/dev/null 2>&1 &
sleep 301 >/dev/null 2>&1 & kill -STOP $!; until grep -q ') T' /proc/$!/stat; do :; done`)
	for range 5 {
		snap := snapshot(t, f, info.ID, sandbox.SnapshotOptions{Passing: true})
		id, child := s.from(t, p, snap.ID)
		got := strings.Fields(run(t, child, "cat /w/a; echo; cat /w/b"))
		if len(got) > 2 || len(got) == 2 && got[0] != got[1] && fmt.Sprint(atoi(got[1])+1) != got[0] {
			t.Errorf("the snapshot caught the box in motion: %q", got)
		}
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	before := run(t, box, "cat /w/b")
	eventually(t, "the parent to go on", func() bool { return run(t, box, "cat /w/b") != before })
	if got := run(t, box, "cat /proc/[0-9]*/stat | sed 's/.*) //' | grep -c ^T; true"); strings.TrimSpace(got) != "1" {
		t.Errorf("of what was stopped before %s is", strings.TrimSpace(got))
	}
	// One who asks for a snapshot and doesn't take it doesn't stop the box.
	stream, err := f.Diff(t.Context(), info.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	stream.Close()
	before = run(t, box, "cat /w/b")
	eventually(t, "the box to go on after a diff that nobody read", func() bool { return run(t, box, "cat /w/b") != before })
}

func atoi(s string) (n int) {
	fmt.Sscan(s, &n)
	return n
}

func snapshotOutlivesItsBox(t *testing.T, s *suite) {
	p, f := s.forker(t)
	info := create(t, p, s.spec())
	run(t, connect(t, p, info.ID), "echo alive >/kept")
	passing, err := f.Snapshot(t.Context(), info.ID, sandbox.SnapshotOptions{Passing: true})
	if err != nil {
		t.Fatal(err)
	}
	snap := snapshot(t, f, info.ID, sandbox.SnapshotOptions{Name: "kept"})
	if err := p.Destroy(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	id, box := s.from(t, p, snap.ID)
	if got := run(t, box, "cat /kept"); got != "alive\n" {
		t.Errorf("from a dead box's snapshot: %q", got)
	}
	all, err := f.Snapshots(t.Context())
	if err != nil || len(all) != 1 || all[0] != snap {
		t.Errorf("the snapshots: %+v, %v, want %+v alone", all, err, snap)
	}
	for range 2 { // removing is idempotent, and takes nothing from those that live
		for _, id := range []string{snap.ID, passing.ID, "no-such-snapshot"} {
			if err := f.RemoveSnapshot(t.Context(), id); err != nil {
				t.Errorf("remove %s: %v", id, err)
			}
		}
	}
	if got := run(t, box, "cat /kept; echo more >>/kept; cat /kept"); got != "alive\nalive\nmore\n" {
		t.Errorf("after its snapshot was removed: %q", got)
	}
	if _, err := p.Create(t.Context(), s.spec(func(s *sandbox.Spec) { s.From = snap.ID })); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a box from a removed snapshot: %v", err)
	}
	again := snapshot(t, f, id, sandbox.SnapshotOptions{})
	if again.Layers != 2 {
		t.Errorf("a fork's snapshot has %d layers", again.Layers)
	}
	_, child := s.from(t, p, again.ID)
	if got := run(t, child, "cat /kept"); got != "alive\nmore\n" {
		t.Errorf("from a fork's snapshot: %q", got)
	}
}

func snapshotTravels(t *testing.T, s *suite) {
	p, f := s.forker(t)
	info := create(t, p, s.spec())
	run(t, connect(t, p, info.ID), everywhere)
	first := snapshot(t, f, info.ID, sandbox.SnapshotOptions{})
	id, box := s.from(t, p, first.ID)
	run(t, box, "rm -r /work/deep; mkdir /work/deep; echo again >/work/deep/again; echo more >>/work/one")
	const look = "cd /; find /work /srv /etc/default /usr/local/bin/mine -type d -printf '%M %U %G %p\n' -o -printf '%M %U %G %p %l %s %T@\n' | sort; ls /usr/share/doc /etc/hostname 2>&1; cat /work/one /work/deep/again"
	want := run(t, box, look)
	snap := snapshot(t, f, id, sandbox.SnapshotOptions{Name: "far"})
	var exported bytes.Buffer
	if err := f.ExportSnapshot(t.Context(), snap.ID, &exported); err != nil {
		t.Fatal(err)
	}
	q, g := s.forker(t)
	there, err := g.ImportSnapshot(t.Context(), bytes.NewReader(exported.Bytes()), sandbox.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.RemoveSnapshot(context.WithoutCancel(t.Context()), there.ID); err != nil {
			t.Error(err)
		}
	})
	if there.Name != "far" || there.Layers != 1 || there.Needs != snap.Needs {
		t.Errorf("imported: %+v, exported: %+v", there, snap)
	}
	_, child := s.from(t, q, there.ID)
	if got := run(t, child, look); got != want {
		t.Errorf("elsewhere:\n%s\nwas\n%s", got, want)
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "no tar": []byte(strings.Repeat("x", 2000)), "half": exported.Bytes()[:exported.Len()/2],
		"another tar": pack(t, &tar.Header{Typeflag: tar.TypeReg, Name: "another.json", Size: 1}, "x").Bytes(),
		"arch":        bytes.Replace(exported.Bytes(), []byte(`"arch":"`), []byte(`"arch":"z`), 1)[:exported.Len()],
	} {
		if s, err := g.ImportSnapshot(t.Context(), bytes.NewReader(bad), sandbox.SnapshotOptions{}); err == nil {
			t.Errorf("%s was taken for a snapshot: %+v", name, s)
		}
	}
	if all, err := g.Snapshots(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("after what was refused: %+v, %v", all, err)
	}
}

func diff(t *testing.T, s *suite) {
	p, f := s.forker(t)
	info := create(t, p, s.spec())
	box := connect(t, p, info.ID)
	changes := func(id string) string {
		t.Helper()
		r, err := f.Diff(t.Context(), id, true)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		all, err := sandbox.ReadChanges(r)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, c := range all {
			fmt.Fprintf(&b, "%s %s %s %d\n", c.Kind, c.Path, c.Type, c.Size)
		}
		return b.String()
	}
	if got := changes(info.ID); got != "" {
		t.Errorf("a fresh box has changes:\n%s", got)
	}
	run(t, box, `mkdir /w; echo hello >/w/a; ln -s a /w/l; echo x >>/etc/passwd; rm /etc/hosts; rm -r /etc/default; mkdir /etc/default; echo n >/etc/default/n; chmod 700 /srv; touch /usr/bin/new`)
	got := changes(info.ID)
	for _, want := range []string{"A /w dir 0\n", "A /w/a file 6\n", "A /w/l link 0\n", "M /etc/passwd file ", "D /etc/hosts  0\n", "A /etc/default/n file 2\n", "M /srv dir 0\n", "A /usr/bin/new file 0\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the changes lack %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, " /etc dir") || strings.Contains(got, " /usr/bin dir") || strings.Contains(got, "/dev") || strings.Contains(got, "/proc") {
		t.Errorf("the changes name what didn't change:\n%s", got)
	}
	snap := snapshot(t, f, info.ID, sandbox.SnapshotOptions{})
	id, child := s.from(t, p, snap.ID)
	if got := changes(id); got != "" {
		t.Errorf("a fresh fork has changes:\n%s", got)
	}
	run(t, child, "rm /w/a; echo t >/tmp/t; echo back >/etc/hosts")
	if got := changes(id); got != "A /tmp/t file 2\nD /w/a  0\nA /etc/hosts file 5\n" {
		t.Errorf("a fork's changes:\n%s", got)
	}
	r, err := f.Diff(t.Context(), id, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the tar of changes lacks tmp/t")
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "tmp/t" {
			if b, err := io.ReadAll(tr); err != nil || string(b) != "t\n" || h.Mode != 0o644 {
				t.Errorf("tmp/t: %q, %v, %o", b, err, h.Mode)
			}
			break
		}
	}
}
