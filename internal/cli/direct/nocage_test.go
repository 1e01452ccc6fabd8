package direct

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"bailey/internal/cli"
)

// TestSandboxDisabled checks that on a platform without a cage each of these commands prints the warning once when it
// starts. On other platforms the warning must not appear.
func TestSandboxDisabled(t *testing.T) {
	t.Setenv("BAILEY_HOME", "relative") // invalid, so that each command stops early
	for _, words := range []string{"run git.status", "serve", "gateway", "status", "doctor", "run git.status --json"} {
		for _, bare := range []bool{true, false} {
			var out, said bytes.Buffer
			a := &cli.App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &said, Local: Work{}, Bare: bare}
			root := a.Root()
			root.SetArgs(strings.Fields(words))
			if err := root.ExecuteContext(context.Background()); err == nil {
				t.Errorf("%s: went on", words)
			}
			if got := strings.Count(said.String(), "SANDBOX DISABLED"); (got == 1) != bare || got > 1 || strings.Contains(out.String(), "SANDBOX") {
				t.Errorf("%s, without a cage %v: stderr %q, stdout %q", words, bare, said.String(), out.String())
			}
		}
	}
}
