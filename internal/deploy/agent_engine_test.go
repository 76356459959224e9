package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDockerShim: the commands of cards copy and run as an engine would, and whatever else they ask of it fails by name.
func TestDockerShim(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	text := strings.NewReplacer("@BIN@", shellWord(bin), "@NAME@", shellWord("my box")).Replace(dockerShim)
	for name, body := range map[string]string{"docker": text, "sudo": sudoShim} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "from", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "from", "sub", "f"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ command, out, fails string }{
		{`docker cp from 'my box':to && cat to/sub/f`, "text", ""},
		{`docker cp from/. 'my box':into/it && cat into/it/sub/f`, "text", ""},
		{`mkdir in && docker cp -a from/. 'my box':in && cat in/sub/f`, "text", ""},
		{`docker cp 'my box':from/sub/f back && cat back`, "text", ""},
		{`docker cp from 'my box':from && echo same`, "same", ""},
		{`mkdir t && tar -c -f - from | docker cp - 'my box':t && cat t/from/sub/f`, "text", ""},
		{`docker cp 'my box':from/sub - | tar -x -O -f - sub/f`, "text", ""},
		{`sudo -n true && sudo -E docker exec 'my box' sh -c 'echo "$1"' x 'two words'`, "two words", ""},
		{`echo hidden | docker exec 'my box' cat; echo end`, "end", ""},
		{`echo shown | docker exec -i 'my box' cat`, "shown", ""},
		{`docker exec -e A='x y' --env=B=2 -w "$PWD/from" -u "$(id -u)" 'my box' sh -c 'echo "$A$B"; ls'`, "x y2\nsub", ""},
		{`docker exec -d 'my box' sh -c 'echo done >background' && until test -s background; do :; done; cat background`, "done", ""},
		{`docker exec 'my box' sh -c 'command -v docker || echo none' | grep -c '^` + bin + `'`, "0", "exit status 1"},
		{`docker exec 'my box' sh -c 'exit 7'`, "", "exit status 7"},
		{`docker exec other true`, "", "there is no container other"},
		{`docker exec -u nobody 'my box' true`, "", "exec as user nobody"},
		{`docker run hello`, "", "there is no run"},
		{`docker exec --gpus all 'my box' true`, "", "exec --gpus isn't known"},
		{`docker`, "", "there is no "},
	} {
		argv := installArgv(bin, tt.command)
		c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		c.Dir = dir
		var errs strings.Builder
		c.Stderr = &errs
		out, err := c.Output()
		if got := strings.TrimSpace(string(out)); got != tt.out {
			t.Errorf("%s: %q, want %q (%v, %s)", tt.command, got, tt.out, err, errs.String())
		}
		if err == nil && tt.fails != "" || err != nil && (tt.fails == "" || !strings.Contains(errs.String()+err.Error(), tt.fails)) {
			t.Errorf("%s: %v: %s", tt.command, err, errs.String())
		}
	}
}
