//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// TestHooksAsk: a person at a terminal is shown what is about to count or to run with more rights than every hook, and anything
// but yes changes and runs nothing.
func TestHooksAsk(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns")
	y := newYard(t)
	mark := filepath.Join(t.TempDir(), "mark")
	file := `{"hooks": {"SessionStart": [{"argv": ["/bin/touch", "` + mark + `"], "sandbox": false}]}}`
	for _, dir := range []string{string(y.home), filepath.Join(filepath.Dir(y.repo), "me")} { // without a cage a hook starts at home
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(string(y.home), hooksName), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	const loudly = "! line 1: /bin/touch runs without a cage, with all rights of yours"
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
