//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// TestLife starts a machine, pauses it, gives it to another owner and destroys it.
func TestLife(t *testing.T) {
	ktest.Long(t)
	h := testHost(t, Config{})
	m := startGuest(t, h, testSpec(t))
	expect(t, m, "ping a", "pong a 2")
	wantState(t, m, Running)
	if err := m.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantState(t, m, Paused)
	for what, err := range map[string]error{"Open": second(h.Open(t.Context(), m.Dir())), "Remove": h.Remove(t.Context(), m.Dir())} {
		if bailey.KindOf(err) != bailey.Conflict {
			t.Errorf("%s of an owned machine: %v, want a Conflict", what, err)
		}
	}
	m.Release()
	other := testHost(t, Config{})
	adopted, err := other.Open(t.Context(), m.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer adopted.Destroy(context.Background())
	if adopted.PID() != m.PID() {
		t.Errorf("process %d, want %d", adopted.PID(), m.PID())
	}
	if err := adopted.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, adopted, "ping b", "pong b 3")
	unix.Kill(adopted.PID(), unix.SIGKILL)
	select {
	case <-adopted.Done():
	case <-time.After(patience):
		t.Fatal("the end of an adopted QEMU is not noticed")
	}
	wantState(t, adopted, Ended)
	if err := adopted.Resume(t.Context()); bailey.KindOf(err) != bailey.Unavailable {
		t.Errorf("Resume after the end: %v", err)
	}
	if err := adopted.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(m.Dir()); err == nil {
		t.Error("the directory remains")
	}
}

func second(_ *Machine, err error) error { return err }

func wantState(t *testing.T, m *Machine, want string) {
	t.Helper()
	s, err := m.Status(t.Context())
	if err != nil || s.State != want || !s.Emulated || (want == Ended) != (s.Problem != "") {
		t.Errorf("%+v, %v, want %s", s, err, want)
	}
}

// TestDisk writes to the disk of a machine, of a clone, and of a clone of a clone. Each sees what was there before it,
// and nobody changes the image.
func TestDisk(t *testing.T) {
	ktest.Long(t)
	h, s := testHost(t, Config{}), testSpec(t)
	image := testImage(t)
	digest, err := h.digestPath(image)
	if err != nil {
		t.Fatal(err)
	}
	s.Layers, s.DiskBytes = []Layer{{image, "raw", digest}}, 8<<20
	m := startGuest(t, h, s)
	expect(t, m, "size x", "16384")
	expect(t, m, "read 0", "text "+imageText)
	expect(t, m, "write 1 one", "written")
	expect(t, m, "write 2000 far", "written")
	expect(t, m, "fill 8", "filled")
	sum := "sum 261120"
	expect(t, m, "sum x", sum)
	clone, again := cloneOf(t, h, m), cloneOf(t, h, m)
	expect(t, clone, "read 0", "text "+imageText)
	expect(t, clone, "read 1", "text one")
	expect(t, clone, "write 1 two", "written")
	grandchild := cloneOf(t, h, clone) // its memory was private
	expect(t, grandchild, "read 1", "text two")
	expect(t, grandchild, "read 2000", "text far")
	expect(t, grandchild, "sum x", sum)
	expect(t, grandchild, "write 0 three", "written")
	expect(t, clone, "read 0", "text "+imageText)
	expect(t, again, "read 1", "text one")
	expect(t, m, "read 1", "text one")
	if text, err := os.ReadFile(image); err != nil || !strings.HasPrefix(string(text), imageText+"\x00") {
		t.Errorf("the image was changed: %q, %v", text[:40], err)
	}
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = h.Start(t.Context(), filepath.Join(t.TempDir(), "m"), s)
	if bailey.KindOf(err) != bailey.Conflict || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("a changed image: %v", err)
	}
}

