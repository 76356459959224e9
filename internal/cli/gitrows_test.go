package cli_test

import (
	"strconv"
	"testing"
)

// gitRows are the rows of what git plugins, plugin bundles and workspaces have to do: for each the tests and the scripts that hold it, by their names, or,
// behind "-", why no test can.
var gitRows = [...]string{
	1: "TestManifestDefaults", 2: "TestManifestRefuses", 3: "TestManifestRefuses", 4: "TestManifestRefuses", 5: "TestManifestRefuses TestManifestFields", 6: "TestManifestFields",
	7: "- plugins serve no routes: those of the console are its own", 8: "TestManifestFields", 9: "TestManifestFields", 10: "workspace_bundle", 11: "TestMinVersion",
	12: "- nothing of a plugin stands in a workspace but its row, so that there are no untracked copies",
	13: "TestIdentity TestReadLockOld", // there are no folders of plugins: an id that is claimed twice is refused, and a lock's last row counts
	14: "TestManifestFields TestPurgeKeepsCoreSections plugin_git_remove", 15: "plugin_git_remove", 16: "TestParseSource TestSSH", 17: "TestParseSource plugin_git",
	18: "TestGitCommandLine", 19: "TestPolicy TestArchive", 20: "TestParseSource", 21: "TestArchive", 22: "TestParseSource plugin_git", 23: "TestPolicy", 24: "TestParseSource",
	25: "TestCheckRef TestRefused", 26: "TestRefused TestRows26And74", 27: "TestRefs", 28: "TestRefs TestSSH", 29: "TestRefs", 30: "TestUnreachable", 31: "TestHTTP",
	32: "TestPolicy run_git_plugin", 33: "TestPolicy", 34: "TestArchive", 35: "TestInstall plugin_git", 36: "TestDetect TestRefusedContent", 37: "TestRefused TestRefusedContent",
	38: "TestIdentity", 39: "TestInstall plugin_git", 40: "TestIdentity", 41: "TestHostileArchive TestRefusedContent", 42: "TestHostileArchive",
	43: "TestHostileArchive TestPackedLimit TestRefusedContent", 44: "TestOddContent", 45: "TestOddContent", 46: "TestRefusedContent", 47: "TestArchive TestInstall", 48: "TestFullDisk",
	49: "TestLockBytes", 50: "TestReadLockOld", 51: "TestLockGuards TestReadLockRefuses", 52: "TestFullDisk TestLockGuards", 53: "TestReadLockOld", 54: "TestSync", 55: "TestReadLockRefuses",
	56: "TestLockGuards TestReadLockRefuses", 57: "TestSync plugin_git plugin_git_bundle", 58: "TestSync", 59: "TestSync", 60: "TestSync plugin_git_bundle", 61: "TestNewest plugin_git_update",
	62: "plugin_git_update", 63: "plugin_git_remove", 64: "plugin_git_remove TestUnknown", 65: "TestLinkedTree", 66: "git_deps",
	67: "plugin_git_bundle", 68: "TestOn TestRefused plugin_git_author plugin_git_bundle_rows", 69: "plugin_git_bundle TestKilledAtEveryCall", 70: "plugin_git_bundle",
	71: "TestIdentity plugin_git_bundle_rows", 72: "TestIdentity plugin_git_author plugin_git_bundle_rows", 73: "TestIdentity plugin_git_bundle_rows",
	74: "TestIdentity TestRefused TestRows26And74 plugin_git_bundle_rows", 75: "TestRefused TestRow76ForeignSections plugin_git_bundle_rows", 76: "TestRefused plugin_git_bundle_rows",
	77: "TestRefused plugin_git_bundle_rows", 78: "TestRow78References", 79: "TestRow79Disabled", 80: "TestBundleConsent",
	81: "TestRow81Overlay workspace_bundle", 82: "TestRow82OtherLayers", 83: "TestRow83Scalar", 84: "TestRow84CommentsStay", 85: "TestRow85Servers", 86: "TestRow86Deleted",
	87: "TestRow87Secrets workspace_bundle", 88: "TestRow88", 89: "plugin_git_remove plugin_git_update", 90: "plugin_git_remove", 91: "TestPurgeBundle plugin_git_remove",
	92: "TestNewest plugin_git_update", 93: "TestFetchOnly", 94: "TestActivate", 95: "TestRow95Undo TestActivationFails", 96: "TestRow96NothingIsLeft TestCreateWorkspace workspace_bundle", 97: "TestRefused TestCreateRefused workspace_bundle",
	98: "TestCreateWorkspace workspace_bundle", 99: "TestRow99Hanging TestHanging TestLate", 100: "TestRow100Gate TestCreateWorkspace", 101: "TestWhoMayAsk", 102: "TestBodies", 103: "TestConsent TestVouched", 104: "TestTrustAll", 105: "TestUnknown TestFailures TestLate",
	106: "plugin_git_author TestPeek", 107: "TestKilledAtEveryCall TestKilledAtRandom TestGitVerbsKilled TestSweep", 108: "TestConcurrent TestAllAtOnce", 109: "TestConcurrent TestAllAtOnce",
	110: "TestSwitchesAtOnce", 111: "TestSweep", 112: "TestOddContent TestOddMachine", 113: "TestTimeout", 114: "TestMirror plugin_git_mirror",
	115: "TestSameEverywhere", // one machine runs it: digest and bytes are compared with constants
}

// TestGitRows: every row is held by a test that is there, or says why not.
func TestGitRows(t *testing.T) {
	if len(gitRows) != 116 || gitRows[0] != "" {
		t.Fatalf("there are %d rows", len(gitRows)-1)
	}
	var rows []row
	for i, text := range gitRows[1:] {
		rows = append(rows, row{strconv.Itoa(i + 1), text})
	}
	held(t, rows, "internal/plugin", "internal/gitplugins", "internal/workspace", "internal/console", "internal/app", "internal/agent/mcp", "internal/cli")
}
