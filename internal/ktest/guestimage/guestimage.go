// Package guestimage gives tests an image from which they create sandboxes, and removes their sandboxes.
package guestimage

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"bailey/internal/hostapi"
	"bailey/internal/image"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
)

// Files that .ci/guest fetches.
const (
	kernel  = "linux-7.1-amd64"
	busybox = "busybox-amd64"
)

// FindFiles returns why the files of the image are missing, or nil.
func FindFiles() error { return errors.Join(ktest.HasFetched(kernel), ktest.HasFetched(busybox)) }

// Put adds an image to a home that boots in a second: bailey-guest, and busybox. It skips the test if the machine lacks QEMU
// or what .ci/guest fetches.
func Put(t testing.TB, home, name string) {
	t.Helper()
	ktest.Require(t, "qemu-system-x86_64")
	file, tools := ktest.Fetched(t, kernel), ktest.Fetched(t, busybox)
	agent := filepath.Join(t.TempDir(), "bailey-guest")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", agent, "bailey/cmd/bailey-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	dir := filepath.Join(home, "images")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := image.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.AddMinimal(t.Context(), image.MinimalConfig{Name: name, Arch: "amd64", Agent: agent, Kernel: file, Tools: tools, From: "a test"})
	if err != nil {
		t.Fatal(err)
	}
}

// DestroyAll destroys the sandboxes of a person in a home, and ends their host. The person is the user of this process.
func DestroyAll(t testing.TB, home, person string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := &hostapi.Client{Socket: hostapi.DirOf(localapi.Home(home)).Socket()}
	owner := hostapi.Owner{Person: person, Operator: true}
	list, err := hostapi.List.Ask(ctx, c, owner, hostapi.None{})
	if err != nil {
		return // no host runs
	}
	for _, b := range list {
		if _, err := hostapi.Destroy.Ask(ctx, c, owner, hostapi.Target{Sandbox: b.ID}); err != nil {
			t.Errorf("sandbox %s stays: %v", b.ID, err)
		}
	}
	if err := c.StopHost(ctx); err != nil {
		t.Errorf("the host of sandboxes stays: %v", err)
	}
}
