//go:build linux

package vm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/safefile"
	"bailey/internal/strictjson"
)

// The files of a machine's directory.
const (
	recordFile  = "machine.json"
	aliveFile   = "alive" // locked as long as a process of the machine lives
	overlayFile = "disk.qcow2"
	monitorFile = "qmp.sock"
	guestFile   = "guest.sock"
)

const maxRecord = 1 << 20 // bytes of machine.json and template.json

// A record is the content of machine.json. Before the process starts, it has no PID.
type record struct {
	Spec   Spec
	Name   string // random; an argument of the process
	UID    int
	Groups []string // control groups
	Boot   string   // the run of the kernel in which the process started
	PID    int
	Start  uint64 // clock ticks from boot to the start of the process
	Memory int    // descriptor of the memory in QEMU
}

// A Machine is a running QEMU that this process owns.
type Machine struct {
	host    *Host
	dir     string
	lock    *os.File // of the directory
	record  record
	limited []string
	disk    int64
	log     *os.File
	memory  *os.File // shared with QEMU; nil if the machine has a private copy
	pidfd   *os.File
	asking  sync.Mutex // held while monitor is used
	monitor *monitor
	once    sync.Once // Release or Destroy
	done    chan struct{}
	end     error // set before done is closed
}

// Start creates a machine in a new directory and runs it. If Config.Ready is set, its guest works when Start returns.
func (h *Host) Start(ctx context.Context, dir string, s Spec) (*Machine, error) {
	if s.Private {
		return nil, bailey.Invalid.New("a new machine has no template for its memory", "clone a template")
	}
	return h.createMachine(ctx, dir, s, origin{welcome: h.Ready})
}

// An origin is what a machine begins with, apart from its Spec.
type origin struct {
	memory  *os.File // of a template; nil for new memory
	state   *os.File // of a template
	welcome func(ctx context.Context, m *Machine) error
	paused  bool // the machine stays paused
}

// createMachine makes the directory and everything in it. If a step fails, nothing remains.
func (h *Host) createMachine(ctx context.Context, dir string, s Spec, from origin) (m *Machine, err error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	program, err := h.findProgram(s.Arch)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	m = &Machine{host: h, dir: dir, done: make(chan struct{}), record: record{Spec: s, Name: "bailey-" + rand.Text()}}
	if m.record.UID, err = h.takeUID(); err != nil {
		return nil, err
	}
	if err := m.makeDirectory(); err != nil {
		h.freeUID(m.record.UID)
		return nil, err
	}
	err = m.buildMachine(ctx, program, from)
	if err == nil && from.welcome != nil {
		h.step("welcome")
		err = m.whileRunning(ctx, "the guest did not become ready", from.welcome)
	}
	if err != nil {
		clean := m.Destroy(context.WithoutCancel(ctx))
		return nil, errors.Join(err, wrapStep(clean, "and the machine cannot be removed"))
	}
	return m, nil
}

func (m *Machine) makeDirectory() error {
	m.host.step("directory")
	if err := os.Mkdir(m.dir, 0o700); errors.Is(err, fs.ErrExist) {
		return bailey.Conflict.Wrap(err, "a machine or another file exists at "+m.dir,
			"choose another name, or remove that machine")
	} else if err != nil {
		return explainDisk(err, filepath.Dir(m.dir))
	}
	var err error
	if m.lock, err = lockDirectory(m.dir); err != nil {
		os.Remove(m.dir)
	}
	return err
}

// lockDirectory locks a directory for one owner. The lock ends with the returned file.
func lockDirectory(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, bailey.Conflict.Wrap(err, "another process owns "+dir, "stop the other bailey-host, or ask it")
	}
	var named, opened unix.Stat_t
	if unix.Lstat(dir, &named) != nil || unix.Fstat(fd, &opened) != nil || named.Ino != opened.Ino {
		f.Close()
		return nil, bailey.NotFound.New(dir+" was removed in this moment", "")
	}
	return f, nil
}

// buildMachine performs the steps after the directory exists.
func (m *Machine) buildMachine(ctx context.Context, program string, from origin) error {
	m.host.step("record")
	for _, group := range m.host.Cgroups {
		m.record.Groups = append(m.record.Groups, filepath.Join(group, m.record.Name))
	}
	if err := m.writeRecord(); err != nil {
		return explainDisk(err, m.dir)
	}
	var files inherited
	defer files.closeAll()
	l, log, err := m.openFiles(&files, from)
	if err != nil {
		return explainDisk(err, m.dir)
	}
	m.log = log
	m.host.step("groups")
	if m.limited, err = makeGroups(m.record.Groups, m.record.Spec); err != nil {
		return err
	}
	m.host.step("process")
	if err := m.startProcess(program, l.allArguments(), files.list); err != nil {
		return err
	}
	files.closeAll()
	m.host.step("identify")
	m.record.Memory = l.Memory
	if m.record.Start, err = startTime(m.record.PID); err != nil {
		return m.preferEnd(errors.Join(unix.ESRCH, err))
	}
	m.record.Boot = bootID()
	if err := m.writeRecord(); err != nil {
		return explainDisk(err, m.dir)
	}
	m.host.step("limits")
	if err := joinGroups(m.record.Groups, m.record.PID); err != nil {
		return m.preferEnd(err)
	}
	return m.runMachine(ctx, from, l.State)
}

