// Package workspace makes, finds and removes workspaces, and gives them what plugin bundles bring: settings, servers, secrets, a soul.
//
// Words: a workspace is a folder with .agentenv/ in it. To seed is to write settings that nobody set; an answer is the operator's, and counts
// more. A workspace is created whole or not at all.
//
// Seeding edits bytes: comments, order and everything else of the files stay. The package asks nobody, prints nothing, and runs no agent.
package workspace
