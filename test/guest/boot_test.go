//go:build linux

package guest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/test/since"
)

// A machine describes a guest before its tasks. Only kernel is required.
type machine struct {
	kernel  string // version and architecture, for example 6.12-amd64
	cgroup  string // v1 or v2
	line    string // appended to the kernel's command line
	disk    bool   // /tmp and /var/tmp are on ext4, not on tmpfs
	busybox bool   // busybox provides the programs
}

const (
	taskTime = 10 * time.Minute
	bootTime = time.Minute
	// maxBoots allows for an emulated kernel that sometimes crashes by itself while it probes its devices, on a busy
	// machine. If a task has started, a failure belongs to the task and is never retried.
	maxBoots = 3
)

// boot runs the tasks in a guest, each as a subtest.
func boot(t *testing.T, m machine, tasks ...task) {
	t.Helper()
	since.RequireDue(t, "internal/jail", "internal/ktest", "test/guest")
	t.Parallel() // a guest has one processor
	kernel, arch := m.find(t)
	job := Job{Mark: "guest-" + rand.Text(), Cgroup: cmp.Or(m.cgroup, "v2")}
	img, limit := m.base(t, arch), bootTime
	for _, k := range tasks {
		job.Commands = append(job.Commands, k.pack(t, img, arch))
		limit += k.Limit
	}
	disk := ""
	if m.disk {
		disk, job.Disk = ext4(t), "/dev/nvme0n1"
	}
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	img.put("/job.json", entry{mode: regular | 0o600, body: text})
	begin := time.Now()
	argv := qemu(arch, kernel, m.line, img.file(t), disk)
	outcomes, noise := run(t, argv, job.Mark, len(tasks), limit)
	for boots := 1; boots < maxBoots && Stillborn(outcomes, noise); boots++ {
		t.Logf("%+v: its kernel panicked before PID 1 had begun a task, so it is booted again:\n%s", m, noise)
		outcomes, noise = run(t, argv, job.Mark, len(tasks), limit)
	}
	t.Logf("%+v ran for %.1f s", m, time.Since(begin).Seconds())
	for i, k := range tasks {
		t.Run(k.Name, func(t *testing.T) { k.judge(t, outcomes[i], noise) })
	}
}

// find returns the kernel's file and the architecture in Go's spelling. If something is missing, it skips the test.
func (m machine) find(t *testing.T) (file, arch string) {
	t.Helper()
	_, arch, _ = strings.Cut(m.kernel, "-")
	ktest.Require(t, emulators[arch][0])
	return ktest.Fetched(t, "linux-"+m.kernel), arch
}

// ext4 creates an empty disk.
func ext4(t *testing.T) string {
	t.Helper()
	ktest.Require(t, "mkfs.ext4")
	file := filepath.Join(t.TempDir(), "disk")
	if out, err := exec.Command("mkfs.ext4", "-q", file, "512M").CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	return file
}

// emulators lists, for each architecture, the program, the name of its console and its machine. For arm64, pointer
// authentication is reduced because the specified form is slow to emulate and not needed here.
var emulators = map[string][]string{
	"amd64": {"qemu-system-x86_64", "ttyS0", "-machine", "q35", "-cpu", "max"},
	"arm64": {"qemu-system-aarch64", "ttyAMA0", "-machine", "virt", "-cpu", "max,pauth-impdef=on"},
}

// qemu returns the emulator's arguments. The only devices are a serial port and, unless disk is "", the disk. If the
// kernel panics or restarts, the emulator ends.
func qemu(arch, kernel, line, initramfs, disk string) []string {
	e := emulators[arch]
	argv := append([]string{e[0]}, e[2:]...)
	if disk != "" {
		argv = append(argv, "-drive", "if=none,id=disk,format=raw,file="+disk, "-device", "nvme,drive=disk,serial=disk")
	}
	return append(argv, "-accel", "tcg", "-smp", "2", "-m", "1024", "-nodefaults", "-no-user-config", "-display", "none",
		"-no-reboot", "-serial", "stdio", "-kernel", kernel, "-initrd", initramfs,
		"-append", strings.TrimSpace("console="+e[1]+" loglevel=1 panic=-1 reboot=t "+line))
}

// run reads QEMU's console to its end: when the guest ends or the time is up.
func run(t *testing.T, argv []string, mark string, commands int, limit time.Duration) ([]Outcome, string) {
	t.Helper()
	runtime.LockOSThread() // the signal is sent when the thread that started QEMU ends (prctl(2), PR_SET_PDEATHSIG)
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	console, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	outcomes, noise, err := Read(console, mark, commands)
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		noise += fmt.Sprintf("\n%s: %v, %v %s", argv[0], err, ctx.Err(), complaint.String())
	}
	return outcomes, noise
}

// borrowed lists the programs of a guest: this machine's, or those that .ci/guest fetched.
var borrowed = []string{"true", "cat", "readlink", "date", "ls", "env", "expr", "echo", "printf", "sleep", "sh", "git"}

// base returns the content that every guest has.
func (m machine) base(t *testing.T, arch string) image {
	t.Helper()
	img := image{}
	img.put("/dev/console", entry{mode: device | 0o600, major: 5, minor: 1}) // the kernel opens it for PID 1
	for _, dir := range []string{"/mnt", "/root", "/home/user"} {
		img.put(dir, entry{mode: directory | 0o755})
	}
	for name, text := range map[string]string{
		"/etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
		"/etc/group":  "root:x:0:\nuser:x:1000:\n", "/etc/hostname": "guest\n",
	} {
		img.put(name, entry{mode: regular | 0o644, body: []byte(text)})
	}
	img.copy(t, build(t, arch, "build", "test/guest/init"), "/init", 0o755)
	if m.busybox {
		img.copy(t, ktest.Fetched(t, "busybox-"+arch), "/bin/busybox", 0o755)
	}
	root := ""
	if arch != runtime.GOARCH {
		var err error
		if root, err = filepath.EvalSymlinks(ktest.Fetched(t, "root-"+arch)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range borrowed {
		switch {
		case !m.busybox:
			img.borrow(t, root, program)
		case program != "git":
			img.put("/bin/"+program, entry{mode: link | 0o777, body: []byte("busybox")})
		}
	}
	return img
}

// file writes the image to a new file.
func (m image) file(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "initramfs")
	f, err := os.Create(name)
	if err == nil {
		err = m.write(f)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// build compiles a package's program (verb "build") or its tests ("test -c"), statically linked.
func build(t *testing.T, arch, verb, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), path.Base(pkg))
	cmd := exec.Command("go", append(strings.Fields(verb), "-o", out, "./"+pkg)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", verb, pkg, err, text)
	}
	return out
}
