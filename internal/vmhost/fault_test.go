//go:build linux

package vmhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/ktest"
	"bailey/internal/vm"
)

// eventually waits for a condition.
func eventually(t testing.TB, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within the time:", what)
		}
	}
}

// TestMachineEnds kills the QEMU of a sandbox, ends another one from inside, and kills one while a command runs. Each is
// shown with the reason, and the others work.
func TestMachineEnds(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	good := r.newSandbox("good")
	must(r, hostapi.TakeSnapshot, hostapi.SnapshotRequest{Sandbox: "good", Name: "base"})
	must(r, hostapi.Branch, hostapi.BranchRequest{Sandbox: "good", N: 2, Name: "bad"})
	sleeping := make(chan error, 1)
	go func() {
		_, err := r.Exec(t.Context(), ann, hostapi.Command{Sandbox: "bad", Argv: []string{"/bin/busybox", "sleep", "10000"}}, hostapi.Streams{})
		sleeping <- err
	}()
	eventually(t, "the command runs", func() bool { return strings.Contains(r.shell("bad", "ps"), "sleep 10000") })
	bad := must(r, hostapi.Show, hostapi.Target{Sandbox: "bad"})
	unix.Kill(r.boxOf(bad.ID).machineNow().PID(), unix.SIGKILL)
	if err := <-sleeping; !errors.Is(err, bailey.Unavailable) {
		t.Error("a command whose machine was killed:", err)
	}
	r.Exec(t.Context(), ann, hostapi.Command{Sandbox: "bad-2", Argv: []string{"/bin/busybox", "sh", "-c", "echo c > /proc/sysrq-trigger"}}, hostapi.Streams{})
	for name, reason := range map[string]string{"bad": "killed", "bad-2": ""} {
		eventually(t, name+" has ended", func() bool {
			return must(r, hostapi.Show, hostapi.Target{Sandbox: name}).State == hostapi.Ended
		})
		s := must(r, hostapi.Show, hostapi.Target{Sandbox: name})
		if !strings.Contains(s.Problem, reason) || s.Hint == "" {
			t.Errorf("%+v", s)
		}
		_, err := hostapi.Jobs.Ask(t.Context(), r.Client, ann, hostapi.Target{Sandbox: name})
		if !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "has ended") {
			t.Error(err)
		}
	}
	eventually(t, "the files of the machines are removed", func() bool { return len(machinesBelow(t, r.host)) == 1 })
	if s := must(r, hostapi.Restore, hostapi.RestoreRequest{Sandbox: "bad", Snapshot: "base"}); s.State != hostapi.Running || s.Problem != "" {
		t.Errorf("%+v", s)
	}
	r.shell("bad", "true")
	r.shell(good.ID, "true")
}

