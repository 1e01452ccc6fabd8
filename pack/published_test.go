package pack

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

const published = "testdata/published"

// camel translates keys and values of published manifests to the spelling of this package.
var camel = strings.NewReplacer("argv_pattern:", "argvPattern:", "side_effect_class: read_only", "sideEffectClass: readOnly", "side_effect_class: readonly", "sideEffectClass: readOnly",
	"side_effect_class: write_remote", "sideEffectClass: mutating", "side_effect_class:", "sideEffectClass:", "reversibility: read_only", "reversibility: readOnly",
	"reversibility: readonly", "reversibility: readOnly", "externally_reversible", "externallyReversible", "warm_worker", "jail", "memory_mib:", "memoryMiB:",
	"sandbox_profile:", "sandboxProfile:", "input_schema:", "inputSchema:", "output_schema:", "outputSchema:", "cwd_from_input:", "cwdFromInput:")

// TestPublished checks that manifests of other authors load unchanged, with the same digest as in the spelling of this
// package.
func TestPublished(t *testing.T) {
	c, err := Load(os.DirFS(published))
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := os.ReadDir(published)
	if err != nil || len(dirs) < 12 {
		t.Fatalf("%d packs, %v", len(dirs), err)
	}
	for _, d := range dirs {
		text, err := os.ReadFile(published + "/" + d.Name() + "/pack.yaml")
		if err != nil {
			t.Fatal(err)
		}
		ours := camel.Replace(string(text))
		if m := regexp.MustCompile(`(?m)\b[a-z]+_[a-z_]+: ?`).FindString(strings.NewReplacer("dry_run:", "", "format_version:", "").Replace(ours)); m != "" {
			t.Errorf("%s: %q has no spelling of ours", d.Name(), m)
		}
		again, err := Load(fstest.MapFS{"x/pack.yaml": {Data: []byte(ours)}})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range again.All() {
			if theirs, err := c.Lookup(m.ID); err != nil || theirs.Digest != m.Digest {
				t.Errorf("%s means something else in our spelling: %v", m.ID, err)
			}
		}
	}
	for _, m := range c.All() {
		if dir := m.spec.Backend.CwdFromInput; m.Workspace() != (dir == "" && m.spec.Backend.Cwd != "none" && len(m.PathInputs()) == 0) {
			t.Errorf("%s: the workspace is %v", m.ID, m.Workspace())
		}
	}
}
