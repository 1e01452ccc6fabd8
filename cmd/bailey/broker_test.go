//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// TestBrokerGuide runs the code block of docs/broker.md unchanged.
func TestBrokerGuide(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "ssh-keygen", "account", "go")
	text, err := os.ReadFile("../../docs/broker.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```sh\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("the page has no block of sh")
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir+"/", ".", "../bailey-broker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command("sh", "-eu", "-c", block)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "BAILEY_HOME="+filepath.Join(dir, "home"), "HOME="+dir, "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"+ lease deploy: token of file", "lease registry: env REGISTRY_TOKEN, for read packages, 10m0s, no approval", "+ credentials come from the broker", "no privilege separation", "+ the ledger's checkpoints are signed by a key of the broker", "it signs the ledger's checkpoints"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v, no %q in\n%s", err, want, out)
		}
	}
}