// runMachine opens the monitor, waits for the state and runs the machine.
func (m *Machine) runMachine(ctx context.Context, from origin, stateFD int) error {
	m.host.step("monitor")
	return m.whileRunning(ctx, "cannot start the machine", func(ctx context.Context, _ *Machine) error {
		if err := m.dialQEMU(ctx); err != nil {
			return err
		}
		if from.state != nil {
			m.host.step("load")
			if err := m.loadState(ctx, stateFD); err != nil {
				return err
			}
		}
		if from.paused {
			return nil
		}
		m.host.step("run")
		return m.commandQEMU(ctx, nil, "cont", nil, nil)
	})
}

// whileRunning runs f, whose context ends with the process. If the process ends, that is the error.
func (m *Machine) whileRunning(ctx context.Context, doing string, f func(ctx context.Context, m *Machine) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-m.done:
			cancel(m.end)
		case <-ctx.Done():
		}
	}()
	return wrapStep(m.preferEnd(f(ctx, m)), "%s", doing)
}

// preferEnd returns how the process ended, if err is not nil and the process has ended or is about to.
func (m *Machine) preferEnd(err error) error {
	if err == nil {
		return nil
	}
	var wait time.Duration
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, unix.EPIPE, unix.ECONNRESET, unix.ECONNREFUSED, unix.ESRCH} {
		if errors.Is(err, broken) {
			wait = 5 * time.Second // a connection to a process breaks before its end is noticed
		}
	}
	select {
	case <-m.done:
	case <-time.After(wait):
	}
	if end := m.Err(); end != nil { // both may have been ready
		return end
	}
	return err
}

// inherited collects the files that QEMU inherits, from descriptor 3 on.
type inherited struct{ list []*os.File }

func (i *inherited) addFile(f *os.File, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	i.list = append(i.list, f)
	return len(i.list) + 2, nil
}

func (i *inherited) closeAll() {
	for _, f := range i.list {
		f.Close()
	}
	i.list = nil
}

// openFiles opens everything that QEMU uses.
func (m *Machine) openFiles(files *inherited, from origin) (l line, log *os.File, err error) {
	l = line{Spec: m.record.Spec, Name: m.record.Name, KHz: m.host.clock()}
	steps := []opening{
		{"alive", new(int), func() (*os.File, error) { return lockAlive(filepath.Join(m.dir, aliveFile)) }},
		{"monitor socket", &l.Monitor, func() (*os.File, error) { return listenSocket(filepath.Join(m.dir, monitorFile)) }},
		{"guest socket", &l.Guest, func() (*os.File, error) { return listenSocket(filepath.Join(m.dir, guestFile)) }},
		{"memory", &l.Memory, func() (*os.File, error) { return m.openMemory(from) }},
	}
	if from.state != nil {
		// The kernel is in the template's memory.
		steps = append(steps, opening{"state", &l.State, func() (*os.File, error) { return reopenFile(from.state, os.O_RDONLY) }})
	} else {
		steps = append(steps, opening{"kernel", &l.Kernel, func() (*os.File, error) { return openPublic(l.Spec.Kernel) }})
		if l.Spec.Initrd != "" {
			steps = append(steps, opening{"initrd", &l.Initrd, func() (*os.File, error) { return openPublic(l.Spec.Initrd) }})
		}
	}
	for _, s := range steps {
		m.host.step(s.name)
		if *s.into, err = files.addFile(s.open()); err != nil {
			return l, nil, err
		}
	}
	if err := m.openDisk(files, &l); err != nil {
		return l, nil, err
	}
	log, err = newLog()
	return l, log, err
}

// An opening opens one descriptor of QEMU.
type opening struct {
	name string
	into *int
	open func() (*os.File, error)
}

func lockAlive(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return f, nil
}

// openMemory returns QEMU's descriptor of the memory. For a new machine, m.memory is another one.
func (m *Machine) openMemory(from origin) (*os.File, error) {
	if from.memory != nil {
		return reopenFile(from.memory, os.O_RDWR) // QEMU demands it even for a private mapping; the seals forbid writing
	}
	f, err := newMemory("memory", int64(m.record.Spec.MemoryMB)<<20)
	if err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, fixedSize)
	if err == nil {
		m.memory, err = reopenFile(f, os.O_RDWR)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// reopenFile opens a file again, with an offset of its own.
func reopenFile(f *os.File, flags int) (*os.File, error) {
	return os.OpenFile(descriptorPath(int(f.Fd())), flags, 0)
}

// openPublic opens a file that QEMU opens once more under its own user id.
func openPublic(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, bailey.NotFound.Wrap(err, "cannot open the kernel or its initial file system", "name files that exist")
	}
	return f, nil
}

