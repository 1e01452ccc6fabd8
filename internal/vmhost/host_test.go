//go:build linux

package vmhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/hostapi"
)

// TestLifecycle takes a sandbox through all its states, as a client sees them.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	s := r.newSandbox("one")
	if s.State != hostapi.Running || s.Accelerator != "emulated" || s.Machine != "microvm" || s.Network != "none" ||
		s.Owner != ann || time.Until(s.Expires) < 23*time.Hour || !idPattern().MatchString(s.ID) || s.ImageDigest == "" {
		t.Errorf("%+v", s)
	}
	if got := r.shell("one", "echo kept > /kept; hostname; pwd"); got != "one\n/" {
		t.Errorf("%q", got)
	}
	job := must(r, hostapi.StartJob, hostapi.Command{Sandbox: "one", Argv: []string{"/bin/busybox", "sleep", "10000"}})
	if paused := must(r, hostapi.Pause, hostapi.Target{Sandbox: "one"}); paused.State != hostapi.Paused {
		t.Errorf("%+v", paused)
	}
	if _, err := hostapi.ReadFile.Ask(t.Context(), r.Client, ann, hostapi.FileRequest{Sandbox: "one", Path: "/kept"}); !errors.Is(err, bailey.Conflict) || !strings.Contains(bailey.HintOf(err), "resume") {
		t.Error("a paused sandbox:", err)
	}
	must(r, hostapi.Resume, hostapi.Target{Sandbox: "one"})
	snap := must(r, hostapi.TakeSnapshot, hostapi.SnapshotRequest{Sandbox: "one", Name: "before"})
	if snap.Sandbox != s.ID || snap.Bytes < 1<<20 || snap.Owner != ann {
		t.Errorf("%+v", snap)
	}
	r.shell("one", "echo changed > /kept")
	stopped := must(r, hostapi.Stop, hostapi.Target{Sandbox: "one"})
	if stopped.State != hostapi.Stopped || len(machinesBelow(t, r.host)) != 0 {
		t.Errorf("%+v, %v", stopped, machinesBelow(t, r.host))
	}
	must(r, hostapi.Start, hostapi.Target{Sandbox: "one"})
	if got := r.shell("one", "cat /kept; hostname"); got != "changed\none" {
		t.Errorf("after stop and start: %q", got)
	}
	if jobs := must(r, hostapi.Jobs, hostapi.Target{Sandbox: "one"}); len(jobs) != 1 || jobs[0].ID != job.ID || !jobs[0].Running {
		t.Errorf("after stop and start: %+v", jobs)
	}
	restored := must(r, hostapi.Restore, hostapi.RestoreRequest{Sandbox: "one", Snapshot: "before"})
	if got := r.shell("one", "cat /kept"); got != "kept" || restored.ID != s.ID {
		t.Errorf("after the restoration: %q, %+v", got, restored)
	}
	extended := must(r, hostapi.Extend, hostapi.ExtendRequest{Sandbox: "one", TTL: 48 * time.Hour})
	if time.Until(extended.Expires) < 47*time.Hour {
		t.Errorf("%+v", extended)
	}
	must(r, hostapi.RemoveSnapshot, hostapi.Target{Sandbox: "before"})
	must(r, hostapi.Destroy, hostapi.Target{Sandbox: "one"})
	if _, err := hostapi.Show.Ask(t.Context(), r.Client, ann, hostapi.Target{Sandbox: s.ID}); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	st := must(r, hostapi.HostStatus, hostapi.None{})
	if st.Sandboxes != 0 || st.Snapshots != 0 || st.Templates != 1 || st.FreeMB == 0 || st.FreeBytes == 0 || st.Accelerator != "emulated" {
		t.Errorf("%+v", st)
	}
	wantFiles(t, r.host, 0, 1)
}

