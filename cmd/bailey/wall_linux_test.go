package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/cli"
	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
)

// TestConfinedIsTried checks that in a real cage every way out is tried and reported as closed. Outside a cage, the
// state must be open, and the gateway must be reported as reachable.
func TestConfinedIsTried(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "landlock", "seccomp")
	y := newYard(t)
	dir, err := os.MkdirTemp("", "bailey-wall-") // the user of the cage can reach it, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile(y.program)
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(dir, "bailey")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(inside, program, 0o755); err != nil {
		t.Fatal(err)
	}
	y.env = append(y.env, "BAILEY_OPERATOR=1")
	if said := y.must(y.program, "jail", "run", "--yes", "--exec", "true", "--", inside, "status"); !strings.Contains(said, "confined: 6 ways out were tried") ||
		!strings.Contains(said, cli.Walled) || strings.Contains(said, "walk around") {
		t.Errorf("in a cage: %s", said)
	}
	for where, said := range map[string]string{
		"in":      y.must(y.program, "jail", "run", "--yes", "--exec", "true", "--", inside, "status", "--json"),
		"outside": y.must(y.program, "status", "--json"),
	} {
		var s apitype.Status
		if err := json.Unmarshal([]byte(said), &s); err != nil || len(s.Agents) == 0 || len(s.Agents[0].Tried) == 0 || where == "in" && len(s.Agents[0].Tried) != len(cli.EscapeChecks()) {
			t.Fatalf("%s: %v, %s", where, err, said)
		}
		a := s.Agents[0]
		if (a.State == apitype.ConfinedState) != (where == "in") || (a.State == apitype.OpenState) != (where == "outside") || (a.Cure == "") != (where == "in") {
			t.Errorf("%s: %+v", where, a)
		}
		for _, try := range a.Tried {
			if try.Held != (where == "in") && (where == "in" || try.Name == "gateway") {
				t.Errorf("%s: %+v", where, try)
			}
		}
	}
}