// TestMachinesKilled kills every QEMU of the host in the middle of operations. They fail, say how QEMU ended, and leave nothing
// but what was there.
func TestMachinesKilled(t *testing.T) {
	t.Parallel()
	var at atomic.Value
	at.Store("")
	c := testConfig(t, shortDir(t))
	c.step = func(name string) {
		if !at.CompareAndSwap(name, "") {
			return
		}
		for _, pid := range holdersOf(t, string(c.Dir)) {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	r := runHost(t, c)
	defer clearHost(t, r)
	for _, try := range []struct{ operation, step string }{
		{"create", "renew"}, {"snapshot", "prepare guest"}, {"snapshot", "snapshot"}, {"branch", "renew"}, {"restore", "renew"},
		{"stop", "snapshot"}, {"stop", "record stopped"}, {"destroy", "destroy machine"},
	} {
		(&scene{t: t}).prepare(r)
		at.Store(try.step)
		err := perform(t.Context(), r.host, try.operation)
		if at.Load() != "" {
			t.Fatalf("%v did not occur", try)
		}
		survives := try.operation == "destroy" || try.step == "record stopped"
		if !survives && err == nil || survives && err != nil {
			t.Errorf("%v: %v", try, err)
		}
		eventually(t, "ended machines are recorded", func() bool {
			for _, s := range must(r, hostapi.List, hostapi.None{}) {
				if s.State == hostapi.Running {
					return false
				}
			}
			return len(machinesBelow(t, r.host)) == 0 && len(holdersOf(t, string(c.Dir))) == 0
		})
		for _, s := range must(r, hostapi.List, hostapi.None{}) {
			if s.Name != "source" && s.Name != "stopped" {
				t.Errorf("%v left %+v", try, s)
			}
		}
	}
}

// TestFlood starts an image whose guest writes to the channel of the agent without end, and lets a command write without
// end to a client that does not read. Another sandbox works meanwhile.
func TestFlood(t *testing.T) {
	t.Parallel()
	c := testConfig(t, shortDir(t))
	r := runHost(t, c)
	defer clearHost(t, r)
	r.newSandbox("good")
	begun := make(chan error, 1)
	go func() {
		_, err := hostapi.Create.Ask(t.Context(), r.Client, ann, hostapi.CreateRequest{Name: "flood", Image: "flood", MemoryMB: 96})
		begun <- err
	}()
	ctx, cancel := context.WithCancel(t.Context())
	silent, blocked := make(chan error, 1), make(chan struct{})
	go func() {
		once := false
		_, err := r.Exec(ctx, ann, hostapi.Command{Sandbox: "good", Argv: []string{"/bin/busybox", "yes"}}, hostapi.Streams{
			Stdout: writerFunc(func(p []byte) (int, error) {
				if !once {
					once = true
					close(blocked)
				}
				<-ctx.Done()
				return 0, io.ErrClosedPipe
			})})
		silent <- err
	}()
	<-blocked
	r.shell("good", "true")
	cancel()
	<-silent
	if err := <-begun; !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Error("an image that floods its channel:", err)
	}
	r.shell("good", "true")
	wantFiles(t, r.host, 1, 1)
	if len(holdersOf(t, string(c.Dir))) != 1 {
		t.Error("a process remains")
	}
}

// TestCorruptImages creates sandboxes from images that are damaged. The error names the image, and nothing remains.
func TestCorruptImages(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	c := testConfig(t, filepath.Join(dir, "host"))
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("this is not a kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	find := c.FindImage
	c.FindImage = func(name string) (Image, error) {
		i, err := find("agent")
		i.Name, i.Digest = name, name
		switch name {
		case "kernel":
			i.Kernel = text
		case "initrd":
			i.Initrd = text
		case "missing":
			i.Kernel = filepath.Join(dir, "missing")
		case "changed":
			i.Layers, i.DiskBytes = []vm.Layer{{Path: text, Format: "raw", SHA256: strings.Repeat("0", 64)}}, 1<<20
		}
		return i, err
	}
	r := runHost(t, c)
	defer clearHost(t, r)
	for _, name := range []string{"kernel", "initrd", "missing", "changed"} {
		_, err := hostapi.Create.Ask(t.Context(), r.Client, ann, hostapi.CreateRequest{Image: name, MemoryMB: 96})
		if !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "cannot start the image "+name) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", name, err, bailey.HintOf(err))
		}
	}
	wantFiles(t, r.host, 0, 0)
	r.newSandbox("good")
	// A damaged warm template is made again.
	for _, tm := range r.host.allTemplates() {
		tm.unloadMemory()
		if err := os.Truncate(filepath.Join(tm.vmDir(), "memory"), 4096); err != nil {
			t.Fatal(err)
		}
	}
	must(r, hostapi.Create, hostapi.CreateRequest{Name: "second", Image: "good", MemoryMB: 96})
	r.shell("good", "true")
}

