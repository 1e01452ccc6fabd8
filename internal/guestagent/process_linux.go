package guestagent

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/guestwire"
)

// processes are the children of the agent that have not been waited for. As pid 1, the agent also waits for orphans.
type processes struct {
	mu    sync.Mutex // held while a child is waited for, so that no signal goes to a pid that has another owner
	byPID map[int]*process
	all   bool // wait for all children, also those that are not in the map
	fork  func(program string, argv []string, attr *syscall.ProcAttr) (pid int, err error)
}

type process struct {
	pid    int
	done   chan struct{} // closed after status is set
	status syscall.WaitStatus

	abandoned <-chan struct{} // closed if the host no longer wants the command; nil for a job
}

// newProcesses returns an empty set. If all is set, it waits for all children from now on.
func newProcesses(all bool) *processes {
	p := &processes{byPID: map[int]*process{}, all: all, fork: syscall.ForkExec}
	if all {
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, unix.SIGCHLD)
		go func() {
			for {
				p.reapAll()
				<-ended
			}
		}()
	}
	return p
}

func (p *processes) reapAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		p.noteExit(pid, status)
	}
}

// noteExit requires p.mu.
func (p *processes) noteExit(pid int, status syscall.WaitStatus) {
	if c := p.byPID[pid]; c != nil {
		delete(p.byPID, pid)
		select {
		case <-c.abandoned: // its children stay in its group, which is out of reach once its end is noted
			syscall.Kill(-pid, unix.SIGKILL)
		default:
		}
		c.status = status
		close(c.done)
	}
}

// reapOne waits for one child. It leaves the child a zombie until the lock is held.
func (p *processes) reapOne(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	p.noteExit(pid, status)
}

// signalGroup sends a signal to the process group of a child that has not been waited for.
func (p *processes) signalGroup(c *process, n uint32) error {
	if n == 0 || n > 64 {
		return bailey.Invalid.Errorf("Use the number of a Linux signal.", "there is no signal %d", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byPID[c.pid] != c {
		return bailey.Conflict.New("the process has ended", "")
	}
	return syscall.Kill(-c.pid, syscall.Signal(n))
}

// killAll kills the process groups of all children.
func (p *processes) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.byPID {
		syscall.Kill(-pid, unix.SIGKILL)
	}
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// startProcess starts a command in a session of its own, with the given descriptors as its standard streams. If it ends after
// abandoned was closed, what it left in its process group is killed.
func (p *processes) startProcess(c *guestwire.Command, files [3]*os.File, abandoned <-chan struct{}) (*process, error) {
	if fault := c.Fault(); fault != "" {
		return nil, bailey.Invalid.New("the command cannot be run: "+fault, "Correct the command.")
	}
	env, search := c.Env, ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
		}
	}
	if search == "" {
		search = defaultPath
		env = append([]string{"PATH=" + search}, env...)
	}
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: c.PTY}}
	if c.Dir == "" {
		attr.Dir = "/"
	}
	if int(c.UID) != os.Geteuid() || int(c.GID) != os.Getegid() {
		attr.Sys.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID}
	}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	program, err := ownProgram, error(nil)
	if c.Argv[0] != guestwire.AgentProgram {
		program, err = findProgram(c.Argv[0], search)
	}
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := p.fork(program, c.Argv, attr)
	if err != nil {
		return nil, startError(c, err)
	}
	child := &process{pid: pid, done: make(chan struct{}), abandoned: abandoned}
	p.byPID[pid] = child
	if !p.all {
		go p.reapOne(pid)
	}
	return child, nil
}

// ownProgram is the file of the agent, which may be in no directory.
const ownProgram = "/proc/self/exe"

// startError says why a program could not be started. The kernel does not tell which of the steps failed.
func startError(c *guestwire.Command, err error) error {
	kind, hint := bailey.Invalid, "Check that the program, its interpreter and the directory exist and may be used by the user."
	if errors.Is(err, fs.ErrNotExist) {
		kind = bailey.NotFound
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) {
		kind, hint = bailey.Unavailable, "End other processes in the sandbox."
	}
	return kind.Wrapf(err, hint, "cannot start %q in %q: %v", shortText(c.Argv[0]), shortText(c.Dir), err)
}

// findProgram searches the absolute directories of a PATH. A name with a slash is used as it is.
func findProgram(name, search string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(search) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", bailey.NotFound.Errorf("Install the program in the sandbox, or name its file.",
		"the program %q is not in %s", shortText(name), shortText(search))
}

// shortText bounds a text and makes it UTF-8.
func shortText(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// exitOf returns how a child ended.
func exitOf(status syscall.WaitStatus) guestwire.Exit {
	if status.Signaled() {
		return guestwire.Exit{Code: 128 + uint32(status.Signal()), Signal: uint32(status.Signal())}
	}
	return guestwire.Exit{Code: uint32(status.ExitStatus())}
}
