//go:build linux

package vmhost

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/initramfs"
	"bailey/internal/ktest"
	"bailey/internal/vm"
)

// patience is for what takes seconds on an idle machine.
const patience = 3 * time.Minute

// TestMain is also a host in another process, for tests that kill it.
func TestMain(m *testing.M) {
	if job := os.Getenv("BAILEY_VMHOST_JOB"); job != "" {
		if err := runJob(strings.Split(job, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The tests wait for guests most of the time, so more of them than processors run at once.
	flag.Parse()
	flag.Set("test.parallel", "3")
	code := m.Run()
	if dir, err := guestFiles(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// guestFiles makes the initial file systems of guests, once: "agent" with bailey-guest, "flood" with testdata/flood.
var guestFiles = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bailey-vmhost-")
	if err != nil {
		return "", err
	}
	for name, source := range map[string]string{"agent": "bailey/cmd/bailey-guest", "flood": "./testdata/flood"} {
		program := filepath.Join(dir, name+".program")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build: %w: %s", err, out)
		}
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			err = errors.Join(initramfs.Write(f, initramfs.Content{Agent: program}), f.Close())
		}
		if err != nil {
			return "", err
		}
	}
	return dir, nil
})

// testImages returns a function that finds the images "agent", "flood", and "disk" with a disk of 64 MiB.
func testImages(kernel, dir string) func(name string) (Image, error) {
	return func(name string) (Image, error) {
		i := Image{Name: name, Digest: strings.Repeat("0", 60) + name, Arch: "amd64", Kernel: kernel,
			Initrd: filepath.Join(dir, name), Append: "loglevel=1 bailey.port=bailey", MemoryMB: 96}
		switch name {
		case "agent", "flood":
			return i, nil
		case "disk":
			i.Initrd, i.DiskBytes = filepath.Join(dir, "agent"), 64<<20
			disk := filepath.Join(dir, "disk.raw")
			if err := os.WriteFile(disk, nil, 0o600); err != nil {
				return i, err
			}
			i.Layers = []vm.Layer{{Path: disk, Format: "raw"}}
			return i, os.Truncate(disk, 1<<20)
		}
		return i, bailey.NotFound.New("there is no image "+name, "")
	}
}

// testConfig configures a host whose guests are emulated.
func testConfig(t testing.TB, dir string) Config {
	t.Helper()
	ktest.Long(t)
	ktest.Require(t, "qemu-system-x86_64")
	kernel := ktest.Fetched(t, "linux-7.1-amd64")
	guests, err := guestFiles()
	if err != nil {
		t.Fatal(err)
	}
	return configFor(dir, kernel, guests)
}

func configFor(dir, kernel, guests string) Config {
	return Config{Dir: hostapi.Dir(dir), FindImage: testImages(kernel, guests), Emulated: true, ReserveMB: 1, ReserveBytes: 1 << 20,
		BootTime: patience, GuestTime: patience, VM: vm.Config{QEMUTime: patience}}
}

// A running is a host that serves clients.
type running struct {
	*hostapi.Client
	t    testing.TB
	host *Host
	stop func()
}

var ann = hostapi.Owner{Person: "ann", Agent: "coder", Session: "s1"}

// runHost runs a host until the test ends or stop is called. Sandboxes are destroyed with the test.
func runHost(t testing.TB, c Config) *running {
	t.Helper()
	ready := make(chan struct{})
	c.Ready = func() { close(ready) }
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatal("the host ended:", err)
	}
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error("the host ended:", err)
		}
	})
	t.Cleanup(stop)
	return &running{&hostapi.Client{Socket: h.Socket}, t, h, stop}
}

// boxOf returns a sandbox of the host.
func (r *running) boxOf(id string) *box {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	return r.host.boxes[id]
}

// newHost runs a host in a new directory, whose sandboxes are destroyed with the test.
func newHost(t testing.TB, changes ...func(c *Config)) *running {
	t.Helper()
	c := testConfig(t, shortDir(t))
	for _, change := range changes {
		change(&c)
	}
	r := runHost(t, c)
	t.Cleanup(func() { clearHost(t, r) })
	return r
}

// shortDir returns a directory whose name leaves room for that of a socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bvh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func clearHost(t testing.TB, r *running) {
	t.Helper()
	for _, b := range r.host.allBoxes() {
		if err := r.host.destroyBox(context.Background(), b); err != nil {
			t.Error(err)
		}
	}
}

// must performs an operation for ann's agent.
func must[Q, A any](r *running, e hostapi.Endpoint[Q, A], q Q) A {
	r.t.Helper()
	a, err := e.Ask(r.t.Context(), r.Client, ann, q)
	if err != nil {
		r.t.Fatalf("%s: %v (%s)", e.Verb, err, bailey.HintOf(err))
	}
	return a
}

// newSandbox creates a sandbox with busybox as /bin/busybox.
func (r *running) newSandbox(name string) hostapi.Sandbox {
	r.t.Helper()
	s := must(r, hostapi.Create, hostapi.CreateRequest{Name: name, Image: "agent", MemoryMB: 96})
	r.addBusybox(s.ID)
	return s
}

func (r *running) addBusybox(id string) {
	r.t.Helper()
	box, err := os.ReadFile(ktest.Fetched(r.t, "busybox-amd64"))
	if err != nil {
		r.t.Fatal(err)
	}
	must(r, hostapi.WriteFile, hostapi.WriteRequest{Sandbox: id, Path: "/bin/busybox", Data: box, Mode: 0o755, Parents: true})
}

// shell runs a line in busybox's shell and returns its output.
func (r *running) shell(id, line string) string {
	r.t.Helper()
	var out strings.Builder
	exit, err := r.Exec(r.t.Context(), ann, hostapi.Command{Sandbox: id, Argv: []string{"/bin/busybox", "sh", "-c", line},
		Env: []string{"PATH=/bin"}}, hostapi.Streams{Stdout: &out, Stderr: &out})
	if err != nil || exit.Code != 0 {
		r.t.Fatalf("%s: %+v, %v (%s): %s", line, exit, err, bailey.HintOf(err), out.String())
	}
	return strings.TrimSpace(out.String())
}
