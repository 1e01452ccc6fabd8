package server

import (
	"os/exec"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/packs"
)

// TestJournalInACage checks that journalctl runs in its cage and says what it says outside of one.
func TestJournalInACage(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "journalctl")
	o := officeOf(t, packs.FS)
	o.open = true
	version, err := exec.CommandContext(t.Context(), "journalctl", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if res := o.call("journalctl.version", map[string]any{}); res.Err != nil || string(res.Stdout) != string(version) {
		t.Errorf("%v\n%s%s", res.Err, res.Stdout, res.Stderr)
	}
	// a cage of root reads no journal, and each machine has another one
	for _, options := range [][]any{{"-n1", "-q", "--no-pager"}, {"-b", "-n1"}, {"--disk-usage"}, {"-b", "-1", "-uno-such"}} {
		res := o.call("journalctl.read", map[string]any{"options": options})
		if said := string(res.Stderr); strings.Contains(said, "machine ID") || strings.Contains(said, "shared librar") || len(res.Refused) > 0 {
			t.Errorf("%v: %v %q\n%s%s", options, res.Err, res.Refused, res.Stdout, said)
		}
	}
}
