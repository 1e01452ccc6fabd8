package hostdisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/remote"
)

// A libvirtHost is a real libvirt of a user, in a directory of its own, with one machine that has no system on its
// disk.
type libvirtHost struct {
	t    *testing.T
	dir  string
	user *syscall.Credential // nil: this user
	// before is called with each line before it runs.
	before func(line string)
}

const machineXML = `<domain type='qemu'><name>shop</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os><devices><emulator>/usr/bin/qemu-system-x86_64</emulator>%s</devices></domain>`

const diskXML = `<disk type='file' device='disk'><driver name='qemu' type='%s'/><source file='%s'/><target dev='%s' bus='virtio'/></disk>`

func startLibvirt(t *testing.T) *libvirtHost {
	t.Helper()
	ktest.Long(t)
	ktest.Require(t, "libvirtd", "virsh", "qemu-img", "qemu-system-x86_64")
	dir, err := os.MkdirTemp("", "lv") // a path that is short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &libvirtHost{t: t, dir: dir}
	if os.Geteuid() == 0 { // libvirt of root is that of the whole machine
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		h.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	h.mustRun(`mkdir -m 700 run pool && mkdir -p .config/libvirt && echo 'stdio_handler = "file"' > .config/libvirt/qemu.conf`)
	daemon := h.command(context.Background(), "exec libvirtd") // the context of the test ends before its cleanup
	daemon.SysProcAttr.Setpgid = true
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if h.run("virsh -q domstate shop | grep -q running") == nil {
			h.mustRun("virsh -q destroy shop")
		}
		daemon.Process.Signal(syscall.SIGTERM)
		daemon.Wait()
	})
	for end := time.Now().Add(time.Minute); h.run("virsh -q list") != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("libvirt did not start")
		}
	}
	return h
}

// command returns a command of the host's user.
func (h *libvirtHost) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.SysProcAttr = h.dir, &syscall.SysProcAttr{Credential: h.user}
	cmd.Env = []string{"HOME=" + h.dir, "XDG_RUNTIME_DIR=" + h.dir + "/run",
		"LIBVIRT_DEFAULT_URI=qemu:///session", "LIBVIRT_AUTOSTART=0",
		"PATH=" + h.dir + "/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

func (h *libvirtHost) run(line string) error {
	out, err := h.command(context.Background(), line).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return nil
}

func (h *libvirtHost) mustRun(line string) {
	h.t.Helper()
	if err := h.run(line); err != nil {
		h.t.Fatal(err)
	}
}

// Run runs a line as sshd does: its standard input and outputs are sockets.
func (h *libvirtHost) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	if h.before != nil {
		h.before(c.Line)
	}
	if err := context.Cause(ctx); err != nil {
		return remote.Result{Code: -1}, err
	}
	cmd := h.command(ctx, c.Line)
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return remote.Result{}, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, c.Stderr
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return remote.Result{}, err
	}
	if c.Stdin != nil {
		io.Copy(ours, c.Stdin)
	}
	syscall.Shutdown(pair[0], syscall.SHUT_WR)
	_, copied := io.Copy(c.Stdout, ours)
	ours.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); copied != nil {
		return remote.Result{Code: -1}, copied
	} else if errors.As(err, &exit) {
		return remote.Result{Code: exit.ExitCode()}, context.Cause(ctx)
	} else if err != nil {
		return remote.Result{}, err
	}
	return remote.Result{}, nil
}

// defineMachine gives the machine disks with random content, which it returns.
func (h *libvirtHost) defineMachine(formats ...string) (content [][]byte) {
	h.t.Helper()
	disks := ""
	for i, format := range formats {
		random := rand.NewChaCha8([32]byte{byte(i)})
		data := make([]byte, 8<<20)
		random.Read(data)
		raw := filepath.Join(h.dir, fmt.Sprintf("content%d", i))
		if err := os.WriteFile(raw, data, 0o644); err != nil {
			h.t.Fatal(err)
		}
		file := fmt.Sprintf("%s/pool/disk %d.%s", h.dir, i, format)
		h.mustRun(fmt.Sprintf("qemu-img convert -f raw -O %s %s '%s'", format, raw, file))
		disks += fmt.Sprintf(diskXML, format, file, "vd"+string(rune('a'+i)))
		content = append(content, data)
	}
	if err := os.WriteFile(h.dir+"/shop.xml", fmt.Appendf(nil, machineXML, disks), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.mustRun("virsh -q define shop.xml && virsh -q pool-create-as images dir --target $HOME/pool")
	return content
}

// copyOf copies a disk and returns its content.
func (h *libvirtHost) copyOf(target string) ([]byte, Copied, error) {
	h.t.Helper()
	var image bytes.Buffer
	c, err := h.copier(target).copyDisk(h.t.Context(), &image)
	if err != nil {
		return nil, c, err
	}
	file, raw := filepath.Join(h.t.TempDir(), "image"), filepath.Join(h.t.TempDir(), "raw")
	if err := os.WriteFile(file, image.Bytes(), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if out, err := exec.Command("qemu-img", "convert", "-f", c.Format, "-O", "raw", file,
		raw).CombinedOutput(); err != nil {
		h.t.Fatalf("the copy is not a disk: %v\n%s", err, out)
	}
	data, err := os.ReadFile(raw)
	return data, c, err
}

func (h *libvirtHost) copier(target string) *copier {
	return &copier{h, Libvirt{"shop", target, "qemu:///session"}, func(string, ...any) {}, time.Now, 10 * time.Millisecond}
}

// checkPool checks which files the pool of the host has.
func (h *libvirtHost) checkPool(want ...string) {
	h.t.Helper()
	entries, err := os.ReadDir(h.dir + "/pool")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, want) {
		h.t.Errorf("the host has %q, want %q (%v)", names, want, err)
	}
}

// TestCopy copies disks of a machine of a real libvirt, shut off and running, in both formats.
func TestCopy(t *testing.T) {
	h := startLibvirt(t)
	content := h.defineMachine("qcow2", "raw")
	disks := []string{"disk 0.qcow2", "disk 1.raw"}
	if _, _, err := h.copyOf(""); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(),
		"several disks") {
		t.Errorf("of two disks one was chosen: %v", err)
	}
	if _, _, err := h.copyOf("vdc"); bailey.KindOf(err) != bailey.NotFound {
		t.Errorf("a disk that does not exist: %v", err)
	}
	for i, target := range []string{"vda", "vdb"} {
		data, c, err := h.copyOf(target)
		if err != nil || !bytes.Equal(data, content[i]) || !strings.Contains(c.State, "shut off") {
			t.Errorf("%s, shut off: %d bytes, %+v, %v", target, len(data), c, err)
		}
	}
	old := prefix + "1000-aa.qcow2"
	young := fmt.Sprintf("%s%d-bb.qcow2", prefix, time.Now().Unix()-60)
	h.mustRun("virsh -q start shop && touch pool/" + old + " pool/" + young + " && virsh -q pool-refresh images")
	for i, target := range []string{"vda", "vdb"} {
		data, c, err := h.copyOf(target)
		if err != nil || !bytes.Equal(data, content[i]) || c.Format != "qcow2" || !strings.Contains(c.State,
			"power failure") {
			t.Errorf("%s, running: %d bytes, %+v, %v", target, len(data), c, err)
		}
	}
	h.checkPool(append([]string{young}, disks...)...)
}

