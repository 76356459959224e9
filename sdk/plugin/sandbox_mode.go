package plugin

import "io/fs"

// Bits of modes as stat(2) has them.
const (
	unixType   = 0o170000
	unixSocket = 0o140000
	unixLink   = 0o120000
	unixFile   = 0o100000
	unixBlock  = 0o060000
	unixDir    = 0o040000
	unixChar   = 0o020000
	unixPipe   = 0o010000
	unixSetuid = 0o4000
	unixSetgid = 0o2000
	unixSticky = 0o1000
)

// UnixMode is a mode as stat(2) has it, and FileMode the mode that it stands for.
func UnixMode(m fs.FileMode) uint32 {
	out := uint32(m.Perm())
	switch {
	case m&fs.ModeDir != 0:
		out |= unixDir
	case m&fs.ModeSymlink != 0:
		out |= unixLink
	case m&fs.ModeNamedPipe != 0:
		out |= unixPipe
	case m&fs.ModeSocket != 0:
		out |= unixSocket
	case m&fs.ModeCharDevice != 0:
		out |= unixChar
	case m&fs.ModeDevice != 0:
		out |= unixBlock
	default:
		out |= unixFile
	}
	for _, b := range modeBits() {
		if m&b.mode != 0 {
			out |= b.unix
		}
	}
	return out
}

// FileMode is what UnixMode was given.
func FileMode(u uint32) fs.FileMode {
	m := fs.FileMode(u & 0o777)
	switch u & unixType {
	case unixDir:
		m |= fs.ModeDir
	case unixLink:
		m |= fs.ModeSymlink
	case unixPipe:
		m |= fs.ModeNamedPipe
	case unixSocket:
		m |= fs.ModeSocket
	case unixChar:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case unixBlock:
		m |= fs.ModeDevice
	}
	for _, b := range modeBits() {
		if u&b.unix != 0 {
			m |= b.mode
		}
	}
	return m
}

type modeBit struct {
	mode fs.FileMode
	unix uint32
}

func modeBits() []modeBit {
	return []modeBit{{fs.ModeSetuid, unixSetuid}, {fs.ModeSetgid, unixSetgid}, {fs.ModeSticky, unixSticky}}
}
