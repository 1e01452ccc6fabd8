//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
)

// TestHooksAsk checks that hooks are shown to a person at a terminal before they are applied, or run without a cage.
// Any answer except yes must change and run nothing.
func TestHooksAsk(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns")
	y := newYard(t)
	mark := filepath.Join(t.TempDir(), "mark")
	file := `{"hooks": {"SessionStart": [{"argv": ["/bin/touch", "` + mark + `"], "sandbox": false}]}}`
	// Without a cage, a hook starts in the home directory.
	for _, dir := range []string{string(y.home), filepath.Join(filepath.Dir(y.repo), "me")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(string(y.home), apitype.HooksName), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	const loudly = "! line 1: /bin/touch runs without a jail, with all your rights"
	for _, keys := range []string{"\r", "n\r", "\x1b", "yess\r"} {
		said, code := y.dialog(t, "", keys, "hooks", "test")
		if _, err := os.Stat(mark); err == nil || code == 0 || !strings.Contains(said, loudly) {
			t.Fatalf("%q ran it: %d\n%s", keys, code, said)
		}
		if said, code := y.dialog(t, "", keys, "hooks", "reload"); code == 0 || !strings.Contains(said, loudly) {
			t.Errorf("%q applied it: %s", keys, said)
		}
	}
	if said, code := y.dialog(t, "", "y\r", "hooks", "test"); code != 0 || !strings.Contains(said, "Disabled") {
		t.Errorf("%d\n%s", code, said)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error(err)
	}
	if said, code := y.dialog(t, "", "y\r", "hooks", "reload"); code != 0 || !strings.Contains(said, "applied: 1 hook") {
		t.Errorf("%d\n%s", code, said)
	}
}