// cloneOf takes a snapshot of a machine and clones it. The machine must run before and after.
func cloneOf(t testing.TB, h *Host, m *Machine) *Machine {
	t.Helper()
	c, err := h.Clone(t.Context(), templateOf(t, h, m), filepath.Join(t.TempDir(), "clone"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Destroy(context.Background()) })
	return c
}

// templateOf takes a snapshot of a machine and loads it.
func templateOf(t testing.TB, h *Host, m *Machine) *Template {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "template")
	if err := m.Snapshot(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	tm, err := h.OpenTemplate(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tm.Close)
	return tm
}

// TestQ35 starts, saves and clones the machine for kernels without virtio-mmio.
func TestQ35(t *testing.T) {
	ktest.Long(t)
	h, s := testHost(t, Config{}), testSpec(t)
	s.Machine, s.Layers = Q35, []Layer{{testImage(t), "raw", ""}}
	m := startGuest(t, h, s)
	expect(t, m, "read 0", "text "+imageText)
	c := cloneOf(t, h, m)
	expect(t, c, "read 0", "text "+imageText)
	expect(t, c, "ping x", "pong x 3")
}

// TestCancelled cancels the caller of each operation. A machine that was started must continue to work.
func TestCancelled(t *testing.T) {
	s := testSpec(t)
	s.Layers = []Layer{{testImage(t), "raw", ""}}
	var cancel context.CancelFunc
	var at string
	h := testHost(t, Config{step: func(name string) {
		if name == at {
			cancel()
		}
	}})
	dir := t.TempDir()
	m := startGuest(t, h, s)
	tm := templateOf(t, h, m)
	ctx := func(step string) (c context.Context) {
		c, cancel = context.WithCancel(t.Context())
		at = step
		return c
	}
	for _, step := range []string{"pause", "save state", "copy disk", "copy memory"} {
		if err := m.Snapshot(ctx(step), filepath.Join(dir, "cancelled")); err == nil {
			t.Errorf("%s: the snapshot was not cancelled", step)
		}
		if err := m.Resume(t.Context()); err != nil { // after "pause" it may be paused
			t.Errorf("%s: %v", step, err)
		}
		if text, err := askGuest(t.Context(), m, "read 0"); err != nil || text != "text "+imageText {
			t.Fatalf("%s: %q, %v", step, text, err)
		}
	}
	for _, step := range []string{"monitor", "load", "run", "welcome"} {
		if _, err := h.Clone(ctx(step), tm, filepath.Join(dir, "cancelled")); err == nil {
			t.Errorf("%s: the clone was not cancelled", step)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 || len(holders(t, dir)) > 0 {
		t.Errorf("%v and the processes %v remain, %v", entries, holders(t, dir), err)
	}
}

// TestClonesAtOnce clones a template by several goroutines.
func TestClonesAtOnce(t *testing.T) {
	h := testHost(t, Config{})
	m := startGuest(t, h, testSpec(t))
	dir, tm := t.TempDir(), templateOf(t, h, m)
	answers := make(chan error, 5)
	for i := range cap(answers) {
		go func() {
			c, err := h.Clone(t.Context(), tm, filepath.Join(dir, strconv.Itoa(i)))
			if err == nil {
				var text string
				if text, err = askGuest(t.Context(), c, "ping x"); err == nil && text != "pong x 3" {
					err = fmt.Errorf("the clone %d answers %q", i, text)
				}
				err = errors.Join(err, c.Destroy(context.Background()))
			}
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// TestARM64 lets QEMU for arm64 create its machine, which it would refuse if it did not know an argument or a device. The
// machine runs a kernel without an initial file system, so nothing answers in it.
func TestARM64(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "qemu-system-aarch64")
	s := Spec{Arch: "arm64", Machine: Virt, Accel: Emulated, MemoryMB: 128, CPUs: 1, Kernel: ktest.Fetched(t, "linux-6.12-arm64"),
		Layers: []Layer{{testImage(t), "raw", ""}}}
	m := startGuest(t, testHost(t, Config{Ready: answers}), s)
	wantState(t, m, Running)
}

const firstUID = 1_900_000_000 // of machines in tests

// TestAttackTemplate runs machines under user ids of their own. QEMU has no way to the files of the host, and cannot
// change the memory that it shares with other clones, though it must open it for writing.
func TestAttackTemplate(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "root")
	h := testHost(t, Config{FirstUID: firstUID, UIDs: 2})
	s := testSpec(t)
	s.Layers = []Layer{{testImage(t), "raw", ""}}
	m := startGuest(t, h, s)
	c := cloneOf(t, h, m)
	expect(t, c, "read 0", "text "+imageText)
	if m.UID() == c.UID() || m.UID() < firstUID || c.UID() > firstUID+1 {
		t.Errorf("user ids %d and %d", m.UID(), c.UID())
	}
	for _, m := range []*Machine{m, c} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
		if err != nil {
			t.Fatal(err)
		}
		uid := strconv.Itoa(m.UID())
		for _, want := range []string{"Uid:\t" + uid + "\t" + uid + "\t" + uid, "Gid:\t" + uid, "Groups:\t \n", "CapEff:\t0000000000000000",
			"CapBnd:", "Seccomp:\t2"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the status of QEMU lacks %q: %s", want, text)
			}
		}
		var st unix.Stat_t
		if err := unix.Stat(m.Dir(), &st); err != nil || st.Mode&0o777 != 0o700 || st.Uid != 0 {
			t.Errorf("the directory has mode %o and user id %d, %v", st.Mode, st.Uid, err)
		}
	}
	if _, err := h.Start(t.Context(), filepath.Join(t.TempDir(), "third"), s); err == nil || !strings.Contains(err.Error(), "all 2 user ids") {
		t.Errorf("a third machine: %v", err)
	}
	m.Release()
	if m, err := h.Open(t.Context(), m.Dir()); err != nil {
		t.Error(err)
	} else {
		expect(t, m, "ping adopted", "pong adopted 2")
		defer m.Destroy(context.Background())
	}
	f, err := c.inheritedFile(c.record.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the memory of a template can be written")
	}
	if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the memory of a template can be mapped for writing")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("the memory of a template can be truncated")
	}
}

