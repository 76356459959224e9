// Package git installs plugins from git repositories: it reads where they come from (Source), decides whether that is allowed (Policy), brings
// one commit of them here (Fetcher), reads what they say of themselves (Manifest), and keeps them by their content (Store), pinned in a
// workspace's plugins.lock (Lock).
//
// Words: a git plugin is a repository with a plugin manifest, a plugin bundle one with a bundle manifest, which names git plugins. A member is
// one repository of a request. A tree is what a commit holds, by the digest of paths, modes, sizes and contents. An install is a Plan (everything
// is fetched and validated, nothing changed) and its Apply: one rename of the lock, for all members at once.
//
// Nothing here runs code of a repository, installs what it requires, or enables it. What bundle manifests mean is internal/plugin/pack's business.
package git
