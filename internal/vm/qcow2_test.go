//go:build linux

package vm

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
)

// TestOverlayHeader checks the sizes of overlays, and that images which name other files are refused. TestDisk lets QEMU
// read and write one.
func TestOverlayHeader(t *testing.T) {
	for _, size := range []int64{512, 1 << 20, 512<<20 + 512, 5 << 40, maxDisk} {
		f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		if err != nil {
			t.Fatal(err)
		}
		if err := writeOverlay(f, size); err != nil {
			t.Fatal(err)
		}
		if got, err := diskSize(f, "qcow2"); err != nil || got != size {
			t.Errorf("%d, %v, want %d", got, err, size)
		}
		f.Close()
	}
	for _, size := range []int64{-1, 0, 511, maxDisk + 512} {
		if err := writeOverlay(nil, size); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestAttackImageHeader(t *testing.T) {
	for name, c := range map[string]struct {
		change func(head []byte) []byte
		want   string
	}{
		"another file below": {func(h []byte) []byte { binary.BigEndian.PutUint64(h[8:], 200); return h }, "based on another file"},
		"data elsewhere":     {func(h []byte) []byte { h[79] = 4; return h }, "based on another file"},
		"truncated":          {func(h []byte) []byte { return h[:50] }, "not a qcow2 image"},
		"empty":              {func(h []byte) []byte { return nil }, "not a qcow2 image"},
		"another format":     {func(h []byte) []byte { h[0] = 'X'; return h }, "not a qcow2 image"},
		"another version":    {func(h []byte) []byte { h[7] = 9; return h }, "not a qcow2 image"},
		"huge disk":          {func(h []byte) []byte { h[24] = 0xff; return h }, "has a disk of"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := writeOverlay(f, 1<<20); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, c.change(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := diskSize(f, "qcow2"); err == nil || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "" {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