// TestLimited puts a machine into control groups of its own, which are removed with it.
func TestLimited(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "root", "cgroup")
	var groups []string
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		for _, file := range []string{"memory.limit_in_bytes", "pids.max", "memory.max"} {
			dir := filepath.Join(root, "bailey-vm-test-"+strconv.Itoa(os.Getpid()))
			if os.Mkdir(dir, 0o755) != nil {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				os.Remove(dir)
				continue
			}
			t.Cleanup(func() { os.Remove(dir) })
			groups = append(groups, dir)
		}
	}
	if len(groups) == 0 {
		ktest.Missing(t, "cgroup", fmt.Errorf("no controller of memory or processes"))
	}
	h := testHost(t, Config{Cgroups: groups})
	m := startGuest(t, h, testSpec(t))
	if l := m.Limited(); !slices.Contains(l, "pids.max") && !slices.Contains(l, "memory.max") {
		t.Errorf("limited in %v", l)
	}
	for _, dir := range m.record.Groups {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || !slices.Contains(strings.Fields(string(text)), strconv.Itoa(m.PID())) {
			t.Errorf("%s: %q, %v, want process %d", dir, text, err, m.PID())
		}
	}
	var core unix.Rlimit
	if err := unix.Prlimit(m.PID(), unix.RLIMIT_CORE, nil, &core); err != nil || core.Max != 0 {
		t.Errorf("cores of %d bytes, %v", core.Max, err)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range m.record.Groups {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s remains", dir)
		}
	}
}

