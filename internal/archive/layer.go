package archive

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Layer says how a layer of an image is unpacked: as the lower folder of an overlay mount.
//
// Names may begin with a slash, links may lead anywhere (they are made last and never followed), a later entry of a file's name replaces
// the earlier one. Setuid bits, times, owners, capabilities and attributes of the user namespace are kept. What the layer takes away from
// those below (".wh." names) becomes the overlay's own marks: character devices 0,0 and the attribute user.overlay.opaque. Devices are left
// out, since boxes have a /dev of their own. Attributes that mean something to overlays are never taken from an archive.
type Layer struct {
	// OneID: all files stay the caller's, and owners other than root, as well as capabilities, are counted as not kept. Otherwise owners and
	// capabilities are set, and it is an error that they can't.
	OneID bool
}

const (
	whPrefix   = ".wh."
	whOpaque   = ".wh..wh..opq"
	whReserved = ".wh..wh."
)

// keepsXattr tells which attributes are taken from an archive.
func (o *Options) keepsXattr(name string) bool {
	if o.Layer != nil {
		return name == "security.capability" || strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.")
	}
	return o.Xattrs && strings.HasPrefix(name, "user.")
}

// whiteout takes an entry that stands for an absence, and strips the slash off every other name. Bookkeeping of old builders is passed over.
func (u *unpacker) whiteout(m *member) bool {
	m.name = strings.TrimLeft(m.name, "/")
	name, why := clean(m.name, u.o.Depth)
	base := path.Base(name)
	if why != "" || !strings.HasPrefix(base, whPrefix) {
		return false
	}
	switch {
	case base == whOpaque:
		u.gone = append(u.gone, strings.TrimSuffix(name, whOpaque))
	case strings.HasPrefix(base, whReserved), base == whPrefix, base == whPrefix+".", base == whPrefix+"..":
	default:
		u.gone = append(u.gone, path.Join(path.Dir(name), strings.TrimPrefix(base, whPrefix)))
	}
	return true
}

// takeAway sets the marks. What the layer itself brings stays: a whiteout is about the layers below.
func (u *unpacker) takeAway() error {
	for _, name := range u.gone {
		opaque := name == "" || strings.HasSuffix(name, "/")
		name = strings.TrimSuffix(name, "/")
		if opaque && name != "" {
			if why, err := u.above(name + "/x"); err != nil {
				return err
			} else if why != "" {
				u.report.refuse(name, why)
				continue
			}
		}
		had, taken := u.made[name]
		switch {
		case name == "" || had == dir:
			if err := u.onFolder(name, markOpaque); err != nil {
				return err
			}
		case taken: // replaced in the same layer
		default:
			if err := u.mknod(name, unix.S_IFCHR, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// onFolder calls f with a folder opened.
func (u *unpacker) onFolder(name string, f func(*os.File) error) error {
	if name == "" {
		name = "."
	}
	d, err := u.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f(d), d.Close())
}

// mknod makes a special file below real folders, which are made when they are missing. A name that is taken is left alone.
func (u *unpacker) mknod(name string, kind, mode uint32) error {
	why, err := u.above(name)
	if why != "" {
		u.report.refuse(name, why)
	}
	if why != "" || err != nil {
		return err
	}
	parent := strings.TrimSuffix(path.Dir(name), ".")
	return u.onFolder(parent, func(d *os.File) error {
		err := mknodAt(d, path.Base(name), kind|mode)
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return err
	})
}

func (u *unpacker) fifo(m member) error {
	if err := u.mknod(m.name, unix.S_IFIFO, 0o600); err != nil {
		return err
	}
	if err := u.own(m, func(uid, gid int) error { return u.root.Lchown(m.name, uid, gid) }); err != nil {
		return err
	}
	u.take(m.name, fifo)
	u.report.Files++
	return u.root.Chmod(m.name, u.mode(m.mode))
}

// replace makes room for a later entry of a name. A link is not on the disk yet: the last one of its name counts.
func (u *unpacker) replace(m member) error {
	had, taken := u.made[m.name]
	if !taken || had == dir || had == symlink {
		return nil
	}
	return u.root.Remove(m.name)
}

// cleanTarget is the name of what a hard link is to.
func (u *unpacker) cleanTarget(target string) (string, string) {
	if u.o.Layer != nil {
		target = strings.TrimLeft(target, "/")
	}
	return clean(target, u.o.Depth)
}

// linkAgain makes a hard link to a symbolic link another link to the same place.
func (u *unpacker) linkAgain(m member, target string) (why string, err error) {
	l := u.links[u.linkAt[target]]
	l.name = m.name
	u.addLink(l)
	return "", nil
}

// addLink notes a link that is made at the end.
func (u *unpacker) addLink(m member) {
	u.linkAt[m.name] = len(u.links)
	u.links = append(u.links, m)
	u.take(m.name, symlink)
}

// finalLinks are the links that no later entry replaced.
func (u *unpacker) finalLinks() []member {
	if u.o.Layer == nil {
		return u.links
	}
	var out []member
	for i, m := range u.links {
		if u.linkAt[m.name] == i && u.made[m.name] == symlink {
			out = append(out, m)
		}
	}
	return out
}

// own gives a member its owner.
func (u *unpacker) own(m member, chown func(uid, gid int) error) error {
	if !u.o.Layer.OneID {
		return chown(m.uid, m.gid)
	}
	if m.uid != 0 || m.gid != 0 {
		u.report.Unowned++
	}
	return nil
}

func (u *unpacker) ownLink(m member) error {
	if u.o.Layer == nil {
		return nil
	}
	return u.own(m, func(uid, gid int) error { return u.root.Lchown(m.name, uid, gid) })
}

// attribute sets an extended attribute. Capabilities need a right that only a namespace's root has.
func (u *unpacker) attribute(f *os.File, x xattr) error {
	if u.o.Layer != nil && u.o.Layer.OneID && !strings.HasPrefix(x.name, "user.") {
		u.report.Unowned++
		return nil
	}
	return setXattr(f, x)
}

// noteImplied tells of the folders that the layer has no entry of.
func (u *unpacker) noteImplied(folders []member) {
	if u.o.Layer == nil {
		return
	}
	if len(folders) == 0 || folders[0].name != "" {
		u.report.Implied = append(u.report.Implied, "")
	}
	for _, m := range folders {
		if m.implied {
			u.report.Implied = append(u.report.Implied, m.name)
		}
	}
}
