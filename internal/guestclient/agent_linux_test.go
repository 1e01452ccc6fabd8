package guestclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/guestagent"
	"bailey/internal/guestwire"
	"bailey/internal/ktest"
)

// asAgent makes a process of this test the agent.
const asAgent = "BAILEY_TEST_GUEST_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		guestagent.Main()
		return
	}
	os.Exit(m.Run())
}

// startAgent starts an agent in a process of its own and returns the host's end of its socket.
func startAgent(t testing.TB, flags uintptr) (net.Conn, *exec.Cmd) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "host"), os.NewFile(uintptr(pair[1]), "guest")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "--fd", "3")
	cmd.Env = append(os.Environ(), asAgent+"=1")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&syscall.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return conn, cmd
}

// newSession returns a session with an agent in a process of its own.
func newSession(t testing.TB) *Session {
	t.Helper()
	conn, _ := startAgent(t, 0)
	return dialAgent(t, conn, Config{})
}

func dialAgent(t testing.TB, conn net.Conn, cfg Config) *Session {
	t.Helper()
	s, err := Dial(context.Background(), conn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// command returns a command of the user who runs the tests.
func command(argv ...string) Command {
	return Command{Argv: argv, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
}

func shell(line string) Command { return command("sh", "-c", line) }

// runOperation runs a command and returns what it wrote.
func run(t testing.TB, s *Session, c Command) (string, string, guestwire.Exit) {
	t.Helper()
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	exit, err := s.Exec(t.Context(), c)
	if err != nil {
		t.Fatalf("%q: %v", c.Argv, err)
	}
	return out.String(), log.String(), exit
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// TestExec checks streams, exit codes, signals, environment and directory of a command in an agent of its own process.
func TestExec(t *testing.T) {
	s := newSession(t)
	dir := t.TempDir()
	long := strings.Repeat("0123456789abcdef", 1<<16)
	for name, c := range map[string]struct {
		command  Command
		out, log string
		exit     guestwire.Exit
	}{
		"output": {command: shell("echo out; echo log >&2; exit 3"), out: "out\n", log: "log\n", exit: guestwire.Exit{Code: 3}},
		"signal": {command: shell("kill -TERM $$"), exit: guestwire.Exit{Code: 143, Signal: 15}},
		"place": {command: Command{Argv: []string{"sh", "-c", "echo $A; pwd; env | grep -c BAILEY"}, Env: []string{"A=x y"}, Dir: dir,
			UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}, out: "x y\n" + dir + "\n0\n", exit: guestwire.Exit{Code: 1}},
		"path":       {command: command("/bin/echo", "a  b", "", "'$c'"), out: "a  b  '$c'\n"},
		"no input":   {command: command("cat")},
		"background": {command: shell("sleep 1000 & echo on; kill $!; sleep 0.3 & echo $! >/dev/null"), out: "on\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out, log, exit := run(t, s, c.command)
			if out != c.out || log != c.log || exit != c.exit {
				t.Errorf("%q, %q, %+v", out, log, exit)
			}
		})
	}
	echo := command("cat")
	echo.Stdin = strings.NewReader(long)
	if out, _, exit := run(t, s, echo); out != long || exit.Code != 0 {
		t.Errorf("%d bytes of %d came back, %+v", len(out), len(long), exit)
	}
	unread := command("true")
	unread.Stdin = strings.NewReader(long)
	if _, _, exit := run(t, s, unread); exit.Code != 0 {
		t.Errorf("a command that does not read its input: %+v", exit)
	}
}

// TestExecRefused checks that a command that cannot run is an error with a kind, and that the session goes on.
func TestExecRefused(t *testing.T) {
	s := newSession(t)
	for name, c := range map[string]struct {
		command Command
		kind    bailey.Kind
	}{
		"nothing":           {Command{}, bailey.Invalid},
		"no such program":   {command("no-such-program"), bailey.NotFound},
		"no such file":      {command("/no/such/file"), bailey.NotFound},
		"a directory":       {command("/tmp"), bailey.Invalid},
		"no such directory": {Command{Argv: []string{"true"}, Dir: "/no/such", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}, bailey.NotFound},
		"name":              {Command{Argv: []string{"true"}, Env: []string{"A-B=c"}}, bailey.Invalid},
		"too large":         {command("echo", strings.Repeat("x", guestwire.MaxPayload)), bailey.Invalid},
	} {
		if _, err := s.Exec(t.Context(), c.command); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, _, _ := run(t, s, command("echo", "on")); out != "on\n" {
		t.Error("the session is unusable after refusals")
	}
}

// TestExecEnds checks that a command ends with its whole process group at its timeout, when the caller gives up, after
// too much output, and with its session.
func TestExecEnds(t *testing.T) {
	endless := func(file string) Command { return shell("sleep 1000 & echo $! >" + file + "; yes") }
	isGone := func(t *testing.T, file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "its child is gone", func() bool {
			state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
			return err != nil || strings.Contains(string(state), ") Z ")
		})
	}
	began := func(t *testing.T, file string) {
		eventually(t, "it runs", func() bool { b, err := os.ReadFile(file); return err == nil && len(b) > 1 })
	}
	t.Run("timeout", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		c := endless(file)
		c.Timeout = 300 * time.Millisecond
		exit, err := newSession(t).Exec(t.Context(), c)
		if err != nil || !exit.TimedOut || exit.Signal != 9 {
			t.Errorf("%+v, %v", exit, err)
		}
		isGone(t, file)
	})
	t.Run("cancelled", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { began(t, file); cancel() }()
		s := newSession(t)
		if _, err := s.Exec(ctx, endless(file)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		isGone(t, file)
		if out, _, _ := run(t, s, command("echo", "on")); out != "on\n" {
			t.Error("the session is unusable")
		}
	})
	t.Run("output", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		var out bytes.Buffer
		c := endless(file)
		c.Stdout, c.MaxOutput = &out, 1<<20
		if _, err := newSession(t).Exec(t.Context(), c); !errors.Is(err, bailey.Invalid) || out.Len() != 1<<20 {
			t.Error(out.Len(), err)
		}
		isGone(t, file)
	})
	t.Run("session", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		s := newSession(t)
		go func() { began(t, file); s.Close() }()
		if _, err := s.Exec(t.Context(), endless(file)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		isGone(t, file)
	})
	t.Run("input", func(t *testing.T) {
		c := command("cat")
		broken := errors.New("broken")
		c.Stdin = io.MultiReader(strings.NewReader("x"), brokenReader{broken})
		if _, err := newSession(t).Exec(t.Context(), c); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}

type brokenReader struct{ error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.error }

// TestSlowReader checks that nothing of a command's output is lost if it is read long after the command has ended.
func TestSlowReader(t *testing.T) {
	s := newSession(t)
	r, w := io.Pipe()
	c := shell("head -c 300000 /dev/zero; sleep 0.5 & head -c 60000 /dev/zero")
	c.Stdout = w
	done := make(chan error)
	go func() {
		_, err := s.Exec(t.Context(), c)
		w.Close()
		done <- err
	}()
	n := 0
	for buf := make([]byte, 10_000); ; {
		got, err := r.Read(buf)
		if n += got; err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := <-done; err != nil || n != 360_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestTerminal checks a command with a terminal: its size, its signals and the end of its input.
func TestTerminal(t *testing.T) {
	ktest.Require(t, "pty")
	s := newSession(t)
	signals, sizes := make(chan Signal), make(chan Size)
	var out lockedBuffer
	c := shell("test -t 0 && test -t 2 && stty size; trap 'stty size' WINCH; trap 'echo got' USR1; cat; echo end; read x; read x; read x")
	r, w := io.Pipe()
	c.Terminal, c.Stdin, c.Stdout, c.Signals, c.Sizes = &Size{24, 80}, r, &out, signals, sizes
	done := make(chan error, 1)
	go func() {
		exit, err := s.Exec(t.Context(), c)
		if err == nil && exit.Signal != 9 {
			err = fmt.Errorf("%+v", exit)
		}
		done <- err
	}()
	saw := func(text string) { eventually(t, text, func() bool { return strings.Contains(out.String(), text) }) }
	saw("24 80")
	io.WriteString(w, "hello\r")
	saw("hello\r\nhello")
	io.WriteString(w, "\x04")
	saw("end")
	sizes <- Size{30, 100}
	saw("30 100")
	signals <- 10
	saw("got")
	signals <- 9
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.Close()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// TestManyAtOnce checks more concurrent commands than a session has streams.
func TestManyAtOnce(t *testing.T) {
	s := newSession(t)
	var all sync.WaitGroup
	for i := range 3 * guestwire.MaxStreams {
		all.Go(func() {
			var out bytes.Buffer
			c := shell("cat; echo $A")
			c.Env, c.Stdin, c.Stdout = []string{fmt.Sprint("A=", i)}, strings.NewReader("in "), &out
			if _, err := s.Exec(t.Context(), c); err != nil || out.String() != fmt.Sprintf("in %d\n", i) {
				t.Errorf("%q, %v", out.String(), err)
			}
		})
	}
	all.Wait()
}

// TestFiles checks that files are written at once, keep their properties, and are refused with a reason.
func TestFiles(t *testing.T) {
	s, dir := newSession(t), t.TempDir()
	name := filepath.Join(dir, "a b/c\xff")
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	owner := NewFile{Mode: 0o640, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if _, err := s.WriteFile(t.Context(), name, large, owner); !errors.Is(err, bailey.NotFound) {
		t.Error("no directory:", err)
	}
	owner.Parents = true
	info, err := s.WriteFile(t.Context(), name, large, owner)
	if err != nil || info.Size != 1<<20 || info.Mode != syscall.S_IFREG|0o640 {
		t.Errorf("%+v, %v", info, err)
	}
	if got, err := s.ReadFile(t.Context(), name, 0); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := s.ReadFile(t.Context(), name, 1<<20-1); !errors.Is(err, bailey.Invalid) {
		t.Error("over the limit:", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	owner.Mode = 0o777
	if _, err := s.WriteFile(t.Context(), link, []byte("new"), owner); err != nil {
		t.Error(err)
	}
	if info, err := s.Stat(t.Context(), link); err != nil || info.Target != name || info.Mode&syscall.S_IFMT != syscall.S_IFLNK {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := s.Stat(t.Context(), name); err != nil || info.Mode != syscall.S_IFREG|0o640 || info.Size != 3 {
		t.Errorf("a file that existed: %+v, %v", info, err)
	}
	list, err := s.List(t.Context(), dir)
	if err != nil || len(list) != 2 || list[0].Name != "a b" || list[1].Name != "link" {
		t.Errorf("%+v, %v", list, err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{fifo, dir, "/dev/null"} {
		if _, err := s.ReadFile(t.Context(), bad, 0); !errors.Is(err, bailey.Invalid) {
			t.Errorf("read %s: %v", bad, err)
		}
		if _, err := s.WriteFile(t.Context(), bad, nil, owner); !errors.Is(err, bailey.Invalid) {
			t.Errorf("write %s: %v", bad, err)
		}
	}
	if _, err := s.ReadFile(t.Context(), "relative", 0); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
	if _, err := s.WriteFile(t.Context(), name, make([]byte, guestwire.MaxFile+1), owner); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(dir + "/*/.bailey-*"); left != nil {
		t.Error("left behind:", left)
	}
	if text, err := s.ReadFile(t.Context(), "/proc/self/status", 0); err != nil || len(text) == 0 {
		t.Error("a file of /proc:", err)
	}
}

// TestEdit checks that a text is replaced only if it is there exactly once, or all are meant.
func TestEdit(t *testing.T) {
	s := newSession(t)
	name := filepath.Join(t.TempDir(), "f")
	ktest.Write(t, name, "one two two\n")
	edit := func(before, after string, all bool) (int, error) {
		return s.EditFile(t.Context(), name, before, after, all)
	}
	if n, err := edit("one", "1 $1 \\1\x00", false); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, err := edit("two", "2", false); !errors.Is(err, bailey.Conflict) {
		t.Error(err)
	}
	if _, err := edit("three", "3", false); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	if _, err := edit("", "3", false); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
	if n, err := edit("two", "", true); n != 2 || err != nil {
		t.Error(n, err)
	}
	if got, _ := os.ReadFile(name); string(got) != "1 $1 \\1\x00  \n" {
		t.Errorf("%q", got)
	}
	ktest.Write(t, name, strings.Repeat("x", 1000))
	if _, err := edit("x", strings.Repeat("y", 1<<20), true); !errors.Is(err, bailey.Invalid) {
		t.Error("a result that is too large:", err)
	}
}

// TestJobs checks that background jobs outlive their session, and that their output is kept up to a limit.
func TestJobs(t *testing.T) {
	conn, _ := startAgent(t, 0)
	kept := &keptConn{Conn: conn}
	s := dialAgent(t, kept, Config{})
	id, err := s.Start(t.Context(), shell("echo begun; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	loud, err := s.Start(t.Context(), shell("head -c 3000000 /dev/zero; echo end >&2; exit 4"))
	if err != nil {
		t.Fatal(err)
	}
	s = resumed(t, s, kept, conn)
	eventually(t, "its output", func() bool {
		out, _, err := s.Output(t.Context(), id, 100)
		return err == nil && string(out) == "begun\n"
	})
	eventually(t, "the end of the other", func() bool {
		out, job, err := s.Output(t.Context(), loud, 4)
		return err == nil && string(out) == "end\n" && job.Exit.Code == 4 && job.Output == 3_000_004
	})
	if out, _, err := s.Output(t.Context(), loud, 1<<31); err != nil || len(out) != 1<<20 {
		t.Error(len(out), err)
	}
	if jobs, err := s.Jobs(t.Context()); err != nil || len(jobs) != 2 || jobs[0].ID != id || !jobs[0].Running || jobs[1].Running {
		t.Errorf("%+v, %v", jobs, err)
	}
	if job, err := s.Kill(t.Context(), id, 9); err != nil || job.Running || job.Exit.Signal != 9 {
		t.Errorf("%+v, %v", job, err)
	}
	if _, err := s.Kill(t.Context(), id, 9); !errors.Is(err, bailey.Conflict) {
		t.Error(err)
	}
	if _, err := s.Kill(t.Context(), "job-9", 9); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	timed := shell("sleep 1000")
	timed.Timeout = 10 * time.Millisecond
	if id, err = s.Start(t.Context(), timed); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its timeout", func() bool {
		_, job, err := s.Output(t.Context(), id, 0)
		return err == nil && job.Exit.TimedOut && job.Exit.Signal == 9
	})
}

// TestJobsAreBounded checks that a guest keeps a limited number of jobs and forgets only those that have ended.
func TestJobsAreBounded(t *testing.T) {
	ktest.Long(t)
	s := newSession(t)
	for range guestwire.MaxJobs {
		if _, err := s.Start(t.Context(), command("sleep", "1000")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Start(t.Context(), command("true")); !errors.Is(err, bailey.Unavailable) {
		t.Error("more jobs than fit:", err)
	}
	long := command("sleep", "1000", strings.Repeat("x", 2000))
	if _, err := s.Kill(t.Context(), "job-3", 9); err != nil {
		t.Error(err)
	}
	if _, err := s.Start(t.Context(), long); err != nil {
		t.Error(err)
	}
	jobs, err := s.Jobs(t.Context())
	if err != nil || len(jobs) != guestwire.MaxJobs || jobs[2].ID != "job-4" {
		t.Error(len(jobs), err)
	}
	for _, j := range jobs {
		if _, err := s.Kill(t.Context(), j.ID, 9); err != nil && !errors.Is(err, bailey.Conflict) {
			t.Error(err)
		}
	}
}

// keptConn stays open when its session ends, as the port of a guest does whose memory was copied.
type keptConn struct {
	net.Conn
	mu     sync.Mutex // held while it is read
	closed bool
}

func (k *keptConn) Read(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return 0, net.ErrClosed
	}
	return k.Conn.Read(p)
}

// Close lets the reader give up.
func (k *keptConn) Close() error { return k.SetReadDeadline(time.Unix(1, 0)) }

// resumed ends a session without the agent's knowledge, in the middle of a frame, and begins another one.
func resumed(t *testing.T, s *Session, kept *keptConn, conn net.Conn) *Session {
	t.Helper()
	if _, err := conn.Write([]byte("D\x00\x00\x00\x01\x00\x00\xff\xff\x00half a frame")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	kept.mu.Lock()
	kept.closed = true
	kept.mu.Unlock()
	marker := s.Marker()
	return dialAgent(t, conn, Config{Resync: &marker})
}

// TestResume checks that a host can begin a session with an agent that is in the middle of a frame and of its output,
// and that the commands of the former session end.
func TestResume(t *testing.T) {
	conn, cmd := startAgent(t, 0)
	kept := &keptConn{Conn: conn}
	s := dialAgent(t, kept, Config{})
	children := func() string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		return string(b)
	}
	r, w := io.Pipe()
	defer r.Close()
	c := command("yes")
	c.Stdout = w // which is read once, so that the agent must wait for credit
	go s.Exec(context.Background(), c)
	if _, err := r.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	s = resumed(t, s, kept, conn)
	if out, _, _ := run(t, s, command("echo", "on")); out != "on\n" {
		t.Errorf("%q", out)
	}
	eventually(t, "the end of the former command", func() bool {
		out, _, _ := run(t, s, shell("ps -o comm= --ppid "+fmt.Sprint(cmd.Process.Pid)+" | grep -c yes"))
		return out == "0\n" || children() == ""
	})
}

// TestMustRenew checks that neither the session nor the agent runs a command in a clone that was not renewed.
func TestMustRenew(t *testing.T) {
	conn, _ := startAgent(t, 0)
	s := dialAgent(t, conn, Config{MustRenew: true})
	byAgent := false
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, bailey.Conflict) || errors.Is(err, errRenew) == byAgent {
			t.Error(err)
		}
	}
	for range 2 {
		_, err := s.Exec(t.Context(), command("true"))
		refused(err)
		_, err = s.Start(t.Context(), command("true"))
		refused(err)
		_, err = s.ReadFile(t.Context(), "/etc/passwd", 0)
		refused(err)
		refused(s.Sync(t.Context()))
		if id, err := s.Identity(t.Context()); err != nil || id.Renewed {
			t.Error(id, err)
		}
		byAgent = true
		s.renewed.Store(true) // now only the agent can refuse
	}
	byAgent = false
	s.renewed.Store(false)
	if _, err := s.Renew(t.Context(), guestwire.Renewal{}); !errors.Is(err, bailey.Invalid) {
		t.Error("a renewal without a host name:", err)
	}
	if _, err := s.Renew(t.Context(), guestwire.Renewal{Hostname: "-", Seed: []byte("short")}); !errors.Is(err, bailey.Invalid) {
		t.Error("a renewal that is not valid:", err)
	}
	_, err := s.Exec(t.Context(), command("true"))
	refused(err)
}

// TestPid1 checks the agent as pid 1 of a namespace: it runs commands, and waits for the orphans that they leave.
func TestPid1(t *testing.T) {
	ktest.Require(t, "userns")
	conn, cmd := startAgent(t, syscall.CLONE_NEWUSER|syscall.CLONE_NEWPID|syscall.CLONE_NEWNS)
	s := dialAgent(t, conn, Config{})
	if !s.welcome.Init || s.Arch() == "" {
		t.Errorf("%+v", s.welcome)
	}
	root := Command{Argv: []string{"sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.0$i &) ; done; echo $PPID"}}
	if out, _, exit := run(t, s, root); out != "1\n" || exit.Code != 0 {
		t.Errorf("%q, %+v", out, exit)
	}
	eventually(t, "no orphan is left", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		return err == nil && len(b) == 0
	})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if exit, err := s.Exec(t.Context(), Command{Argv: []string{"sh", "-c", "(true &); exit 7"}}); err != nil || exit.Code != 7 {
				t.Error(exit, err)
			}
		})
	}
	all.Wait()
}

// BenchmarkExec measures a round trip of a command. BenchmarkStart is the same program without an agent.
func BenchmarkExec(b *testing.B) {
	s := newSession(b)
	for b.Loop() {
		if _, err := s.Exec(b.Context(), command("/bin/true")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite1MB(b *testing.B) {
	s, name, data := newSession(b), filepath.Join(b.TempDir(), "f"), make([]byte, 1<<20)
	owner := NewFile{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := s.WriteFile(b.Context(), name, data, owner); err != nil {
			b.Fatal(err)
		}
	}
}
