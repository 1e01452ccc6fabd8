//go:build linux

package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// self is this program, even if its file was deleted (go run) or replaced.
const self = "/proc/self/exe"

// initEnv is the whole environment of PID 1: at most two threads of Go code at a time, no garbage collector for a life
// of milliseconds, no reading of cgroups. It has no value of the gateway or the tool.
var initEnv = [...]string{"GOMAXPROCS=2", "GOGC=off", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

// A child is PID 1 of a cage, the stream to it, and the bounds on the cage from outside.
type child struct {
	process *os.Process
	stream  *os.File
	hold    boundsEnforcer
	times   times
	keeper  bool // it is the keeper of a lesser cage
	user    user
	out     *networkPeer
	built   func()      // called when the tool has started; may be nil
	insist  *time.Timer // kills a keeper that does not end its cage; nil if it was not told to
}

// spawnChild starts a program of package inside, by its name, and bounds it before it gets its start request.
func (j *Jail) spawnChild(name string) (*child, error) { return j.spawnAs(name, j.acquireUser()) }

// spawnAs is spawn for a user that was taken before. The user is released with the child, or at once if spawnAs fails.
func (j *Jail) spawnAs(name string, as user) (*child, error) {
	c, err := j.cloneChild(name, as.uid)
	if err != nil {
		as.releaseUser()
		return nil, err
	}
	c.user = as
	if c.hold, err = j.holder.newEnforcer(c.process); err != nil {
		c.closeAndWait()
		return nil, err
	}
	return c, nil
}

// cloneChild starts PID 1 in new namespaces, or a keeper. The new process has only its end of the stream, and waits there.
func (j *Jail) cloneChild(name string, uid int) (*child, error) {
	layer, how := "userns", j.cloneAttributes(uid)
	switch name {
	case inside.Keeper:
		layer, how = "init-guarded", &syscall.SysProcAttr{Setsid: true}
	case inside.Warm: // it returns to its own mount namespace between calls (setns(2))
		how.AmbientCaps = append(how.AmbientCaps, unix.CAP_SYS_CHROOT)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, layerUnavailable("fds-closed", os.NewSyscallError("socketpair", err))
	}
	theirs := os.NewFile(uintptr(pair[1]), "cage")
	defer theirs.Close()
	unix.SetNonblock(pair[0], true) // so that a deadline can interrupt a read
	ours := os.NewFile(uintptr(pair[0]), "cage")
	if j.weaken != nil {
		j.weaken(how)
	}
	if name == inside.Warm {
		defer widenTimerSlack()()
	}
	p, err := startInside(name, theirs, how)
	if err != nil {
		ours.Close()
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, layerUnavailable(layer, os.NewSyscallError("clone", err))
	}
	return &child{process: p, stream: ours, times: j.times, keeper: name == inside.Keeper}, nil
}

// startInside starts a program of package inside with one end of its socket, one process at a time. Until the ids of a
// new user namespace are mapped, package syscall makes the new process wait at a pipe, of which it holds the other end
// too. If two were started at once, each could hold the other's pipe: if the gateway were killed at that moment, both
// would wait for ever, and hold all descriptors of the gateway and so its locks.
func startInside(name string, socket *os.File, how *syscall.SysProcAttr) (*os.Process, error) {
	starting.Lock()
	defer starting.Unlock()
	return os.StartProcess(self, []string{name}, &os.ProcAttr{
		Dir: "/", Env: initEnv[:], Files: []*os.File{inside.Socket: socket}, Sys: how})
}

var starting sync.Mutex

// widenTimerSlack makes the kernel combine the timers of processes that this thread starts, until restore is called. In a
// helper only the Go runtime has timers; it would wake up many times per call without finding work.
func widenTimerSlack() (restore func()) {
	runtime.LockOSThread()
	was, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(helperSlack.Nanoseconds()), 0, 0, 0)
	return func() {
		if err == nil {
			unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(was), 0, 0, 0)
		}
		runtime.UnlockOSThread()
	}
}

const helperSlack = 50 * time.Millisecond

// cloneAttributes returns the namespaces and ids of PID 1. PID 1 keeps capabilities over its own namespaces, through the
// ambient set since its uid is not 0: to mount, to empty the bounding set, and for the network that its plan may
// contain.
func (j *Jail) cloneAttributes(uid int) *syscall.SysProcAttr {
	gid := j.hostGID
	if j.root {
		gid = uid
	}
	one := func(host int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: insideID, HostID: host, Size: 1}}
	}
	return &syscall.SysProcAttr{
		Cloneflags:                 cloneFlags,
		UidMappings:                one(uid),
		GidMappings:                one(gid),
		GidMappingsEnableSetgroups: j.root,
		// An ordinary user keeps supplementary groups: without a privileged helper the group list cannot be dropped if
		// gids are mapped (user_namespaces(7)).
		Credential:  &syscall.Credential{Uid: insideID, Gid: insideID, NoSetGroups: !j.root},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE},
		Setsid:      true,
	}
}

