//go:build linux

package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is also the owner of machines in another process, for tests that kill it.
func TestMain(m *testing.M) {
	if job := os.Getenv("BAILEY_VM_OWNER"); job != "" {
		if err := ownMachine(strings.Split(job, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if file, err := initramfs(); err == nil {
		os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

// ownMachine performs an operation. It prints the name of each step, and kills itself at the given one.
func ownMachine(job []string) error {
	operation, dir, source, last := job[0], job[1], job[2], job[3]
	if operation == "full" {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return fillDisk(ctx, dir, source, last)
	}
	h, err := New(Config{QEMUTime: patience, step: func(name string) {
		fmt.Println(name)
		if name == last {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}})
	if err != nil {
		return err
	}
	return perform(context.Background(), h, operation, dir, source)
}

// perform performs an operation on the machine or template in dir.
func perform(ctx context.Context, h *Host, operation, dir, source string) error {
	switch operation {
	case "start":
		s := Spec{Arch: "amd64", Machine: MicroVM, Accel: Emulated, MemoryMB: 96, CPUs: 1, Kernel: source, Append: "loglevel=1",
			Layers: []Layer{{source, "raw", ""}}}
		m, err := h.Start(ctx, dir, s)
		if err != nil {
			return err
		}
		m.Release()
	case "clone":
		t, err := h.OpenTemplate(ctx, source)
		if err != nil {
			return err
		}
		defer t.Close()
		m, err := h.Clone(ctx, t, dir)
		if err != nil {
			return err
		}
		m.Release()
	case "snapshot", "destroy":
		m, err := h.Open(ctx, source)
		if err != nil {
			return err
		}
		defer m.Release()
		if operation == "destroy" {
			return m.Destroy(ctx)
		}
		return m.Snapshot(ctx, dir)
	}
	return nil
}
