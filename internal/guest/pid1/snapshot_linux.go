package pid1

import (
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/tree"
)

// snapshot sends what the box wrote as one layer, while everything in the box stands still. merge is how many of the topmost layers that it
// began with go into the same one.
func (s *server) snapshot(w io.Writer, merge int) error {
	resume, err := s.pause()
	if err != nil {
		return err
	}
	defer resume()
	p := tree.NewPacker(w)
	p.Exact, p.Max = true, s.most
	for _, at := range s.places {
		dirs := []int{at.upper}
		for i, fd := range at.lowers[:at.stacked] {
			if at.from[i] < merge {
				dirs = append(dirs, fd)
			}
		}
		var st unix.Stat_t
		if err := unix.Fstat(at.upper, &st); err != nil {
			return err
		}
		name := guest.PlaceName(at.path)
		if err := p.Add(at.upper, ".", name, &st); err != nil {
			return err
		}
		if err := tree.PackMerged(p, dirs, name+"/"); err != nil {
			return err
		}
	}
	return p.Close()
}

// diff sends what is different from what the box began with, under its real names. Each entry says in the record guest.ChangeRecord how.
func (s *server) diff(w io.Writer, brief bool) error {
	resume, err := s.pause()
	if err != nil {
		return err
	}
	defer resume()
	p := tree.NewPacker(w)
	p.Exact, p.Brief = true, brief
	if !brief {
		p.Max = s.most
	}
	for _, at := range s.places {
		rel := strings.TrimPrefix(at.path, "/")
		if rel != "" {
			rel += "/"
		}
		if err := diffDir(p, at.upper, at.lowers, rel); err != nil {
			return err
		}
	}
	return p.Close()
}

// diffDir packs the changes that the folder upper makes to what base shows, merged.
func diffDir(p *tree.Packer, upper int, base []int, rel string) error {
	names, err := tree.NamesIn([]int{upper})
	if err != nil {
		return err
	}
	if tree.IsOpaque(upper) {
		below, err := tree.NamesIn(base)
		if err != nil {
			return err
		}
		for _, name := range below {
			if _, found := slices.BinarySearch(names, name); found {
				continue
			}
			if err := diffGone(p, base, name, rel+name); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		if err := diffEntry(p, upper, base, name, rel); err != nil {
			return err
		}
	}
	return nil
}

// diffGone packs the absence of what base shows at name; where it shows nothing, there is none.
func diffGone(p *tree.Packer, base []int, name, rel string) error {
	old := tree.Child(base, name)
	if old == nil {
		return nil
	}
	defer old.Close()
	p.Records = map[string]string{guest.ChangeRecord: guest.Deleted}
	return p.Add(-1, "", rel, &unix.Stat_t{Mode: unix.S_IFCHR})
}

func diffEntry(p *tree.Packer, upper int, base []int, name, rel string) error {
	e := tree.Shown([]int{upper}, name)
	if e == nil {
		return nil
	}
	defer e.Close()
	if tree.Whiteout(&e.Stat) {
		return diffGone(p, base, name, path.Join(rel, name))
	}
	change := guest.Added
	var below []int
	if old := tree.Child(base, name); old != nil {
		defer old.Close()
		change, below = guest.Modified, old.Dirs
		if len(e.Dirs) > 0 && len(old.Dirs) > 0 && alike(&e.Stat, &old.Stat) {
			change = "" // it is there for what is in it
		}
	}
	if change != "" {
		p.Records = map[string]string{guest.ChangeRecord: change}
		if err := p.Add(e.At, name, rel+name, &e.Stat); err != nil {
			return err
		}
	}
	if len(e.Dirs) == 0 {
		return nil
	}
	return diffDir(p, e.Dirs[0], below, rel+name+"/")
}

func alike(a, b *unix.Stat_t) bool { return a.Mode == b.Mode && a.Uid == b.Uid && a.Gid == b.Gid }
