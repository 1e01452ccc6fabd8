//go:build linux

package vmhost

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/initramfs"
	"bailey/internal/ktest"
	"bailey/internal/sandbox"
)

// newCallHost runs a host with the image "tools", which has a shell.
func newCallHost(t *testing.T) (*running, *sandbox.CallRunner) {
	t.Helper()
	c := testConfig(t, shortDir(t))
	guests, err := guestFiles()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tools")
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(
			initramfs.Write(f, initramfs.Content{Agent: filepath.Join(guests, "agent.program"), Files: []initramfs.File{
				{Name: "bin", Mode: 0o755}, {Name: "bin/busybox", From: ktest.Fetched(t, "busybox-amd64"), Mode: 0o755},
				{Name: "bin/sh", Link: "busybox", Mode: 0o777}}}),
			f.Close(),
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	find := c.FindImage
	c.FindImage = func(name string) (Image, error) {
		if name != "tools" {
			return find(name)
		}
		i, err := find("agent")
		i.Name, i.Digest, i.Initrd = name, strings.Repeat("1", 64), file
		return i, err
	}
	r := runHost(t, c)
	t.Cleanup(func() { clearHost(t, r) })
	return r, &sandbox.CallRunner{Host: func() (*hostapi.Client, error) { return r.Client, nil },
		Choose: func(bailey.CapabilityID) sandbox.MachineChoice {
			return sandbox.MachineChoice{Image: "tools", MemoryMB: 96}
		}}
}

// placeOf opens a place as the gate does.
func placeOf(t *testing.T, name string) bailey.Place {
	t.Helper()
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	return bailey.Place{Input: "dir", Path: name, File: f}
}

// call runs a line of a shell in a machine of its own.
func call(
	t *testing.T,
	runner *sandbox.CallRunner,
	dir, line string,
	change func(*bailey.Job),
) (out string, cage bailey.Cage,
	exit bailey.Exit, err error) {
	t.Helper()
	job := bailey.Job{
		Capability: "t.line",
		Command:    "sh",
		Args:       []string{"-c", line},
		Dir:        dir,
		Places:     []bailey.Place{placeOf(t, dir)},
		Principal:  bailey.Principal{Person: "ann", Agent: "coder"},
		Timeout:    patience,
		Env:        []string{"PATH=/bin"},
	}
	if change != nil {
		change(&job)
	}
	run, err := runner.Plan(t.Context(), job)
	if err != nil {
		return "", cage, bailey.Exit{Code: bailey.NeverRan}, err
	}
	defer run.Close()
	var text bytes.Buffer
	exit, err = run.Start(t.Context(), bailey.Lent{Env: []string{"KEY=lent"},
		Files: []bailey.LentFile{
			{Env: "FILE", Value: bailey.NewSecret("secret")},
		}}, bailey.Streams{Stdout: &text, Stderr: &text})
	return strings.TrimSpace(text.String()), run.Cage(), exit, err
}

// workspaceOf makes a directory that looks like a project: with a link, a pipe, a file to hide and a masked directory.
func workspaceOf(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"src/main.txt": "hello", "hidden": "key", "masked/secret": "key", "run.sh": "exit 5"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		ktest.Write(t, filepath.Join(dir, name), text)
	}
	for _, err := range []error{
		os.Symlink("src/main.txt", filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.Chmod(filepath.Join(dir, "run.sh"), 0o750)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCallInMachine runs calls with isolation microvm: each has a machine of its own with copies of its files, which is
// destroyed with the call, also if its caller is gone.
func TestCallInMachine(t *testing.T) {
	t.Parallel()
	r, runner := newCallHost(t)
	dir := workspaceOf(t)
	runner.Masks = []string{filepath.Join(dir, "masked")}
	out, cage, exit, err := call(
		t,
		runner,
		dir,
		"busybox cat link; echo; busybox ls; busybox cat hidden; busybox id -u; echo $KEY; "+
			"busybox cat $FILE; echo; busybox pwd; busybox stat -c %a run.sh; exit 7",
		func(j *bailey.Job) { j.Hide = []string{dir + "/hidden"} },
	)
	want := "hello\nhidden\nlink\nrun.sh\nsrc\n65534\nlent\nsecret\n" + dir + "\n750"
	if err != nil || exit.Code != 7 || out != want {
		t.Errorf("%+v, %v (%s): %q, want %q", exit, err, bailey.HintOf(err), out, want)
	}
	if m := cage.Machine; m == nil || m.Sandbox == "" || m.Image != "tools" || m.ImageDigest != strings.Repeat("1", 64) ||
		m.Accelerator != "emulated" || m.Machine != "microvm" ||
		cage.Kind != sandbox.CallKind ||
		!cage.Enforced {
		t.Errorf("the receipt names %+v, %+v", cage, m)
	}
	if list := r.host.allBoxes(); len(list) != 0 {
		t.Errorf("%d machines stay", len(list))
	}
	for name, change := range map[string]func(*bailey.Job){
		"cannot use the network": func(j *bailey.Job) { j.Network = &bailey.Network{} },
		"are copies":             func(j *bailey.Job) { j.Places[0].Write = true },
		"hidden from every tool": func(j *bailey.Job) { j.Places = []bailey.Place{placeOf(t, dir+"/masked")} },
		"whose image has":        func(j *bailey.Job) { j.Places = []bailey.Place{placeOf(t, "/etc")} },
		"do not fit":             func(j *bailey.Job) { os.Truncate(dir+"/src/main.txt", 1<<30) },
		"cannot be hidden":       func(j *bailey.Job) { j.Hide = []string{dir + "/link"} },
		"in the image tools":     func(j *bailey.Job) { os.Truncate(dir+"/src/main.txt", 5); j.Command = "no-such-tool" },
		"neither a file nor a":   func(j *bailey.Job) { j.Places = []bailey.Place{placeOf(t, dir+"/pipe")}; j.Dir = "" },
	} {
		_, _, exit, err := call(t, runner, dir, "exit 0", change)
		if err == nil || !strings.Contains(err.Error(), name) || bailey.HintOf(err) == "" ||
			exit.Code != bailey.NeverRan {
			t.Errorf("%s: %+v, %v (%s)", name, exit, err, bailey.HintOf(err))
		}
	}
	if list := r.host.allBoxes(); len(list) != 0 {
		t.Errorf("%d machines stay after refusals", len(list))
	}
}

// TestAttackCall runs hostile tools in machines of calls: none changes the workspace, has a network, outlives its call,
// or keeps the next call from working.
func TestAttackCall(t *testing.T) {
	t.Parallel()
	r, runner := newCallHost(t)
	dir := workspaceOf(t)
	before, _ := os.ReadFile(filepath.Join(dir, "run.sh"))
	out, _, _, err := call(
		t,
		runner,
		dir,
		"echo x >run.sh; echo x >new; busybox rm -rf src; busybox mount -o remount,rw "+dir+
			"; busybox ls /sys/class/net; busybox wc -l </proc/net/route; "+
			"busybox nc -w 2 10.0.2.2 80 </dev/null && echo reached; (busybox sleep 10000 &) ; echo end",
		nil,
	)
	if err != nil || !strings.Contains(out, "Read-only file system") || !strings.HasSuffix(out, "end") ||
		!strings.Contains(out, "\nlo\n1\n") || strings.Contains(out, "reached") {
		t.Errorf("%v: %q", err, out)
	}
	after, _ := os.ReadFile(filepath.Join(dir, "run.sh"))
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil || !bytes.Equal(before, after) {
		t.Error("the workspace was changed")
	}
	// A tool that uses up its machine: processes, memory, time and output.
	_, _, exit, err := call(
		t,
		runner,
		dir,
		"busybox yes & (b() { b | b & }; while :; do b; done); exec busybox yes >/dev/null",
		func(j *bailey.Job) { j.Timeout = 5 * time.Second },
	)
	if err == nil && !exit.TimedOut {
		t.Errorf("a tool without end: %+v", exit)
	}
	// Its machine is killed.
	ended := make(chan error, 1)
	go func() {
		_, _, _, err := call(t, runner, dir, "busybox sleep 10000", nil)
		ended <- err
	}()
	eventually(
		t,
		"the machine runs",
		func() bool { return len(machinesBelow(t, r.host)) == 1 && len(holdersOf(t, string(r.host.Dir))) > 0 },
	)
	for _, pid := range holdersOf(t, string(r.host.Dir)) {
		unix.Kill(pid, unix.SIGKILL)
	}
	if err := <-ended; err == nil || bailey.HintOf(err) == "" {
		t.Errorf("a machine that was killed: %v (%s)", err, bailey.HintOf(err))
	}
	if out, _, _, err := call(t, runner, dir, "echo works", nil); err != nil || out != "works" {
		t.Errorf("afterwards: %q, %v", out, err)
	}
	if list := r.host.allBoxes(); len(list) != 0 {
		t.Errorf("%d machines stay", len(list))
	}
}

// TestAttended checks that a sandbox that is attended ends with the connection of its client, and with the host.
func TestAttended(t *testing.T) {
	t.Parallel()
	c := testConfig(t, shortDir(t))
	r := runHost(t, c)
	ask := hostapi.CreateRequest{Image: "agent", MemoryMB: 96}
	ctx, cancel := context.WithCancel(t.Context())
	made, _, err := r.Attend(ctx, ann, ask)
	if err != nil {
		t.Fatal(err)
	}
	if list := must(r, hostapi.List, hostapi.None{}); len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("%+v", list)
	}
	cancel() // closes the connection, as the end of the process does
	eventually(t, "it is destroyed", func() bool { return len(must(r, hostapi.List, hostapi.None{})) == 0 })
	ask.Digest = strings.Repeat("2", 64)
	if _, _, err := r.Attend(t.Context(), ann, ask); !errors.Is(err, bailey.Conflict) {
		t.Errorf("another digest: %v", err)
	}
	ask.Digest = ""
	made, end, err := r.Attend(t.Context(), ann, ask)
	if err != nil {
		t.Fatal(err)
	}
	// A host that was killed has not destroyed it; its successor does.
	if err := r.boxOf(made.ID).setRecord(true, func(*boxRecord) {}); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(r.host.boxDir(made.ID), recordFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := end(t.Context()); err != nil {
		t.Errorf("a second end: %v", err)
	}
	r.stop()
	if err = os.Mkdir(r.host.boxDir(made.ID), 0o700); err == nil {
		err = os.WriteFile(filepath.Join(r.host.boxDir(made.ID), recordFile), kept, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r = runHost(t, c)
	wantFiles(t, r.host, 0, 1)
}
