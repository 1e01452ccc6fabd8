// Package guestimage makes the image with which tests create sandboxes.
package guestimage

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"bailey/internal/image"
	"bailey/internal/ktest"
)

// Name is the name of the image that [Put] makes.
const Name = "tiny"

// Files that .ci/guest fetches.
const (
	kernel  = "linux-7.1-amd64"
	busybox = "busybox-amd64"
)

// Put makes a directory of images with one that boots in a second: bailey-guest, and busybox. It skips the test if
// the machine lacks QEMU or what .ci/guest fetches.
func Put(t testing.TB, dir string) {
	t.Helper()
	ktest.Require(t, "qemu-system-x86_64")
	file, tools := ktest.Fetched(t, kernel), ktest.Fetched(t, busybox)
	agent := filepath.Join(t.TempDir(), "bailey-guest")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", agent, "bailey/cmd/bailey-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := image.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.AddMinimal(t.Context(), image.MinimalConfig{Name: Name, Arch: "amd64", Agent: agent, Kernel: file, Tools: tools, From: "a test"})
	if err != nil {
		t.Fatal(err)
	}
}
