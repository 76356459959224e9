package cli_test

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// gitPlugin is `gitplugin DIR`: a repository in a folder of the script's, a git plugin agentenv-acme 3.0 whose program this binary plays, with a bundle. Files of
// the folder are part of it, and take the place of these.
func gitPlugin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gitplugin DIR")
	}
	self, err := os.Executable()
	ts.Check(err)
	types, err := acme().Manifest()
	ts.Check(err)
	dir := ts.MkAbs(args[0])
	for name, text := range map[string]string{
		"agentenv.plugin.yaml": "id: agentenv-acme\nname: Acme\nversion: '3.0'\ncommand: [bin/acme, --serve, ./words]\nbundles: [bundles/from-git]\n" +
			"config: {greeting: hello, colour: blue}\nsecrets: [token]\n",
		"agentenv_plugin.json":               string(types),
		"bin/acme":                           "#!/bin/sh\n[ \"$1\" = --serve ] && [ -f \"$2\" ] || exit 7\nexec '" + self + "'\n",
		"words":                              "w\n",
		"bundles/from-git/tasks/bundle.json": `[{"id": "check", "type": "acme_check", "expected": "x"}]`,
	} {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
		if _, err := os.Lstat(file); err == nil {
			continue
		}
		ts.Check(os.WriteFile(file, []byte(text), mode))
	}
	ts.Check(ts.Exec("sh", "-c", `cd "$0" && git init -q -b main . && git add -A && git -c user.name=t -c user.email=t@example.com commit -qm first`, dir))
}