// openDisk creates the overlay and opens the layers below it.
func (m *Machine) openDisk(files *inherited, l *line) error {
	layers := m.record.Spec.Layers
	for _, layer := range layers {
		f, err := m.host.checkLayer(layer)
		if err != nil {
			return err
		}
		if fd, err := files.addFile(f, nil); err == nil {
			l.Layers = append(l.Layers, fd)
		}
		if m.disk, err = diskSize(f, layer.Format); err != nil {
			return err
		}
	}
	if len(layers) == 0 {
		return nil
	}
	if want := m.record.Spec.DiskBytes; want != 0 && want < m.disk {
		return bailey.Invalid.Errorf("give the disk at least that size", "a disk of %d bytes is smaller than its image of %d",
			want, m.disk)
	}
	m.disk = max(m.disk, m.record.Spec.DiskBytes)
	m.host.step("overlay")
	f, err := os.OpenFile(filepath.Join(m.dir, overlayFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if l.Overlay, err = files.addFile(f, nil); err != nil {
		return err
	}
	return writeOverlay(f, m.disk)
}

// startProcess starts QEMU in a session of its own, so that it survives its owner.
func (m *Machine) startProcess(program string, arguments []string, files []*os.File) error {
	argv := limitedCommand(m.record.Spec, m.disk, program, arguments)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.ExtraFiles = "/", []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, m.log, files
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	if m.host.UIDs > 0 {
		c := &syscall.Credential{Uid: uint32(m.record.UID), Gid: uint32(m.record.UID)}
		for _, g := range m.host.Groups {
			c.Groups = append(c.Groups, uint32(g))
		}
		cmd.SysProcAttr.Credential = c
	}
	if err := m.host.startWithoutHugePages(cmd); err != nil {
		return bailey.Unavailable.Wrapf(err, "see that every user may execute it", "cannot start %s", program)
	}
	m.record.PID = cmd.Process.Pid
	if pidfd < 0 {
		cmd.Process.Kill()
		cmd.Wait()
		return bailey.Unavailable.New("the kernel has no pidfd", "use Linux 5.10 or newer")
	}
	m.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	go func() {
		cmd.Wait()
		m.end = explainEnd(cmd.ProcessState, m.log)
		close(m.done)
	}()
	return nil
}

// startWithoutHugePages starts a process whose memory consists of small pages: QEMU asks for huge ones for translated code,
// and an idle machine would have several MiB for nothing. The setting is inherited (prctl(2), PR_SET_THP_DISABLE) and
// harmless to this process for a moment. An old kernel does without.
func (h *Host) startWithoutHugePages(cmd *exec.Cmd) error {
	h.spawning.Lock()
	defer h.spawning.Unlock()
	if off, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0); err == nil && off == 0 {
		unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
		defer unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0)
	}
	return cmd.Start()
}

// writeRecord replaces machine.json. It is not synced: after a crash of the system no process is left to find.
func (m *Machine) writeRecord() error {
	text, err := json.Marshal(m.record)
	if err != nil {
		return err
	}
	name := filepath.Join(m.dir, recordFile)
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// readRecord reads machine.json. If the file does not exist, the error is fs.ErrNotExist.
func readRecord(dir string) (r record, err error) {
	text, err := safefile.Read(filepath.Join(dir, recordFile), maxRecord)
	if err == nil && text == nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, recordFile), fs.ErrNotExist)
	}
	if err == nil {
		err = strictjson.Decode(text, &r)
	}
	return r, wrapStep(err, "cannot read %s", filepath.Join(dir, recordFile))
}

// Channel connects to the port of the guest. QEMU serves one connection at a time.
func (m *Machine) Channel(ctx context.Context) (net.Conn, error) {
	return dialSocket(ctx, filepath.Join(m.dir, guestFile))
}

// Done is closed when QEMU has ended. Err then says how.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Err returns how QEMU ended, or nil while it runs.
func (m *Machine) Err() error {
	select {
	case <-m.done:
		return m.end
	default:
		return nil
	}
}

// PID is the process id of QEMU.
func (m *Machine) PID() int { return m.record.PID }

// UID is the user id of QEMU.
func (m *Machine) UID() int { return m.record.UID }

// Dir is the directory of the machine.
func (m *Machine) Dir() string { return m.dir }

// Spec describes the machine.
func (m *Machine) Spec() Spec { return m.record.Spec }

// Limited lists the limits of the control groups of the machine, by file name. It is empty without control groups.
func (m *Machine) Limited() []string { return slices.Clone(m.limited) }
