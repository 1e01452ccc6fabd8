//go:build linux

package day

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// user is a person on whose machine Bailey has just been installed.
type user struct {
	t             *testing.T
	name          string
	home, project string
	who           *syscall.Credential // nil: the user that runs the tests
	env           []string
}

// newUser creates an account if the tests run as root, and otherwise only a home directory.
func newUser(t *testing.T) *user {
	t.Helper()
	ktest.Require(t, "userns", "netns", "git", "go", "python3")
	u := &user{t: t}
	if os.Geteuid() == 0 {
		ktest.Require(t, "useradd")
		u.enrol()
	} else {
		u.name, u.home = "me", filepath.Join(tempDir(t), "me")
		if err := os.Mkdir(u.home, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	u.project = filepath.Join(u.home, "project")
	u.env = append(u.env, "HOME="+u.home, "USER="+u.name, "LOGNAME="+u.name, "LC_ALL=C.UTF-8", "PATH="+u.path())
	t.Cleanup(func() { u.kill(syscall.SIGTERM) })
	return u
}

// enrol adds an account with a home, and removes both at the end.
func (u *user) enrol() {
	u.name = fmt.Sprintf("day%d", os.Getpid())
	if out, err := exec.Command("useradd", "--create-home", "--shell", "/bin/sh", u.name).CombinedOutput(); err != nil {
		u.t.Fatalf("useradd: %v: %s", err, out)
	}
	u.t.Cleanup(func() {
		if out, err := exec.Command("userdel", "--force", "--remove", u.name).CombinedOutput(); err != nil {
			u.t.Logf("userdel: %v: %s", err, out)
		}
	})
	account, err := osuser.Lookup(u.name)
	if err != nil {
		u.t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(account.Uid, 10, 32)
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	u.home, u.who = account.HomeDir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// path returns the directories of the user's own programs, of the system's, and of node and claude.
func (u *user) path() string {
	dirs := []string{filepath.Join(u.home, "go", "bin"), "/usr/local/bin", "/usr/bin", "/bin"}
	for _, program := range []string{"node", "claude"} {
		if found, err := exec.LookPath(program); err == nil {
			dirs = append([]string{filepath.Dir(found)}, dirs...)
		}
	}
	return strings.Join(dirs, ":")
}

func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// install builds the program as the README says. overlay names a file for go install -overlay, or is "".
func (u *user) install(overlay string) {
	u.t.Helper()
	bin := filepath.Join(u.home, "go", "bin")
	u.must(u.home, "mkdir", "-p", bin)
	u.build(overlay, bin, "./cmd/bailey")
}

// build runs go install as the user that runs the tests, into a directory of u.
func (u *user) build(overlay, bin, what string) {
	u.t.Helper()
	// the same flags as the guides of cmd/bailey, so that both share compiled packages
	args := []string{"install", "-trimpath", "-buildvcs=false"}
	if overlay != "" {
		args = append(args, "-overlay", overlay, "-ldflags=-s -w")
	}
	args = append(args, what)
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		u.t.Fatalf("go install %s: %v\n%s", what, err, out)
	}
}

// command returns a command of the user in one of the user's directories.
func (u *user) command(dir, name string, args ...string) *exec.Cmd {
	for _, at := range filepath.SplitList(u.path()) { // the PATH of u, not that of the tests
		if full := filepath.Join(at, name); !strings.Contains(name, "/") {
			if _, err := os.Stat(full); err == nil {
				name = full
			}
		}
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append([]string(nil), u.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.who}
	return cmd
}

// slowStart is printed if a gateway takes long to start. It is not part of an answer.
const slowStart = "bailey: starting the gateway; it verifies its ledger first\n"

// does runs a command and returns its output and its exit code.
func (u *user) does(dir, name string, args ...string) (string, int) {
	u.t.Helper()
	cmd := u.command(dir, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil {
		u.t.Fatalf("%s %v: %v", name, args, err)
	}
	return strings.ReplaceAll(out.String(), slowStart, ""), cmd.ProcessState.ExitCode()
}

// must runs a command that must succeed.
func (u *user) must(dir, name string, args ...string) string {
	u.t.Helper()
	out, code := u.does(dir, name, args...)
	if code != 0 {
		u.t.Fatalf("%s %v: exit code %d\n%s", name, args, code, out)
	}
	return out
}

// write creates a file of the user, with its directories.
func (u *user) write(path, text string) {
	u.t.Helper()
	u.must(u.home, "mkdir", "-p", filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
	if u.who != nil {
		if err := os.Chown(path, int(u.who.Uid), int(u.who.Gid)); err != nil {
			u.t.Fatal(err)
		}
	}
}

// give creates a file in the user's home and returns its path.
func (u *user) give(name, text string) string {
	path := filepath.Join(u.home, name)
	u.write(path, text)
	return path
}

func (u *user) ledger() string { return filepath.Join(u.home, ".bailey", "ledger") }

// gateway returns the process ID of the running gateway, found as docs/operations.md says, or 0.
func (u *user) gateway() int {
	text, err := os.ReadFile(filepath.Join(u.ledger(), "lock"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !alive(pid) {
		return 0
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.HasPrefix(string(line), "bailey\x00gateway\x00") {
		return 0
	}
	return pid
}

// alive reports whether a process exists and is not a zombie (proc(5), state Z).
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(stat), ") ")
	return err == nil && ok && !strings.HasPrefix(rest, "Z")
}

// kill ends the gateway, if one runs, and waits for its end. It reports whether one ran.
func (u *user) kill(with syscall.Signal) bool {
	u.t.Helper()
	pid := u.gateway()
	if pid == 0 {
		return false
	}
	if err := syscall.Kill(pid, with); err != nil {
		u.t.Errorf("killing the gateway: %v", err)
	}
	await(u.t, "the gateway's end", func() bool { return !alive(pid) })
	return true
}

// await waits until a condition holds. If that takes longer than patience, the test fails.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("waited in vain for %s", what)
			return
		}
	}
}
