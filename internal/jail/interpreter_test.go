//go:build linux

package jail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInterpreterOnSearchPath checks that the env(1) of a first line is followed on the search path of the job: npm of a
// toolchain needs the node beside it. On another path the same script has no interpreter.
func TestInterpreterOnSearchPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"runner-x": string(program), "script-x": "#!/usr/bin/env runner-x\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := &tools{}
	defer all.copies.removeAll()
	found, err := all.findIn("script-x", dir+":"+searchPath)
	if err != nil || found.run[0] != filepath.Join(dir, "runner-x") {
		t.Fatalf("%+v, %v", found, err)
	}
	if _, err := all.findTool(filepath.Join(dir, "script-x")); err == nil || !strings.Contains(err.Error(), "interpreter") {
		t.Errorf("the interpreter was taken from another path: %v", err)
	}
}
