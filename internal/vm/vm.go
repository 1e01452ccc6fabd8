//go:build linux

package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"bailey"
)

// Port is the name of the virtio-serial port in the guest: /dev/virtio-ports/bailey if udev runs there.
const Port = "bailey"

// Accelerators and machine types of a Spec.
const (
	KVM      = "kvm"
	Emulated = "tcg"
	MicroVM  = "microvm" // amd64: few devices, starts fastest
	Q35      = "q35"     // amd64: PCI, for kernels without virtio-mmio
	Virt     = "virt"    // arm64
)

// Config configures a Host. The zero value runs machines under the caller's user id.
type Config struct {
	// Programs are the paths of QEMU by architecture ("amd64", "arm64"). If one is missing, it is searched in PATH.
	Programs map[string]string
	// FirstUID and UIDs are the range of user ids of machines, each of which has its own. FirstUID must be over 65535,
	// so that no account has one of them. If UIDs is 0, machines run under the user id of the caller.
	FirstUID, UIDs int
	// Groups are the supplementary groups of QEMU, for example the group that may open /dev/kvm.
	Groups []int
	// Cgroups are directories of control groups that this process may change: one of version 2, or one for each
	// controller of version 1. Each machine gets a group below each of them.
	Cgroups []string
	// Ready waits until the guest of a new machine works. Renew gives a clone its own identity. Both may be nil. If one
	// fails, the machine is destroyed.
	Ready, Renew func(ctx context.Context, m *Machine) error
	// QEMUTime bounds the wait for one answer of QEMU, 30 s if it is 0.
	QEMUTime time.Duration

	step func(name string) // for tests: called before each step that could be the last one
}

// A Spec describes a machine.
type Spec struct {
	Arch     string // "amd64" or "arm64"
	Machine  string // MicroVM, Q35 or Virt
	Accel    string // KVM or Emulated
	MemoryMB int    // at least 32
	CPUs     int    // at least 1
	Kernel   string // path
	Initrd   string // path or ""
	Append   string // added to the kernel's command line
	// Layers are the images of the disk, the lowest first. Machines never write them. If there are none, the machine
	// has no disk.
	Layers []Layer `json:",omitempty"`
	// DiskBytes is the size of the disk, if it is more than that of the image.
	DiskBytes int64 `json:",omitempty"`
	// Private means that the memory is a private copy of a template's.
	Private bool `json:",omitempty"`
}

// A Layer is an image that is only read.
type Layer struct {
	Path   string
	Format string // "raw" or "qcow2"
	SHA256 string // in hexadecimal; "" if it need not be compared
}

