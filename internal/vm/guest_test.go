//go:build linux

package vm

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey/internal/ktest"
)

const patience = 2 * time.Minute // for what takes two seconds on an idle machine

// initramfs is the path of an initial file system with only testdata/init.
var initramfs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bailey-vm-init-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./testdata/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	body, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range []struct {
		name string
		mode int
		body []byte
	}{{"dev", 0o040755, nil}, {"init", 0o100755, body}, {"TRAILER!!!", 0, nil}} { // cpio(5), format newc
		b.WriteString("070701")
		for _, n := range []int{0, e.mode, 0, 0, 1, 0, len(e.body), 0, 0, 0, 0, len(e.name) + 1, 0} {
			fmt.Fprintf(&b, "%08x", n)
		}
		b.WriteString(e.name + "\x00" + strings.Repeat("\x00", -(110+len(e.name)+1)&3))
		b.Write(e.body)
		b.WriteString(strings.Repeat("\x00", -len(e.body)&3))
	}
	file := filepath.Join(dir, "initramfs")
	return file, os.WriteFile(file, []byte(b.String()), 0o644)
})

// testSpec describes a guest that runs testdata/init.
func testSpec(t testing.TB) Spec {
	t.Helper()
	ktest.Long(t)
	ktest.Require(t, "qemu-system-x86_64")
	kernel := ktest.Fetched(t, "linux-7.1-amd64")
	initrd, err := initramfs()
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Arch: "amd64", Machine: MicroVM, Accel: Emulated, MemoryMB: 96, CPUs: 1, Kernel: kernel, Initrd: initrd,
		Append: "loglevel=1"}
}

// testHost returns a host whose machines answer before Start and Clone return.
func testHost(t testing.TB, c Config) *Host {
	t.Helper()
	ready := func(ctx context.Context, m *Machine) error {
		text, err := askGuest(ctx, m, "ping ready")
		if err == nil && !strings.HasPrefix(text, "pong ready ") {
			err = fmt.Errorf("the guest answers %q", text)
		}
		return err
	}
	if c.Ready == nil {
		c.Ready = ready
	}
	if c.Renew == nil {
		c.Renew = ready
	}
	c.QEMUTime = patience
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// askGuest sends one line and returns the answer.
func askGuest(ctx context.Context, m *Machine, question string) (string, error) {
	conn, err := m.Channel(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintln(conn, question); err != nil {
		return "", err
	}
	text, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSuffix(text, "\n"), err
}

// expect asks and compares.
func expect(t *testing.T, m *Machine, question, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := askGuest(ctx, m, question)
	if err != nil || got != want {
		t.Fatalf("%s: %q, %v (%v), want %q", question, got, err, m.Err(), want)
	}
}

// startGuest starts a machine that is destroyed with the test.
func startGuest(t testing.TB, h *Host, s Spec) *Machine {
	t.Helper()
	m, err := h.Start(t.Context(), filepath.Join(t.TempDir(), "machine"), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy(context.Background()) })
	return m
}

const imageText = "the text of the image"

// testImage writes a raw image of 1 MiB that begins with imageText.
func testImage(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.raw")
	if err := os.WriteFile(file, append([]byte(imageText), make([]byte, 1<<20-len(imageText))...), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