// machinesBelow lists the directories of machines of sandboxes.
func machinesBelow(t testing.TB, h *Host) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(string(h.Dir), "sandboxes", "*", "machine-*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// wantFiles checks how many sandboxes and templates are on the disk, and that each template is complete.
func wantFiles(t testing.TB, h *Host, boxes, templates int) {
	t.Helper()
	for pattern, want := range map[string]int{"sandboxes/*": boxes, "templates/*": templates, "templates/*/vm/template.json": templates,
		"templates/*/*": 2 * templates} {
		got, err := filepath.Glob(filepath.Join(string(h.Dir), pattern))
		if err != nil || len(got) != want {
			t.Errorf("%s: %q, %v, want %d", pattern, got, err, want)
		}
	}
}

// TestClones checks that clones share nothing that identifies a machine: sandboxes of one image, and branches of one.
func TestClones(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	r.newSandbox("one")
	r.shell("one", "mkdir -p /etc/ssh; echo kept > /kept")
	two := must(r, hostapi.Create, hostapi.CreateRequest{Image: "agent", MemoryMB: 96})
	r.addBusybox(two.ID)
	branches := must(r, hostapi.Branch, hostapi.BranchRequest{Sandbox: "one", N: 2, Name: "b"})
	if len(branches) != 2 || branches[0].Name != "b" || branches[1].Name != "b-2" || branches[0].From == "" {
		t.Fatalf("%+v", branches)
	}
	seen := map[string]string{}
	for _, id := range []string{"one", two.ID, branches[0].ID, branches[1].ID} {
		for what, line := range map[string]string{"machine id": "cat /etc/machine-id", "host key": "cat /etc/ssh/*.pub || echo none of $(hostname)", "host name": "hostname",
			"random": "head -c 16 /dev/urandom | od -An -tx1"} {
			text := what + " " + r.shell(id, line)
			if other := seen[text]; other != "" {
				t.Errorf("%s and %s have the same %s", id, other, text)
			}
			seen[text] = id
		}
	}
	if got := r.shell("b-2", "cat /kept; ls /etc/ssh"); !strings.HasPrefix(got, "kept\nssh_host_") {
		t.Errorf("%q", got)
	}
	must(r, hostapi.Destroy, hostapi.Target{Sandbox: "one"}) // branches do not need it
	r.shell("b", "true")
}

// TestExec runs commands with streams, signals, limits and a terminal, and cancels one.
func TestExec(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	r.newSandbox("one")
	run := func(ctx context.Context, c hostapi.Command, s hostapi.Streams) (hostapi.Exit, error) {
		c.Sandbox = "one"
		return r.Exec(ctx, ann, c, s)
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB, more than all windows
	var out, complaint bytes.Buffer
	exit, err := run(t.Context(), hostapi.Command{Argv: []string{"/bin/busybox", "sh", "-c", "/bin/busybox cat; echo bad >&2; exit 3"}},
		hostapi.Streams{Stdin: bytes.NewReader(text), Stdout: &out, Stderr: &complaint})
	if err != nil || exit != (hostapi.Exit{Code: 3}) || !bytes.Equal(out.Bytes(), text) || complaint.String() != "bad\n" {
		t.Errorf("%+v, %v, %d bytes, %q", exit, err, out.Len(), complaint.String())
	}
	// Input that the command does not read must not keep it from ending.
	exit, err = run(t.Context(), hostapi.Command{Argv: []string{"/bin/busybox", "true"}}, hostapi.Streams{Stdin: bytes.NewReader(text)})
	if err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
	signals := make(chan int, 1)
	signals <- 15
	exit, err = run(t.Context(), hostapi.Command{Argv: []string{"/bin/busybox", "sleep", "10000"}}, hostapi.Streams{Signals: signals})
	if err != nil || exit.Signal != 15 {
		t.Errorf("%+v, %v", exit, err)
	}
	exit, err = run(t.Context(), hostapi.Command{Argv: []string{"/bin/busybox", "sleep", "10000"}, Timeout: 50 * time.Millisecond}, hostapi.Streams{})
	if err != nil || !exit.TimedOut {
		t.Errorf("%+v, %v", exit, err)
	}
	out.Reset()
	exit, err = run(t.Context(), hostapi.Command{Argv: []string{"/bin/busybox", "stty", "size"}, Terminal: &hostapi.Size{Rows: 11, Cols: 47}},
		hostapi.Streams{Stdout: &out})
	if err != nil || exit.Code != 0 || strings.TrimSpace(out.String()) != "11 47" {
		t.Errorf("%+v, %v, %q", exit, err, out.String())
	}
	_, err = run(t.Context(), hostapi.Command{Argv: []string{"/bin/busybox", "yes"}, MaxOutput: 1 << 20}, hostapi.Streams{Stdout: io.Discard})
	if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Error("a flood of output:", err)
	}
	_, err = run(t.Context(), hostapi.Command{Argv: []string{"/no/such"}}, hostapi.Streams{})
	if err == nil {
		t.Error("a program that does not exist ran")
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := writerFunc(func([]byte) (int, error) { cancel(); return 0, nil })
	_, err = run(ctx, hostapi.Command{Argv: []string{"/bin/busybox", "yes", "cancelled"}}, hostapi.Streams{Stdout: first})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for deadline := time.Now().Add(patience); ; {
		if !strings.Contains(r.shell("one", "ps"), "yes cancelled") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a cancelled command continues to run")
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestFilesAndJobs writes, edits, lists and reads files, and follows a job.
func TestFilesAndJobs(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	must(r, hostapi.Create, hostapi.CreateRequest{Name: "one", Image: "agent", MemoryMB: 192}) // for a large file
	r.addBusybox("one")
	must(r, hostapi.WriteFile, hostapi.WriteRequest{Sandbox: "one", Path: "/d/f", Data: []byte("a b a"), Mode: 0o600, Parents: true})
	if n := must(r, hostapi.EditFile, hostapi.EditRequest{Sandbox: "one", Path: "/d/f", Before: "a", After: "c", All: true}); n.Count != 2 {
		t.Error(n)
	}
	if got := must(r, hostapi.ReadFile, hostapi.FileRequest{Sandbox: "one", Path: "/d/f"}); string(got.Data) != "c b c" {
		t.Errorf("%q", got.Data)
	}
	list := must(r, hostapi.ListFiles, hostapi.FileRequest{Sandbox: "one", Path: "/d"})
	if len(list) != 1 || list[0].Name != "f" || list[0].Size != 5 || list[0].Mode&0o777 != 0o600 {
		t.Errorf("%+v", list)
	}
	big := make([]byte, 10<<20)
	if _, err := hostapi.WriteFile.Ask(t.Context(), r.Client, ann, hostapi.WriteRequest{Sandbox: "one", Path: "/d/g", Data: append(big, 0)}); !errors.Is(err, bailey.Invalid) {
		t.Error("a file of more than 10 MiB:", err)
	}
	must(r, hostapi.WriteFile, hostapi.WriteRequest{Sandbox: "one", Path: "/d/g", Data: big})
	if got := must(r, hostapi.ReadFile, hostapi.FileRequest{Sandbox: "one", Path: "/d/g"}); len(got.Data) != len(big) {
		t.Errorf("%d bytes", len(got.Data))
	}
	job := must(r, hostapi.StartJob, hostapi.Command{Sandbox: "one", Argv: []string{"/bin/busybox", "sh", "-c", "echo out; exec /bin/busybox sleep 10000"}})
	for deadline := time.Now().Add(patience); ; {
		out := must(r, hostapi.ReadOutput, hostapi.JobRequest{Sandbox: "one", ID: job.ID})
		if string(out.Output) == "out\n" && out.Job.Running {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", out)
		}
	}
	must(r, hostapi.KillJob, hostapi.JobRequest{Sandbox: "one", ID: job.ID, Signal: 9})
	for deadline := time.Now().Add(patience); ; {
		jobs := must(r, hostapi.Jobs, hostapi.Target{Sandbox: "one"})
		if len(jobs) == 1 && !jobs[0].Running && jobs[0].Exit.Signal == 9 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", jobs)
		}
	}
}

// TestOwners checks that a sandbox is visible to the agent that created it and to the person, and to nobody else, and that
// each owner has names and a quota of its own.
func TestOwners(t *testing.T) {
	t.Parallel()
	r := newHost(t, func(c *Config) { c.PerOwner = 1 })
	s := must(r, hostapi.Create, hostapi.CreateRequest{Name: "one", Image: "agent", MemoryMB: 96})
	for _, o := range []hostapi.Owner{{Person: "ann", Agent: "other"}, {Person: "ann"}, {Person: "bob", Agent: "coder"}, {Person: "bob", Operator: true}} {
		list, err := hostapi.List.Ask(t.Context(), r.Client, o, hostapi.None{})
		if err != nil || len(list) != 0 {
			t.Errorf("%+v sees %+v, %v", o, list, err)
		}
		for _, ref := range []string{s.ID, "one"} {
			if _, err := hostapi.Destroy.Ask(t.Context(), r.Client, o, hostapi.Target{Sandbox: ref}); !errors.Is(err, bailey.NotFound) {
				t.Errorf("%+v destroys %s: %v", o, ref, err)
			}
			if _, err := r.Exec(t.Context(), o, hostapi.Command{Sandbox: ref, Argv: []string{"/x"}}, hostapi.Streams{}); !errors.Is(err, bailey.NotFound) {
				t.Errorf("%+v runs a command in %s: %v", o, ref, err)
			}
		}
	}
	person := hostapi.Owner{Person: "ann", Operator: true}
	if list, err := hostapi.List.Ask(t.Context(), r.Client, person, hostapi.None{}); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	refused := map[string]hostapi.CreateRequest{
		"may have":        {Name: "two", Image: "agent", MemoryMB: 96},
		"exists":          {Name: "one", Image: "agent", MemoryMB: 96},
		"cannot have the": {Name: "../x", Image: "agent"},
	}
	for want, q := range refused {
		if _, err := hostapi.Create.Ask(t.Context(), r.Client, ann, q); err == nil || !strings.Contains(err.Error(), want) || bailey.HintOf(err) == "" {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if _, err := hostapi.List.Ask(t.Context(), r.Client, hostapi.Owner{Agent: "x"}, hostapi.None{}); !errors.Is(err, bailey.Invalid) {
		t.Error("no person:", err)
	}
	if _, err := hostapi.Create.Ask(t.Context(), r.Client, hostapi.Owner{Person: "ann", Agent: "other"}, hostapi.CreateRequest{Name: "one", Image: "agent", MemoryMB: 96}); err != nil {
		t.Error("the same name of another owner:", err)
	}
	if _, err := hostapi.Show.Ask(t.Context(), r.Client, person, hostapi.Target{Sandbox: "one"}); !errors.Is(err, bailey.Conflict) {
		t.Error("a name of two sandboxes:", err)
	}
}

// TestRefusals asks for sandboxes that cannot exist.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	for want, q := range map[string]hostapi.CreateRequest{
		"there is no image": {Image: "none"}, "from an image or": {}, "cannot live": {Image: "agent", TTL: time.Second},
		"no places": {Image: "agent", Network: &hostapi.Network{}}, "host names cannot have": {Image: "agent", Network: &hostapi.Network{Endpoints: []bailey.Endpoint{{Host: "a b", Port: 1}}}},
		"places exceed": {Image: "agent", Network: manyPlaces()}, "processors": {Image: "agent", CPUs: 1000}, "MB of memory": {Image: "agent", MemoryMB: 8},
		"there is no snapshot": {Snapshot: "../x"}, "cannot be changed": {Snapshot: "x", CPUs: 2},
	} {
		_, err := hostapi.Create.Ask(t.Context(), r.Client, ann, q)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", q, err, want)
		}
	}
	r = newHost(t, func(c *Config) { c.ReserveMB = 1 << 30 })
	if _, err := hostapi.Create.Ask(t.Context(), r.Client, ann, hostapi.CreateRequest{Image: "agent"}); !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "free memory") {
		t.Error(err)
	}
	r = newHost(t, func(c *Config) { c.ReserveBytes = 1 << 60 })
	if _, err := hostapi.Create.Ask(t.Context(), r.Client, ann, hostapi.CreateRequest{Image: "agent"}); !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "free") {
		t.Error(err)
	}
	wantFiles(t, r.host, 0, 0)
}