// Check returns an error of kind Invalid unless QEMU can be asked for the machine.
func (s Spec) Check() error {
	machines := map[string][]string{"amd64": {MicroVM, Q35}, "arm64": {Virt}}
	switch {
	case machines[s.Arch] == nil:
		return bailey.Invalid.Errorf("use amd64 or arm64", "a machine cannot have the architecture %q", s.Arch)
	case !slices.Contains(machines[s.Arch], s.Machine):
		return bailey.Invalid.Errorf("use "+strings.Join(machines[s.Arch], " or "),
			"a machine of architecture %s cannot have the type %q", s.Arch, s.Machine)
	case s.Accel != KVM && s.Accel != Emulated:
		return bailey.Invalid.Errorf("use kvm or tcg", "a machine cannot be run by %q", s.Accel)
	case s.MemoryMB < 32 || s.MemoryMB > 1<<20:
		return bailey.Invalid.Errorf("use 32 to 1048576", "a machine cannot have %d MB of memory", s.MemoryMB)
	case s.CPUs < 1 || s.CPUs > 64:
		return bailey.Invalid.Errorf("use 1 to 64", "a machine cannot have %d processors", s.CPUs)
	case s.Kernel == "":
		return bailey.Invalid.New("a machine needs a kernel", "name the file of a kernel")
	case strings.ContainsFunc(s.Append, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return bailey.Invalid.New("the kernel's command line contains a control character", "remove it")
	case s.DiskBytes < 0 || s.DiskBytes > 0 && len(s.Layers) == 0:
		return bailey.Invalid.Errorf("name an image", "a machine without image cannot have a disk of %d bytes", s.DiskBytes)
	}
	for _, l := range s.Layers {
		if l.Format != "raw" && l.Format != "qcow2" {
			return bailey.Invalid.Errorf("use raw or qcow2", "the image %s cannot have the format %q", l.Path, l.Format)
		}
	}
	return nil
}

// A Host starts and adopts machines. Its methods may be called by several goroutines.
type Host struct {
	Config
	mu       sync.Mutex
	uids     map[int]bool      // of machines of this host
	digests  map[fileID]string // of files that have not changed since they were read
	spawning sync.Mutex        // held while this process has huge pages disabled
	probed   map[string]error  // answers of ProbeKVM by kernel
	clock    func() uint64     // frequency of the time stamp counter in kHz
}

// New returns a host. It starts nothing.
func New(c Config) (*Host, error) {
	if c.UIDs < 0 || c.UIDs > 0 && (c.FirstUID <= 65535 || c.FirstUID+c.UIDs > 1<<31-1) {
		return nil, bailey.Invalid.Errorf("use a range over 65535 that no account and no container uses",
			"machines cannot run under the user ids from %d", c.FirstUID)
	}
	if c.UIDs > 0 && os.Geteuid() != 0 {
		return nil, bailey.Invalid.New("only root can run machines under user ids of their own",
			"run as root, or without a range of user ids")
	}
	c.QEMUTime = cmp.Or(c.QEMUTime, 30*time.Second)
	if c.step == nil {
		c.step = func(string) {}
	}
	return &Host{Config: c, uids: map[int]bool{}, digests: map[fileID]string{}, probed: map[string]error{},
		clock: sync.OnceValue(measureTSC)}, nil
}

// programNames are the names of QEMU by architecture.
func programNames(arch string) string {
	return map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}[arch]
}

// findProgram returns the path of QEMU.
func (h *Host) findProgram(arch string) (string, error) {
	name := cmp.Or(h.Programs[arch], programNames(arch))
	path, err := exec.LookPath(name)
	if err != nil {
		return "", bailey.Unavailable.Wrapf(err, "install QEMU for "+arch+", on Debian the package "+
			map[string]string{"amd64": "qemu-system-x86", "arm64": "qemu-system-arm"}[arch],
			"the program %s that runs machines is missing", name)
	}
	return filepath.Abs(path)
}

// takeUID reserves a user id that no machine and no process has. It is the caller's if the host has no range.
func (h *Host) takeUID() (int, error) {
	if h.UIDs == 0 {
		return os.Geteuid(), nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	running := map[int]bool{}
	err := eachProcess(func(pid, uid int) { running[uid] = true })
	if err != nil {
		return 0, err
	}
	for uid := h.FirstUID; uid < h.FirstUID+h.UIDs; uid++ {
		if !h.uids[uid] && !running[uid] {
			h.uids[uid] = true
			return uid, nil
		}
	}
	return 0, bailey.Unavailable.Errorf("destroy a machine, or give the host more user ids",
		"all %d user ids for machines are in use", h.UIDs)
}

func (h *Host) freeUID(uid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.uids, uid)
}

// explainDisk adds the cure to an error of the file system.
func explainDisk(err error, dir string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return bailey.Unavailable.Wrap(err, "the disk is full: cannot write in "+dir,
			"free space, or raise the quota, of the file system of "+dir)
	case errors.Is(err, fs.ErrPermission):
		return bailey.Unavailable.Wrap(err, "cannot write in "+dir, "use a directory that belongs to this user")
	}
	return err
}

func wrapStep(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