// An ending is what is known of PID 1 when it has ended.
type cageResult struct {
	started, exited, failed bool
	step                    int        // the one that failed
	errno                   unix.Errno // why
	status                  syscall.WaitStatus
	timedOut, cancelled     bool
	last                    string // how PID 1 itself ended
	over                    string // the bound for which it was ended
	orderly                 bool   // it ended as intended
	cpu                     time.Duration
}

// runToEnd sends the plan and reads reports until PID 1 is gone. It ends PID 1 when the time is up or ctx is done.
func (c *child) runToEnd(ctx context.Context, message []byte, files []*os.File, timeout time.Duration) cageResult {
	reports := make(chan cageResult, 1)
	c.sendRequest(message, files)
	go func() { reports <- c.readReports() }()
	e, timedOut, cancelled := waitForEnd(ctx, reports, runTimes{timeout, c.times.grace},
		func() { c.stream.Write([]byte{inside.Term}) }, c.killCage)
	e.timedOut, e.cancelled = timedOut, cancelled
	if c.insist != nil {
		c.insist.Stop()
	}
	state, err := c.process.Wait() // returns when the whole namespace is gone (pid_namespaces(7))
	c.stream.Close()
	c.user.releaseUser()
	e.over = c.hold.stopEnforcing()
	if e.last = state.String(); err != nil {
		e.last = err.Error()
	}
	e.orderly = err == nil && state.Success()
	e.cpu = state.UserTime() + state.SystemTime() // of all processes that it reaped: at its end, all processes
	return e
}

// killCage kills PID 1, and with it the whole cage. A keeper is told to end the cage itself, and is killed if it does not.
func (c *child) killCage() {
	if !c.keeper {
		c.process.Kill()
		return
	}
	c.stream.SetWriteDeadline(time.Now().Add(c.times.reluctance))
	c.stream.Write([]byte{inside.End})
	c.insist = time.AfterFunc(c.times.reluctance, func() { c.process.Kill() })
}

// encodeStartRequest returns the start request as it goes over the stream: its length, then the steps.
func encodeStartRequest(steps []inside.Step) ([]byte, error) {
	b := inside.Encode(make([]byte, 4, 8192), steps)
	if len(b)-4 > inside.MaxBytes {
		return nil, bailey.Invalid.New("arguments and environment exceed the limit for a program",
			"pass large inputs as files")
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b, nil
}

// sendRequest writes the start request and passes the descriptors with its first bytes. PID 1 reads all of it before it acts;
// if it does not read, it is killed.
func (c *child) sendRequest(message []byte, files []*os.File) {
	c.stream.SetWriteDeadline(time.Now().Add(probeTime))
	err := c.passFiles(message[:4], files)
	if err == nil {
		_, err = c.stream.Write(message[4:])
	}
	if err != nil {
		c.process.Kill()
	}
	c.stream.SetWriteDeadline(time.Time{})
}

func (c *child) passFiles(head []byte, files []*os.File) error {
	return sendWithFiles(c.stream, head, files)
}

// sendWithFiles writes to a socket, once, with descriptors.
func sendWithFiles(socket *os.File, b []byte, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), b, unix.UnixRights(fds...), nil, 0)
		return sent != unix.EAGAIN
	})
	return errors.Join(err, sent)
}

// readReports reads the reports of PID 1 until the stream ends.
func (c *child) readReports() cageResult {
	var e cageResult
	var b [inside.ReportSize]byte
	for {
		socket, err := receiveReport(c.stream, b[:])
		if err != nil {
			return e
		}
		x, y := binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:])
		switch b[0] {
		case inside.Started:
			if e.started = true; c.built != nil {
				c.built()
			}
		case inside.Exited:
			e.exited, e.status = true, syscall.WaitStatus(x)
		case inside.Failed:
			e.failed, e.step, e.errno = true, int(x), unix.Errno(y)
		case inside.Socketed:
			c.out.addListener(int(x), socket)
			socket = nil
		}
		socket.Close() // an unexpected one; nil is harmless
	}
}

// closeAndWait ends a PID 1 that is not needed: it exits at the end of its stream.
func (c *child) closeAndWait() {
	c.stream.Close()
	c.process.Wait()
	c.user.releaseUser()
	if c.hold != nil {
		c.hold.stopEnforcing()
	}
}