// TestFrozen checks that file systems are frozen only while the backup starts, also if it does not start. The guest
// agent's commands are answered by a script, everything else by the real virsh.
func TestFrozen(t *testing.T) {
	h := startLibvirt(t)
	content := h.defineMachine("qcow2")
	h.mustRun(`virsh -q start shop && mkdir bin && cat > bin/virsh <<'EOF' && chmod 755 bin/virsh
#!/bin/sh
case "$*" in
*domfsfreeze*|*domfsthaw*|*backup-begin*) echo "$4" >> "$HOME/order" ;;
esac
case "$*" in
*domfsfreeze*|*domfsthaw*) exit 0 ;;
esac
exec /usr/bin/virsh "$@"
EOF`)
	order := func() string {
		text, _ := os.ReadFile(h.dir + "/order")
		os.Remove(h.dir + "/order")
		return strings.Join(strings.Fields(string(text)), " ")
	}
	data, c, err := h.copyOf("")
	if err != nil || !bytes.Equal(data, content[0]) || !strings.Contains(c.State, "frozen") {
		t.Errorf("%d bytes, %+v, %v", len(data), c, err)
	}
	const want = "domfsfreeze backup-begin domfsthaw"
	if got := order(); got != want {
		t.Errorf("the order was %q, want %q", got, want)
	}
	h.before = func(line string) {
		if strings.Contains(line, "backup-begin") {
			h.mustRun("chmod 500 pool") // the backup cannot be written
		}
	}
	if _, _, err := h.copyOf(""); err == nil {
		t.Error("a backup that cannot be written succeeded")
	}
	if got := order(); got != want {
		t.Errorf("a backup that did not start left the order %q, want %q", got, want)
	}
	h.mustRun("chmod 700 pool")
	h.checkPool("disk 0.qcow2")
}

// TestCopyEnds checks that a copy that ends at any of its commands leaves no file and no job on the host.
func TestCopyEnds(t *testing.T) {
	h := startLibvirt(t)
	h.defineMachine("qcow2")
	h.mustRun("virsh -q start shop")
	for _, at := range []string{"backup-begin", "domjobinfo", "--completed", "vol-download"} {
		ctx, cancel := context.WithCancel(t.Context())
		h.before = func(line string) {
			if strings.Contains(line, at) {
				cancel()
			}
		}
		if _, err := h.copier("").copyDisk(ctx, io.Discard); !errors.Is(err, context.Canceled) {
			t.Errorf("ended at %s: %v", at, err)
		}
		cancel()
	}
	h.before = nil
	h.checkPool("disk 0.qcow2")
	if _, err := h.copier("").copyDisk(t.Context(), brokenWriter{}); err == nil {
		t.Error("a copy that cannot be written succeeded")
	}
	h.checkPool("disk 0.qcow2")
	h.before = func(line string) {
		if strings.Contains(line, "vol-download") {
			h.mustRun("rm pool/" + prefix + "*")
		}
	}
	if _, err := h.copier("").copyDisk(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(),
		"vol-download failed") {
		t.Errorf("a backup that vanished: %v", err)
	}
	h.before = func(line string) {
		if strings.Contains(line, "vol-download") {
			h.mustRun("virsh -q start shop && printf x | dd of='pool/disk 0.qcow2' bs=1 seek=300000 conv=notrunc status=none")
		}
	}
	h.mustRun("virsh -q destroy shop")
	if _, err := h.copier("").copyDisk(t.Context(), io.Discard); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("a machine that was started meanwhile: %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }
