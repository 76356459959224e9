// Package tree packs folders as tars and unpacks them, with modes, owners, links, extended attributes and the marks of overlays. It is the
// one way by which trees enter and leave a sandbox, and by which snapshots are kept.
//
// Unpacking trusts nothing: no entry is written outside its folder or through a link, whoever changes the folder meanwhile. It imports the
// standard library and x/sys alone, since PID 1 of every sandbox does this work, and needs Linux.
package tree

// Words of the tars.
const (
	// XattrPrefix is how they carry extended attributes, in PAX records.
	XattrPrefix = "SCHILY.xattr."
	// SizeRecord is the PAX record with the size of a file whose bytes were left out.
	SizeRecord = "AGENTENV.size"
	// Opaque is the attribute of a folder that hides what the layers below it have there.
	Opaque = "user.overlay.opaque"
)
