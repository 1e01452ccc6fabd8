package pack

import (
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
)

// previewing returns the sample with a preview. It has a path open for writing, because only a capability that changes
// something may have a preview.
func previewing(t testing.TB, preview string) *Capability {
	t.Helper()
	text := strings.NewReplacer("sideEffectClass: readOnly", "sideEffectClass: mutating", "reversibility: readOnly", "reversibility: reversible",
		"rw: []", `rw: ["{{ input.dir }}"]`, "    timeout: 30s", "    timeout: 30s\n    preview: "+preview).Replace(sample)
	return mustParse(t, text).Capabilities[0]
}

func TestPreviewOnlyLooks(t *testing.T) {
	m := previewing(t, `{args: [["-1", "{{ input.all | flag: \"-a\" }}", --, "{{ input.dir }}"], [--version]], env: {LINES: "3"}, timeout: 5s, covers: contents}`)
	input, paths := map[string]any{"dir": "x", "all": true}, map[string]string{"dir": "/w/x"}
	places := []bailey.Place{{Input: "dir", Path: "/w/x", Write: true}}
	jobs, err := m.Preview(input, paths, places, "")
	if err != nil || len(jobs) != 2 || len(m.Previews()) != 2 || !m.Covers() {
		t.Fatal(jobs, err)
	}
	j := jobs[0]
	if j.Command != "ls" || !slices.Equal(j.Args, []string{"-1", "-a", "--", "/w/x"}) || j.Dir != "/w/x" || j.Timeout != 5*time.Second ||
		!slices.Equal(j.Env, []string{"COLUMNS=80", "LANGUAGE=en", "LINES=3"}) {
		t.Errorf("%+v", j)
	}
	for _, j := range jobs {
		if len(j.Places) != 1 || j.Places[0].Write || len(j.EnvNames)+len(j.FileNames) > 0 {
			t.Errorf("a preview may write, or is lent something: %+v", j)
		}
	}
	if !places[0].Write {
		t.Error("the call's own places were changed")
	}
	if own := m.Job(nil, places); !own.Places[0].Write || len(own.EnvNames) != 1 || slices.Contains(own.Env, "LINES=3") {
		t.Errorf("the call itself is not what it was: %+v", own)
	}
}

func TestPreviewRendersAsTheCallDoes(t *testing.T) {
	m := previewing(t, `{command: stat, args: ["{{ input.width }}", "{{ input.dir }}"]}`)
	jobs, err := m.Preview(map[string]any{"dir": "x"}, map[string]string{"dir": "/w/x"}, nil, "")
	if err != nil || len(jobs) != 1 || jobs[0].Command != "stat" || !slices.Equal(jobs[0].Args, []string{"/w/x"}) || jobs[0].Timeout != defaultLookFor || m.Covers() {
		t.Errorf("%+v, %v", jobs, err)
	}
	if _, err := m.Preview(map[string]any{"dir": "x"}, nil, nil, ""); bailey.KindOf(err) != bailey.Internal {
		t.Errorf("a path that was never opened: %v", err)
	}
	if jobs, err := mustParse(t, sample).Capabilities[0].Preview(nil, nil, nil, ""); jobs != nil || err != nil {
		t.Error(jobs, err)
	}
}

// TestPreviewIsInTheDigest checks that the digest of a capability depends on its preview.
func TestPreviewIsInTheDigest(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range []string{"{args: [a]}", "{args: [b]}", "{args: [a], covers: contents}", "{args: [a], timeout: 1s}", "{args: [a], command: cat}", "{args: [a], env: {X: y}}", "{args: [[a], [a]]}",
		"{args: [a], bind: [{look: 1, pattern: (a), argument: --, as: '{{ shown }}'}]}", "{args: [a], bind: [{look: 1, pattern: (b), argument: --, as: '{{ shown }}'}]}"} {
		d := previewing(t, p).Digest
		if seen[d] {
			t.Errorf("%s has the digest of another", p)
		}
		seen[d] = true
	}
}

func TestCredentialInAFile(t *testing.T) {
	m := mustParse(t, strings.Replace(sample, "env: DEMO_TOKEN}", "env: DEMO_TOKEN, file: true}", 1)).Capabilities[0]
	if w := m.Wants(); len(w) != 1 || !w[0].File {
		t.Error(w)
	}
	if j := m.Job(nil, nil); len(j.EnvNames) != 0 || !slices.Equal(j.FileNames, []string{"DEMO_TOKEN"}) {
		t.Errorf("%+v", j)
	}
}
