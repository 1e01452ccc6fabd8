package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"bailey/internal/hostapi"
	"bailey/internal/image"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
)

// TestSandboxBench measures sandboxes of a real image, a few times. Each row must have been measured.
func TestSandboxBench(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "qemu-system-x86_64")
	home := t.TempDir()
	t.Setenv("BAILEY_HOME", home)
	agent := filepath.Join(home, "bailey-guest")
	build := exec.Command("go", "build", "-o", agent, "bailey/cmd/bailey-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	store, err := image.Open(hostapi.ImagesOf(localapi.Home(home)))
	if err == nil {
		_, err = store.AddMinimal(t.Context(), image.MinimalConfig{Name: "tiny", Arch: "amd64", Agent: agent,
			Kernel: ktest.Fetched(t, "linux-7.1-amd64"), Tools: ktest.Fetched(t, "busybox-amd64")})
	}
	if err != nil {
		t.Fatal(err)
	}
	b := sandboxBench{image: "tiny", n: 2, idle: 2, burst: 2, memory: 128, emulated: true}
	rows, err := b.measureSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		t.Logf("%+v", r)
		if names = append(names, r.Name); r.N == 0 {
			t.Errorf("%s: %s", r.Name, r.Note)
		}
	}
	want := []string{"cold", "raw-resume", "clone", "exec", "write-1MB", "destroy", "density", "burst"}
	if !slices.Equal(names, want) || rows[6].Facts["mib_each"] <= 0 || rows[2].Required != 1 {
		t.Errorf("%v", rows)
	}
}
