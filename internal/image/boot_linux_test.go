package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"bailey/internal/guestclient"
	"bailey/internal/ktest"
	"bailey/internal/vm"
)

const patience = 20 * time.Minute // for what takes half a minute on an idle machine

var agentDir string

// TestMain is also the other process of some tests. It removes the agent.
func TestMain(m *testing.M) {
	if other, err := otherProcess(); other {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if agentDir != "" {
		os.RemoveAll(agentDir)
	}
	os.Exit(code)
}

// buildAgent builds the program once, as it is shipped.
var buildAgent = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bailey-image-agent-")
	if err != nil {
		return "", err
	}
	agentDir = dir
	file := filepath.Join(dir, "bailey-guest")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "bailey/cmd/bailey-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	cmd.Stderr = os.Stderr
	return file, cmd.Run()
})

func testAgent(t testing.TB) string {
	t.Helper()
	file, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// bootImage starts a machine from an image and returns the session with its agent.
func bootImage(t testing.TB, i Image, machine string) *guestclient.Session {
	t.Helper()
	ktest.Long(t)
	ktest.Require(t, "qemu-system-x86_64")
	host, err := vm.New(vm.Config{QEMUTime: patience})
	if err != nil {
		t.Fatal(err)
	}
	s := vm.Spec{Arch: i.Arch, Machine: machine, Accel: vm.Emulated, MemoryMB: i.MemoryMB, CPUs: 1, Kernel: i.Kernel,
		Initrd: i.Initrd, Append: i.Append}
	for _, l := range i.Layers {
		s.Layers = append(s.Layers, vm.Layer(l))
	}
	m, err := host.Start(t.Context(), filepath.Join(t.TempDir(), "machine"), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy(context.Background()) })
	conn, err := m.Channel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	session, err := guestclient.Dial(t.Context(), conn, guestclient.Config{HelloTime: patience, OpTime: patience})
	if err != nil {
		t.Fatal(err, m.Err())
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// runGuest runs a shell line as root and returns what it wrote and its exit code.
func runGuest(t testing.TB, s *guestclient.Session, line string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Exec(t.Context(), guestclient.Command{Argv: []string{"/bin/sh", "-c", line}, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return out.String(), int(exit.Code)
}

// TestMinimalBoots boots a minimal image and runs programs of busybox in it.
func TestMinimalBoots(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "images"))
	i, err := s.AddMinimal(t.Context(), MinimalConfig{Name: "minimal", Arch: "amd64", Agent: testAgent(t),
		Kernel: ktest.Fetched(t, "linux-7.1-amd64"), Tools: ktest.Fetched(t, "busybox-amd64"), From: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	guest := bootImage(t, i, vm.MicroVM)
	if out, code := runGuest(t, guest, "id; ls /bin | wc -l; echo x | tr x y; cat /proc/1/comm"); code != 0 ||
		out != "uid=0(root) gid=0(root)\n165\ny\ninit\n" {
		t.Errorf("%q, %d", out, code)
	}
}

// TestContainerBoots imports a container image whose only program is busybox, and boots it with the agent as pid 1: files have
// the owners of the archive, the disk can be written and has room.
func TestContainerBoots(t *testing.T) {
	ktest.Require(t, "qemu-img")
	tool, err := os.ReadFile(ktest.Fetched(t, "busybox-amd64"))
	if err != nil {
		t.Fatal(err)
	}
	program := regular("bin/busybox", string(tool))
	program.Mode = 0o755
	own := regular("srv/own", "text")
	own.Uid, own.Gid, own.Mode = 1234, 70_000, 0o640
	l, _ := testLayout(t, squeeze(t, makeArchive(t, program, linkTo(tar.TypeSymlink, "bin/sh", "busybox"), linkTo(tar.TypeLink, "bin/again", "bin/busybox"), own)))
	m := &Maker{Store: openStore(t, filepath.Join(t.TempDir(), "images")), Agent: func(string) (string, error) { return testAgent(t), nil }}
	i, err := m.Import(t.Context(), Import{Name: "box", File: l.write(t), Kernel: ktest.Fetched(t, "linux-7.1-amd64"), Arch: "amd64", DiskBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	guest := bootImage(t, i, vm.MicroVM)
	line := "export PATH=/bin; b=/bin/busybox; $b cat /proc/1/comm; $b stat -c '%u %g %a %h' /srv/own /bin/again; " +
		"$b df -k / | $b tail -n 1 | $b awk '{ print ($2 > 900000) }'; $b dd if=/dev/zero of=/new bs=1M count=20 2>/dev/null && $b sync && $b wc -c </new"
	if out, code := runGuest(t, guest, line); code != 0 || out != "init\n1234 70000 640 1\n0 0 755 2\n1\n20971520\n" {
		t.Errorf("%q, %d", out, code)
	}
}
