package readonlyshell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail"
	"bailey/internal/readonly"
)

// Main runs the shell with the arguments of this process, and never returns.
func Main() {
	s := shell{check: readonly.Check, limit: jail.HostReader.Exec, commands: OwnPath}
	if len(os.Args) == 2 && os.Args[1] == enforceOption {
		s.enforceLimits()
	}
	os.Exit(s.handleLogin(os.Args[1:], os.Getenv("SSH_ORIGINAL_COMMAND")))
}

// shell has the two layers of this program. Tests replace one of them to see that the other still holds.
type shell struct {
	check func(string, readonly.Options) readonly.Verdict
	limit func(r jail.HostReader, program string, args, env []string) error
	// commands is the file with the commands of the operator.
	commands string
}

// handleLogin handles a login. args are those that sshd passes, and line is the command of the client.
func (s shell) handleLogin(args []string, line string) int {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Println(Name, buildVersion())
		return 0
	}
	if len(args) != 2 || args[0] != "-c" || line == "" {
		return reportError(ExitRefused, bailey.Denied.New("this account has no interactive login",
			"run one command that only reads, for example: bailey source run HOST uptime"))
	}
	r, err := ParseCommand(args[1])
	if err != nil {
		return reportError(ExitRefused, err)
	}
	if line == StatusLine {
		if err := json.NewEncoder(os.Stdout).Encode(s.readStatus()); err != nil {
			return reportError(ExitFailed, err)
		}
		return 0
	}
	j, err := s.prepareJob(r, line)
	if err != nil {
		return reportError(ExitRefused, err)
	}
	return j.runLine(r)
}

// reportError prints an error of the shell itself, and returns the exit code.
func reportError(code int, err error) int {
	fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
	var e *bailey.Error
	if errors.As(err, &e) && e.Hint != "" {
		fmt.Fprintf(os.Stderr, "  %s\n", e.Hint)
	}
	return code
}

// job is a line that may run, with its limits. The first process passes it to the second.
type job struct {
	Text   string          `json:"text"`
	Limits jail.HostReader `json:"limits"`
}

// interpreter runs the line. Its features beyond POSIX are not used.
const interpreter = "/bin/sh"

// prepareJob validates a line and returns its job.
func (s shell) prepareJob(r Request, line string) (job, error) {
	j := job{Text: line, Limits: jail.HostReader{CPU: timeoutOf(r), WithoutLandlock: r.WithoutLandlock}}
	if r.Approved != "" {
		if Digest(line) != r.Approved {
			return job{}, bailey.Denied.New("the certificate permits another line than this one",
				"send exactly the line that was approved")
		}
		j.Limits.Programs = []string{"/"}
		return j, nil
	}
	own, err := s.openOwn(r)
	if err != nil {
		return job{}, err
	}
	v := s.check(line, readonly.Options{Rules: own.Rules})
	if v.Accepted() {
		paths := map[string]string{}
		for _, c := range v.Commands {
			if found := findCommand(c.Name); found != "" && c.Path != "" {
				paths[c.Name] = found
			}
		}
		v = s.check(line, readonly.Options{Rules: own.Rules, Paths: paths})
	}
	if !v.Accepted() {
		return job{}, bailey.Denied.New("the line is refused: "+v.Reason, v.Hint)
	}
	set := programSet{}
	if err := set.addProgram(interpreter, 0); err != nil {
		return job{}, err
	}
	unixSockets, err := set.addCommands(v.Commands)
	if err != nil {
		return job{}, err
	}
	j.Text, j.Limits.Programs, j.Limits.Unix = v.Text, set.files, unixSockets
	for _, c := range v.Commands {
		j.Limits.Network = j.Limits.Network || c.Network
	}
	return j, nil
}

func timeoutOf(r Request) time.Duration {
	if r.Timeout == 0 {
		return DefaultTimeout
	}
	return r.Timeout
}

// environment is that of every command: nothing from the client, from sshd or from a file of the account.
var environment = []string{
	"PATH=/usr/bin:/bin:/usr/sbin:/sbin",
	"HOME=/",
	"LANG=C.UTF-8",
	"TERM=dumb",
	"PAGER=cat",
	"SYSTEMD_PAGER=",
}

// enforceOption starts the second process, which limits itself and becomes the interpreter. Descriptor 3 has the job.
const enforceOption = "--enforce"