// TestRefused starts machines that cannot start. Each error says why, and nothing remains.
func TestRefused(t *testing.T) {
	s := testSpec(t)
	damaged := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(damaged, []byte("not a kernel"), 0o644); err != nil {
		t.Fatal(err)
	}
	exists := t.TempDir()
	for name, c := range map[string]struct {
		config Config
		change func(s *Spec, dir *string)
		want   string
	}{
		"program":        {Config{Programs: map[string]string{"amd64": "/nowhere/qemu"}}, nil, "the program /nowhere/qemu that runs machines is missing"},
		"not a program":  {Config{Programs: map[string]string{"amd64": "/bin/false"}}, nil, "QEMU ended"},
		"kernel":         {Config{}, func(s *Spec, _ *string) { s.Kernel += "-missing" }, "cannot open the kernel"},
		"damaged kernel": {Config{}, func(s *Spec, _ *string) { s.Kernel = damaged }, "QEMU ended (exit status 1): "},
		"image":          {Config{}, func(s *Spec, _ *string) { s.Layers = []Layer{{"/nowhere", "raw", ""}} }, "cannot open the image"},
		"device":         {Config{}, func(s *Spec, _ *string) { s.Layers = []Layer{{"/dev/null", "raw", ""}} }, "not a regular file"},
		"small disk": {Config{}, func(s *Spec, _ *string) { s.Layers, s.DiskBytes = []Layer{{s.Kernel, "raw", ""}}, 512 },
			"smaller than its image"},
		"exists":         {Config{}, func(_ *Spec, dir *string) { *dir = exists }, "exists at"},
		"no directory":   {Config{}, func(_ *Spec, dir *string) { *dir += "/a/b" }, "no such file or directory"},
		"private memory": {Config{}, func(s *Spec, _ *string) { s.Private = true }, "clone a template"},
		"not ready": {Config{Ready: func(context.Context, *Machine) error { return fmt.Errorf("no answer") }}, nil,
			"the guest did not become ready: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := s, filepath.Join(t.TempDir(), "machine")
			before := dir
			if c.change != nil {
				c.change(&s, &dir)
			}
			_, err := testHost(t, c.config).Start(t.Context(), dir, s)
			if err == nil || !strings.Contains(err.Error()+bailey.HintOf(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := os.Lstat(before); err == nil {
				t.Error("the directory remains")
			}
		})
	}
}

// TestKVMDenied starts a machine whose user id may not open /dev/kvm.
func TestKVMDenied(t *testing.T) {
	ktest.Require(t, "root")
	s := testSpec(t)
	s.Accel = KVM
	h := testHost(t, Config{FirstUID: firstUID + 1000, UIDs: 1})
	_, err := h.Start(t.Context(), filepath.Join(t.TempDir(), "machine"), s)
	if err == nil || !strings.Contains(err.Error(), "QEMU may not use KVM") || !strings.Contains(bailey.HintOf(err), "/dev/kvm") {
		t.Errorf("%v (%s)", err, bailey.HintOf(err))
	}
}

// TestGuestEnds restarts the guest, which ends QEMU.
func TestGuestEnds(t *testing.T) {
	ktest.Long(t)
	m := startGuest(t, testHost(t, Config{}), testSpec(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if text, err := askGuest(ctx, m, "end x"); err == nil {
		t.Errorf("an answer of a guest that has ended: %q", text)
	}
	<-m.Done()
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "QEMU ended without a message: exit status 0") {
		t.Error(err)
	}
}

// TestAttackDirectory removes directories that are not machines.
func TestAttackDirectory(t *testing.T) {
	h := testHost(t, Config{})
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "work.txt")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(t.Context(), dir); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("%v, want a Conflict", err)
	}
	link := dir + "-link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(t.Context(), link); err == nil {
		t.Error("a link was followed")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{"garbage": "{", "huge": strings.Repeat("x", maxRecord+1), "unknown": `{"A":1}`} {
		broken := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(broken, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(broken, recordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Open(t.Context(), broken); bailey.KindOf(err) != bailey.NotFound {
			t.Errorf("%s: %v, want NotFound", name, err)
		}
		if err := h.Remove(t.Context(), broken); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
