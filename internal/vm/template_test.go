//go:build linux

package vm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// TestTemplateDamaged changes each file of a template. It must not be cloned, and the error names the file.
func TestTemplateDamaged(t *testing.T) {
	ktest.Long(t)
	h, s := testHost(t, Config{}), testSpec(t)
	s.Layers = []Layer{{testImage(t), "raw", ""}}
	m := startGuest(t, h, s)
	expect(t, m, "write 5 five", "written")
	dir := filepath.Join(t.TempDir(), "template")
	if err := m.Snapshot(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := m.Snapshot(t.Context(), dir); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("a second snapshot of the name: %v", err)
	}
	for name, c := range map[string]struct {
		file, want string
		change     func(text []byte) []byte
	}{
		"short memory":   {memoryFile, "its memory has another size: it is damaged", func(b []byte) []byte { return b[:4096] }},
		"long memory":    {memoryFile, "its memory has another size: it is damaged", func(b []byte) []byte { return append(b, 0) }},
		"changed memory": {memoryFile, "its memory has changed", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		"no memory":      {memoryFile, "its memory is missing", nil},
		"short state":    {stateFile, "its state has another size: it is damaged", func(b []byte) []byte { return b[:100] }},
		"changed state":  {stateFile, "its state has changed", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		"no state":       {stateFile, "its state is missing", nil},
		"changed disk":   {overlayFile, "has changed", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }},
		"no disk":        {overlayFile, "cannot open the image", nil},
		"garbage":        {templateFile, "template.json cannot be read", func(b []byte) []byte { return b[1:] }},
		"empty":          {templateFile, "template.json cannot be read", func(b []byte) []byte { return nil }},
		"huge":           {templateFile, "template.json", func(b []byte) []byte { return make([]byte, maxRecord+1) }},
		"other memory": {templateFile, "contradict", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"MemoryMB":96`), []byte(`"MemoryMB":64`), 1)
		}},
		"unknown key": {templateFile, "template.json cannot be read", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"MemoryMB":96`), []byte(`"MemoryMB":96,"X":1`), 1)
		}},
		"no description": {templateFile, "there is no template", nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, c.file)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer os.WriteFile(path, before, 0o600)
			if c.change == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, c.change(bytes.Clone(before)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.OpenTemplate(t.Context(), dir); err == nil || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "" {
				t.Errorf("%v, want %q and a hint", err, c.want)
			}
		})
	}
	tm, err := h.OpenTemplate(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tm.Close()
	if err := h.Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the template remains")
	}
}

// TestCopySparse compares copies and digests of files with and without holes.
func TestCopySparse(t *testing.T) {
	const size = 5 << 20
	sparse, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	content := make([]byte, size)
	for at, text := range map[int64]string{0: "begin", 3<<20 - 2: "border", size - 3: "end"} {
		copy(content[at:], text)
		if _, err := sparse.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	full, err := newMemory("full", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err := full.Write(content); err != nil {
		t.Fatal(err)
	}
	digests := map[string]bool{}
	for _, from := range []*os.File{sparse, full} {
		to, err := newMemory("copy", size)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := copySparse(t.Context(), to, from, size)
		if err != nil {
			t.Fatal(err)
		}
		digests[digest] = true
		got := make([]byte, size)
		if _, err := to.ReadAt(got, 0); err != nil || !bytes.Equal(got, content) {
			t.Errorf("the copy of %s differs, %v", from.Name(), err)
		}
		to.Close()
	}
	if _, err := full.WriteAt([]byte("x"), 1<<20); err != nil {
		t.Fatal(err)
	}
	digest, err := copySparse(t.Context(), discard{}, full, size)
	if digests[digest] || len(digests) != 1 || err != nil {
		t.Errorf("the digests %v and %s, %v", digests, digest, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := copySparse(ctx, discard{}, full, size); err == nil {
		t.Error("a copy was not cancelled")
	}
}

// TestAttackState writes more than a state has.
func TestAttackState(t *testing.T) {
	endless := io.NopCloser(io.LimitReader(zeros{}, 1<<40))
	if err := receiveState(io.Discard, endless, 1<<20); err == nil || !strings.Contains(err.Error(), "QEMU wrote more") {
		t.Error(err)
	}
	if err := receiveState(io.Discard, io.NopCloser(strings.NewReader("state")), 5); err != nil {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestDiskFull runs a machine on a file system without space, in a mount namespace of another process.
func TestDiskFull(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "root")
	s := testSpec(t)
	out := runOwner(t, &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}, "full", t.TempDir(), s.Kernel+"|"+s.Initrd)
	for _, want := range []string{
		"snapshot: cannot write the template: the disk is full: cannot write in ",
		"status: failed: the disk is full: the machine was paused when it wrote to ",
		"resumed: written", "start: the disk is full: cannot write in ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nlacks %q", out, want)
		}
	}
}

// fillDisk is the other process of TestDiskFull. It mounts a small file system at dir.
func fillDisk(ctx context.Context, dir, kernel, initrd string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=12M"); err != nil {
		return err
	}
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		return err
	}
	h, err := New(Config{QEMUTime: patience})
	if err != nil {
		return err
	}
	m, err := h.Start(ctx, filepath.Join(dir, "machine"), Spec{Arch: "amd64", Machine: MicroVM, Accel: Emulated, MemoryMB: 96,
		CPUs: 1, Kernel: kernel, Initrd: initrd, Append: "loglevel=1", Layers: []Layer{{image, "raw", ""}}})
	if err != nil {
		return err
	}
	defer m.Destroy(ctx)
	if text, err := askGuest(ctx, m, "ping x"); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	fmt.Println("snapshot:", m.Snapshot(ctx, filepath.Join(dir, "template")))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		return fmt.Errorf("after a failed snapshot: %v, %w", entries, err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := fillFile(ballast); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() {
		text, err := askGuest(ctx, m, "write 3000 x")
		answer <- fmt.Sprint(text, err)
	}()
	var st Status
	for st.State != Failed && ctx.Err() == nil && err == nil {
		st, err = m.Status(ctx)
	}
	fmt.Println("status:", st.State+":", st.Problem)
	_, startErr := h.Start(ctx, filepath.Join(dir, "second"), m.Spec())
	fmt.Println("start:", startErr)
	if err := os.Remove(ballast); err != nil {
		return err
	}
	err = m.Resume(ctx)
	fmt.Println("resumed:", <-answer)
	return err
}

// fillFile writes until there is no space.
func fillFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	return nil
}
