//go:build linux

package jail

import (
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// lesserJail is a jail whose host is taken for one without namespaces.
func lesserJail(t testing.TB, cfg Config) *Jail {
	t.Helper()
	ktest.Require(t, "landlock", "seccomp")
	j := plainJail(t, cfg)
	if err := adopt(); err != nil {
		t.Fatal(err)
	}
	j.chosen, j.lesser = true, "this host is taken for one without namespaces"
	return j
}

func TestTry(t *testing.T) {
	j := lesserJail(t, Config{})
	r := ask(t, j, bailey.Job{Command: "/bin/echo", Args: []string{"hi"}})
	t.Logf("%+v %s", r, bailey.HintOf(r.err))
	r = ask(t, j, bailey.Job{Command: "git", Args: []string{"--version"}})
	t.Logf("%+v %s", r, bailey.HintOf(r.err))
	r = ask(t, j, bailey.Job{}, "sees")
	t.Logf("%+v %s", r, bailey.HintOf(r.err))
	t.Log(planCage(t, j, bailey.Job{Command: "/bin/echo"}).Plan)
}
