//go:build linux

package jail

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bailey/internal/jail/battery"
	"bailey/internal/ktest"
)

// attacker returns the path of testdata/battery, built next to the probe.
func attacker() string { return filepath.Join(filepath.Dir(probe), "battery") }

// A stage is the environment of the battery outside the cage: targets, each with an observer that notices an attack.
type stage struct {
	battery.Scene
	masks   []string
	callers atomic.Int64 // connections to a listener
	pipe    int          // reading end of the FIFO in the read-only place
	victim  *exec.Cmd
	nice    int // the victim's priority as the kernel reports it
	signals chan os.Signal
	untouch string // digest of the files that must not change

	ready func(*testing.T) // called before each call that is judged; must ensure that the call is of the intended kind
}

// cagesPids limits the pids inside a cage: all probes together use about 1,800. If a process outside has such a pid,
// for example on a machine that has just started, it cannot be told from one in the cage: setpgid(2) reaches both.
const cagesPids = 4000

// passPids ensures that the next process gets a higher pid.
func passPids(t *testing.T) {
	t.Helper()
	for begin := time.Now(); ; {
		c := exec.Command("/bin/true")
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		if c.Process.Pid > cagesPids {
			return
		}
		// proc_sys_kernel(5); if this is not permitted, the loop uses the pids up
		os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(cagesPids+1)), 0)
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("the kernel still gives out numbers like %d", c.Process.Pid)
		}
	}
}

// staged builds a stage in a directory that is neither below a cage's own /tmp nor below its home.
func staged(t *testing.T) *stage { return stagedFor(t, DefaultHostUID) }

// stagedFor is for cages with this uid outside, if the gateway is root.
func stagedFor(t *testing.T, uid int) *stage {
	t.Helper()
	root, err := os.MkdirTemp("/var/tmp", "bailey-battery-")
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	os.Chmod(root, 0o755)
	s := &stage{Scene: battery.Scene{Token: random(t), Kind: "full", RO: filepath.Join(root, "ro"), RW: filepath.Join(root, "rw"),
		Secret: filepath.Join(root, "secret"), Canary: filepath.Join(root, "canary"), Home: homeDir, Tmp: tmpDir,
		Tasks: defaultTasks + ownTasks, Memory: defaultData}, ready: func(*testing.T) {}}
	for _, pid := range []int{os.Getpid(), os.Getppid()} {
		if pid > cagesPids {
			s.Pids = append(s.Pids, pid)
		} else {
			t.Logf("pid %d is left out: a process of the cage can have the same number", pid)
		}
	}
	s.HostName, _ = os.Hostname()
	t.Setenv(battery.Leak, "outside")
	put(t, s.Secret, "of the host", 0o644)
	put(t, s.Canary, s.Token, 0o644)
	s.program(t)
	for _, dir := range []string{s.RO, s.RW} {
		s.furnish(t, dir)
	}
	s.listen(t)
	s.share(t)
	s.keys(t)
	s.haunt(t, uint32(uid))
	s.untouch = s.digest(t)
	return s
}

func random(t *testing.T) string {
	t.Helper()
	var b [16]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", b)
}

// program finds a dynamic helper with its loader and C library, if the host has one.
func (s *stage) program(t *testing.T) {
	j, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	helper, err := j.tools.findTool("/bin/true")
	if err != nil || len(helper.files) < 3 {
		t.Logf("without a dynamic helper: %v", err)
		return
	}
	for i, f := range helper.files {
		switch {
		case i == 0:
			s.Helper = f.path
		case f.use == loader:
			s.Loader = f.path
		case strings.Contains(filepath.Base(f.path), "libc."):
			s.Libc = f.path
		}
	}
}