// TestExpired checks that the janitor destroys a sandbox whose time is over, and that the host ends when it is idle.
func TestExpired(t *testing.T) {
	t.Parallel()
	c := testConfig(t, shortDir(t))
	c.Janitor, c.Idle = 20*time.Millisecond, time.Hour
	r := runHost(t, c)
	s := must(r, hostapi.Create, hostapi.CreateRequest{Image: "agent", MemoryMB: 96})
	b := r.boxOf(s.ID)
	if err := b.setRecord(false, func(r *boxRecord) { r.Expires = time.Now() }); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if list := must(r, hostapi.List, hostapi.None{}); len(list) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("an expired sandbox is not destroyed")
		}
	}
	wantFiles(t, r.host, 0, 1)
	r.stop()
	c.Idle = time.Nanosecond
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context()); err != nil {
		t.Error("an idle host:", err)
	}
	if _, err := os.Lstat(c.Dir.Socket()); err == nil {
		t.Error("the socket of a host that ended remains")
	}
}

// TestAdopted stops a host and runs another one, which adopts its sandboxes in their states.
func TestAdopted(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	r := runHost(t, testConfig(t, dir))
	r.newSandbox("running")
	r.shell("running", "echo kept > /kept")
	must(r, hostapi.Branch, hostapi.BranchRequest{Sandbox: "running", N: 1, Name: "paused"})
	must(r, hostapi.Branch, hostapi.BranchRequest{Sandbox: "running", N: 1, Name: "stopped"})
	must(r, hostapi.Pause, hostapi.Target{Sandbox: "paused"})
	must(r, hostapi.Stop, hostapi.Target{Sandbox: "stopped"})
	second, err := New(testConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, bailey.Conflict) {
		t.Error("a second host of the directory:", err)
	}
	before := fmt.Sprint(must(r, hostapi.List, hostapi.None{}))
	r.stop()
	r = runHost(t, testConfig(t, dir))
	defer clearHost(t, r)
	if after := fmt.Sprint(must(r, hostapi.List, hostapi.None{})); after != before {
		t.Errorf("before: %s\nafter: %s", before, after)
	}
	must(r, hostapi.Resume, hostapi.Target{Sandbox: "paused"})
	must(r, hostapi.Start, hostapi.Target{Sandbox: "stopped"})
	for _, name := range []string{"running", "paused", "stopped"} {
		if got := r.shell(name, "cat /kept"); got != "kept" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestDisks follows the content of a disk through snapshots, branches, stop and restore. Templates stay as long as a disk
// needs them, and no longer.
func TestDisks(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	s := must(r, hostapi.Create, hostapi.CreateRequest{Name: "one", Image: "disk", MemoryMB: 96})
	if s.DiskBytes != 64<<20 {
		t.Errorf("%+v", s)
	}
	r.addBusybox("one")
	put := func(id, text string) {
		r.shell(id, fmt.Sprintf("printf '%%-8s' %s | dd of=/dev/vda bs=512 seek=1000 conv=fsync 2>/dev/null", text))
	}
	want := func(id, text string) {
		t.Helper()
		if got := r.shell(id, "dd if=/dev/vda bs=512 skip=1000 count=1 iflag=direct 2>/dev/null | head -c 8"); strings.TrimSpace(got) != text {
			t.Errorf("%s has %q, want %q", id, got, text)
		}
	}
	put("one", "first")
	must(r, hostapi.TakeSnapshot, hostapi.SnapshotRequest{Sandbox: "one", Name: "s1"})
	put("one", "second")
	must(r, hostapi.Stop, hostapi.Target{Sandbox: "one"})
	must(r, hostapi.Start, hostapi.Target{Sandbox: "one"})
	want("one", "second")
	must(r, hostapi.Branch, hostapi.BranchRequest{Sandbox: "one", N: 1, Name: "b"})
	put("one", "third")
	want("b", "second")
	must(r, hostapi.Create, hostapi.CreateRequest{Name: "two", Snapshot: "s1"})
	want("two", "first")
	must(r, hostapi.Restore, hostapi.RestoreRequest{Sandbox: "one", Snapshot: "s1"})
	want("one", "first")
	must(r, hostapi.RemoveSnapshot, hostapi.Target{Sandbox: "s1"})
	must(r, hostapi.Destroy, hostapi.Target{Sandbox: "one"})
	put("two", "mine")
	want("two", "mine")
	want("b", "second")
	must(r, hostapi.Destroy, hostapi.Target{Sandbox: "two"})
	want("b", "second")
	must(r, hostapi.Destroy, hostapi.Target{Sandbox: "b"})
	wantFiles(t, r.host, 0, 1)
}

// TestImageReplaced checks that a warm template does not outlive its image.
func TestImageReplaced(t *testing.T) {
	t.Parallel()
	c := testConfig(t, shortDir(t))
	find := c.FindImage
	var digest atomic.Value
	var inUse atomic.Int64
	digest.Store("old")
	c.FindImage = func(string) (Image, error) {
		i, err := find("disk")
		i.Digest, i.Release = digest.Load().(string), func() error { inUse.Add(-1); return nil }
		inUse.Add(1)
		return i, err
	}
	r := runHost(t, c)
	s := must(r, hostapi.Create, hostapi.CreateRequest{Image: "x", MemoryMB: 96})
	r.host.removeTemplates(t.Context())
	if n := inUse.Load(); n != 1 {
		t.Errorf("a sandbox uses its image %d times", n)
	}
	digest.Store("new")
	r.host.removeTemplates(t.Context())
	wantFiles(t, r.host, 1, 1) // its clone needs it
	must(r, hostapi.Destroy, hostapi.Target{Sandbox: s.ID})
	wantFiles(t, r.host, 0, 0)
	if n := inUse.Load(); n != 0 {
		t.Errorf("the image is in use %d times", n)
	}
}