// enforceLimits never returns.
func (s shell) enforceLimits() {
	var j job
	f := os.NewFile(3, "job")
	err := json.NewDecoder(io.LimitReader(f, 1<<20)).Decode(&j)
	f.Close()
	if err == nil {
		err = os.Chdir("/")
	}
	if err == nil {
		err = s.limit(j.Limits, interpreter, []string{"sh", "-c", j.Text}, environment)
	}
	os.Exit(reportError(ExitFailed, err))
}

// errOutput is the cause of an end because of too much output.
var errOutput = errors.New("too much output")

// runLine starts the second process, copies its output, and returns the exit code. When it returns, no process of the line
// is left.
func (j job) runLine(r Request) int {
	runtime.LockOSThread() // the second process ends with the thread that started it
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return reportError(ExitFailed, err)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return reportError(ExitFailed, err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		return reportError(ExitFailed, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeoutOf(r))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	left := &atomic.Int64{}
	left.Store(r.Output)
	if r.Output == 0 {
		left.Store(DefaultOutput)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", enforceOption)
	cmd.Args[0], cmd.Env, cmd.ExtraFiles = Name, environment, []*os.File{in}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { endDescendants(cmd.Process.Pid); return nil }
	cmd.WaitDelay = time.Second
	cmd.Stdout, cmd.Stderr = &limitedWriter{os.Stdout, left, end}, &limitedWriter{os.Stderr, left, end}
	if err := cmd.Start(); err != nil {
		return reportError(ExitFailed, err)
	}
	in.Close()
	go func() { // a failed write means that the second process has ended
		out.Write(text)
		out.Close()
	}()
	go func() {
		waitForHangup(os.Stdout)
		end(errors.New("the connection closed"))
	}()
	err = cmd.Wait()
	endDescendants(0)
	switch {
	case errors.Is(context.Cause(ctx), errOutput):
		return reportError(ExitOutput, bailey.ToolFailed.New("the output was cut, and the command was ended",
			"read less, for example with tail or grep"))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return reportError(
			ExitTimeout,
			bailey.ToolFailed.Errorf(
				"run a shorter command",
				"the command ran longer than %v and was ended",
				timeoutOf(r),
			),
		)
	case cmd.ProcessState == nil:
		return reportError(ExitFailed, err)
	}
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// limitedWriter passes on bytes until the limit, which several writers share.
type limitedWriter struct {
	to   io.Writer
	left *atomic.Int64
	end  context.CancelCauseFunc
}

func (w *limitedWriter) Write(b []byte) (int, error) {
	n := int64(len(b))
	left := w.left.Add(-n)
	if left < 0 {
		n = max(0, n+left)
	}
	written, err := w.to.Write(b[:n])
	if err == nil && left < 0 {
		w.end(errOutput)
		err = errOutput
	}
	if err != nil {
		w.end(err) // the connection is closed
	}
	return written, err
}

// waitForHangup returns when the reader of f is gone. sshd closes its end when the client disconnects, also while a
// command prints nothing.
func waitForHangup(f *os.File) {
	for {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 {
			return
		}
	}
}

// endDescendants kills all processes of the line. A process whose parent ends becomes a child of this process, since it
// is a subreaper, so after a few rounds none is left. Another goroutine waits for the process other.
func endDescendants(other int) {
	for range 1000 {
		children := listDescendants(os.Getpid())
		if len(children) == 0 {
			return
		}
		for _, pid := range children {
			unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range children {
			if pid != other {
				unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// listDescendants returns the living processes below pid.
func listDescendants(pid int) (all []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil || isZombie(child) {
				continue
			}
			all = append(append(all, child), listDescendants(child)...)
		}
	}
	return all
}

func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// readStatus describes this host.
func (s shell) readStatus() Status {
	st := Status{
		Version:      buildVersion(),
		Architecture: runtime.GOARCH,
		LandlockABI:  jail.LandlockABI(),
		Groups:       []string{},
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		st.Kernel = unix.ByteSliceToString(u.Release[:])
		st.Host = unix.ByteSliceToString(u.Nodename[:])
	}
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok && st.System == "" {
				st.System = strings.Trim(strings.TrimSpace(value), `"'`)
			}
		}
	}
	groups, _ := os.Getgroups()
	for _, id := range append(groups, os.Getgid()) {
		name := strconv.Itoa(id)
		if g, err := user.LookupGroupId(name); err == nil {
			name = g.Name
		}
		st.Groups = append(st.Groups, name)
	}
	if own, err := readOwn(s.commands); err == nil {
		st.OwnCommands = own.Digest
	}
	return st
}

// buildVersion returns the version of this program.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return path.Base(info.Main.Version)
}