// furnish fills a place with targets: files to run, load, follow, connect to and uncover.
func (s *stage) furnish(t *testing.T, dir string) {
	t.Helper()
	in := func(name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
	put(t, in(battery.Note), strings.Repeat("text\n", 2000), 0o666)
	put(t, in(battery.Hidden, battery.Inner), "masked", 0o644)
	put(t, in(battery.Holder, battery.Hidden, battery.Inner), "masked", 0o644)
	put(t, in(battery.Script), "#!"+attacker()+" noop\n", 0o755)
	s.masks = append(s.masks, in(battery.Hidden), in(battery.Holder, battery.Hidden))
	copyFile(t, attacker(), in(battery.Tool))
	if s.Helper != "" {
		copyFile(t, s.Helper, in(battery.True))
		copyFile(t, s.Libc, in(battery.Lib))
	}
	for name, target := range map[string]string{battery.Link: s.Secret, battery.Way: battery.Hidden} {
		if err := os.Symlink(target, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(in(battery.Pipe), 0o666); err != nil {
		t.Fatal(err)
	}
	os.Chmod(in(battery.Pipe), 0o666)
	if dir == s.RO {
		fd, err := unix.Open(in(battery.Pipe), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		s.pipe = fd
	}
}

// listen opens listeners of every kind, which no probe may reach.
func (s *stage) listen(t *testing.T) {
	stream := func(network, address string) string {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Logf("without %s %s: %v", network, address, err)
			return ""
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				s.callers.Add(1)
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	packets := func(network, address string) string {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			t.Logf("without %s %s: %v", network, address, err)
			return ""
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			for _, _, err := c.ReadFrom(make([]byte, 1)); err == nil; _, _, err = c.ReadFrom(make([]byte, 1)) {
				s.callers.Add(1)
			}
		}()
		return c.LocalAddr().String()
	}
	s.TCP, s.TCP6, s.UDP = stream("tcp", "127.0.0.1:0"), stream("tcp", "[::1]:0"), packets("udp", "127.0.0.1:0")
	s.Abstract = stream("unix", "@battery-"+s.Token)
	for _, dir := range []string{s.RO, s.RW} {
		stream("unix", filepath.Join(dir, battery.Stream))
		packets("unixgram", filepath.Join(dir, battery.Dgram))
		os.Chmod(filepath.Join(dir, battery.Stream), 0o777)
		os.Chmod(filepath.Join(dir, battery.Dgram), 0o777)
	}
}

// share creates objects shared by number or name, with access for all users.
func (s *stage) share(t *testing.T) {
	s.Key = 1<<30 | os.Getpid()
	s.Planted = s.Key | 1<<29
	if id, err := unix.SysvShmGet(s.Key, 4096, unix.IPC_CREAT|0o666); err == nil {
		t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	}
	if id, _, e := unix.Syscall(unix.SYS_SEMGET, uintptr(s.Key), 1, unix.IPC_CREAT|0o666); e == 0 {
		t.Cleanup(func() { unix.Syscall(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID) })
	}
	if id, _, e := unix.Syscall(unix.SYS_MSGGET, uintptr(s.Key), unix.IPC_CREAT|0o666, 0); e == 0 {
		t.Cleanup(func() { unix.Syscall(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0) })
	}
	s.Queue = "battery-" + s.Token
	name := append([]byte(s.Queue), 0)
	if fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o666, 0, 0, 0); e == 0 {
		unix.Close(int(fd))
		t.Cleanup(func() { unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0) })
	}
	s.Shm = "/dev/shm/battery-" + s.Token
	if err := os.WriteFile(s.Shm, []byte("shared"), 0o644); err == nil {
		t.Cleanup(func() { os.Remove(s.Shm) })
	}
}

// keys adds one key to the session keyring of this thread, which must be locked, and one to the user keyring.
func (s *stage) keys(t *testing.T) {
	if ktest.Has("keyring") != nil {
		return
	}
	s.KeyName = "battery-" + s.Token
	if _, err := unix.KeyctlJoinSessionKeyring(s.KeyName); err != nil {
		t.Fatal(err)
	}
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING} {
		id, err := unix.AddKey("user", s.KeyName, []byte(s.Token), ring)
		if err != nil {
			t.Fatal(err)
		}
		s.KeyID = id
	}
	// The session keyring ends with this thread. The user keyring would stay, and a uid may have 200 keys
	// (keyrings(7)). The key is unlinked, not revoked: only a possessor may revoke it, and this session is not one.
	t.Cleanup(func() {
		if _, err := unix.KeyctlInt(unix.KEYCTL_UNLINK, s.KeyID, unix.KEY_SPEC_USER_KEYRING, 0, 0); err != nil {
			t.Errorf("a key stays with the user: %v", err)
		}
	})
}

// haunt starts the victim with the uid that the tool has outside, and listens for misdirected signals.
func (s *stage) haunt(t *testing.T, uid uint32) {
	passPids(t)
	s.victim = exec.Command("/bin/sh", "-c", "read x", "victim-"+s.Token)
	if _, err := s.victim.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		s.victim.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if err := s.victim.Start(); err != nil {
		t.Fatal(err)
	}
	victim, gone := s.victim, make(chan struct{})
	// must wait at once: PID 1 of a PID namespace ends only after all others have been reaped
	go func() { victim.Wait(); close(gone) }()
	t.Cleanup(func() { victim.Process.Kill(); <-gone })
	s.Victim = victim.Process.Pid
	s.nice, _ = unix.Getpriority(unix.PRIO_PROCESS, s.Victim)
	s.signals = make(chan os.Signal, 8)
	signal.Notify(s.signals, syscall.SIGUSR1)
	t.Cleanup(func() { signal.Stop(s.signals) })
}