// TestFullDisk fills the file system of the host in a mount namespace of its own.
func TestFullDisk(t *testing.T) {
	dir := shortDir(t)
	testConfig(t, dir)
	ktest.Require(t, "userns")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	guests, _ := guestFiles()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "BAILEY_VMHOST_JOB="+strings.Join([]string{"full", dir, ktest.Fetched(t, "linux-7.1-amd64"), guests, ktest.Fetched(t, "busybox-amd64")}, "|"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: ownID(os.Getuid()), GidMappings: ownID(os.Getgid())}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"create: the file system of ", "state: failed: the disk is full", "other: works", "resumed: running", "destroyed: true"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("there is not %q in\n%s", want, out)
		}
	}
}

// fillDisk mounts a small file system as the directory of a host, and fills it.
func fillDisk(ctx context.Context, dir, kernel, guests, busybox string) error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "size=300M,mode=700")
	}
	if err != nil {
		return err
	}
	c := configFor(dir, kernel, guests)
	c.ReserveBytes = 1
	h, err := New(c)
	if err != nil {
		return err
	}
	free, err := h.ownDirectory()
	if err != nil {
		return err
	}
	defer free()
	defer h.releaseAll()
	return h.useFullDisk(ctx, caller{ann, os.Geteuid()}, busybox)
}

func (h *Host) useFullDisk(ctx context.Context, c caller, busybox string) error {
	s, err := h.createBox(ctx, c, hostapi.CreateRequest{Name: "writer", Image: "disk", MemoryMB: 96})
	if err != nil {
		return err
	}
	defer h.destroyNamed(ctx, c, hostapi.Target{Sandbox: "writer"})
	if _, err := h.createBox(ctx, c, hostapi.CreateRequest{Name: "other", Image: "disk", MemoryMB: 96}); err != nil {
		return err
	}
	defer h.destroyNamed(ctx, c, hostapi.Target{Sandbox: "other"})
	box, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	if _, err := h.writeFile(ctx, c, hostapi.WriteRequest{Sandbox: s.ID, Path: "/busybox", Data: box, Mode: 0o755}); err != nil {
		return err
	}
	ballast := filepath.Join(string(h.Dir), "ballast")
	if err := fillFile(ballast); err != nil {
		return err
	}
	_, err = h.createBox(ctx, c, hostapi.CreateRequest{Name: "third", Image: "disk", MemoryMB: 96})
	fmt.Println("create:", err)
	if bailey.HintOf(err) == "" {
		return errors.New("the error has no hint")
	}
	session, err := h.openGuest(ctx, c, "writer")
	if err != nil {
		return err
	}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	command, _ := toCommand(hostapi.Command{Argv: []string{"/busybox", "dd", "if=/dev/urandom", "of=/dev/vda", "bs=1M", "count=16", "conv=fsync"}})
	go session.Exec(writing, command)
	for s.State != hostapi.Failed && ctx.Err() == nil {
		if s, err = h.showBox(ctx, c, hostapi.Target{Sandbox: "writer"}); err != nil {
			return err
		}
	}
	fmt.Printf("state: %s: %s (%s)\n", s.State, s.Problem, s.Hint)
	if _, err := h.openGuest(ctx, c, "writer"); bailey.KindOf(err) != bailey.Unavailable {
		return fmt.Errorf("a command in a sandbox whose disk is full: %w", err)
	}
	if _, err := h.listFiles(ctx, c, hostapi.FileRequest{Sandbox: "other", Path: "/"}); err == nil {
		fmt.Println("other: works")
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	s, err = h.resumeBox(ctx, c, hostapi.Target{Sandbox: "writer"})
	fmt.Printf("resumed: %s, %v\n", s.State, err)
	_, err = h.destroyNamed(ctx, c, hostapi.Target{Sandbox: "writer"})
	fmt.Println("destroyed:", err == nil, err)
	return nil
}

// fillFile writes to a file until the disk is full.
func fillFile(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for b := make([]byte, 4096); err == nil; {
		_, err = f.Write(b)
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return err
}

// ownID maps root of a new user namespace to an id.
func ownID(id int) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
}
