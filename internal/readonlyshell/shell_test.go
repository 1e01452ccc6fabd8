//go:build linux

package readonlyshell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/jail"
	"bailey/internal/ktest"
	"bailey/internal/readonly"
)

// withoutVariable names the layers that a shell started by a test lacks.
const withoutVariable = "BAILEY_SHELL_WITHOUT"

// commandsVariable names the file of commands of the operator for a shell started by a test.
const commandsVariable = "BAILEY_SHELL_COMMANDS"

// TestMain makes the test program also the shell, as sshd and as the shell itself start it.
func TestMain(m *testing.M) {
	without, isLogin := os.LookupEnv(withoutVariable)
	s := shell{check: readonly.Check, limit: jail.HostReader.Exec, commands: os.Getenv(commandsVariable)}
	if strings.Contains(without, "validator") {
		s.check = func(line string, _ readonly.Options) readonly.Verdict { return readonly.Verdict{Text: line} }
	}
	if strings.Contains(without, "limits") {
		s.limit = func(_ jail.HostReader, program string, args, env []string) error {
			return syscall.Exec(program, args, env)
		}
	}
	switch {
	case len(os.Args) == 2 && os.Args[1] == enforceOption:
		s.enforceLimits()
	case isLogin:
		environment = append(environment, withoutVariable+"="+without)
		os.Exit(s.handleLogin(os.Args[1:], os.Getenv("SSH_ORIGINAL_COMMAND")))
	}
	os.Exit(m.Run())
}

// account is a user without an account and without rights.
const account = 31973

// login is a login that a test makes.
type login struct {
	line    string
	request Request
	without string // layers that are removed
	args    []string
	root    bool
	reaches bool // loopback of the test
	env     []string
}

// command returns the process of a login, by default in a namespace without a network.
func (l login) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{"-" + Name}, l.args...)
	if l.args == nil {
		cmd.Args = []string{"-" + Name, "-c", l.request.Command("/usr/local/bin/" + Name)}
	}
	cmd.Env = append([]string{"SSH_ORIGINAL_COMMAND=" + l.line, withoutVariable + "=" + l.without}, l.env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		if !l.reaches {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
		}
		if !l.root {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: account, Gid: account}
		}
	}
	return cmd
}

// result is what a login returned.
type result struct {
	out, log string
	code     int
}

func (l login) run(t *testing.T) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := l.command(ctx)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", l.line, err)
	}
	return result{out.String(), log.String(), cmd.ProcessState.ExitCode()}
}

// needed skips the test if the kernel lacks a layer.
func needed(t *testing.T) {
	t.Helper()
	ktest.Require(t, "landlock", "seccomp")
}

func TestReadOnlyLines(t *testing.T) {
	needed(t)
	for line, want := range map[string]string{
		"cat /etc/hostname | wc -l":                              "1\n",
		"find /etc -maxdepth 1 -name hostname -exec cat {} +":    readAll(t, "/etc/hostname"),
		"sort /etc/passwd | head -n 1 | cut -d: -f1":             "_apt\n",
		"cd /etc && pwd":                                         "/etc\n",
		"test -e /etc/passwd && echo yes":                        "yes\n",
		"printenv PATH HOME":                                     "/usr/bin:/bin:/usr/sbin:/sbin\n/\n",
		"ls /nonexistent || echo missing":                        "missing\n",
		"awk 'END { print NR > \"/dev/stderr\" }' /etc/hostname": "",
	} {
		if strings.HasPrefix(line, "sort") {
			first := strings.Split(readAll(t, "/etc/passwd"), "\n")
			least := first[0]
			for _, l := range first {
				if l != "" && l < least {
					least = l
				}
			}
			want, _, _ = strings.Cut(least, ":")
			want += "\n"
		}
		if r := (login{line: line}).run(t); r.out != want || r.code != 0 {
			t.Errorf("%s: %+v, want %q", line, r, want)
		}
	}
	if r := (login{line: "false"}).run(t); r.code != 1 {
		t.Errorf("the exit code of false is %d", r.code)
	}
	r := (login{line: StatusLine}).run(t)
	var s Status
	if err := json.Unmarshal([]byte(r.out), &s); err != nil || s.LandlockABI != jail.LandlockABI() || s.Kernel == "" ||
		s.System == "" {
		t.Errorf("%+v: %+v, %v", r, s, err)
	}
}

func readAll(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRefusedLogins checks that nothing runs without a line, without a valid force-command or as root.
func TestRefusedLogins(t *testing.T) {
	needed(t)
	shell := "/usr/local/bin/" + Name
	for says, l := range map[string]login{
		"interactive login":             {args: []string{}},
		"no interactive login":          {args: []string{"-c", shell}},
		"is refused: rm":                {line: "rm /tmp/x"},
		"does not start":                {line: "id", args: []string{"-c", "id"}},
		`"--approve=x" is not known`:    {line: "id", args: []string{"-c", shell + " --approve=x"}},
		"permits another line":          {line: "id", request: Request{Approved: Digest("uptime")}},
		"root must not run commands":    {line: "id", root: true},
		"contains a line break at byte": {line: "id\nid"},
	} {
		if l.root && os.Geteuid() != 0 {
			continue
		}
		if l.line == "" {
			l.env = []string{"SSH_ORIGINAL_COMMAND="}
		}
		if r := l.run(t); !strings.Contains(r.log, says) || r.out != "" ||
			r.code != ExitRefused && r.code != ExitFailed {
			t.Errorf("%q: %+v", says, r)
		}
	}
}

// TestBounds checks that time and output are bounded, and that no process is left, even one in another process group.
func TestBounds(t *testing.T) {
	needed(t)
	start := time.Now()
	r := login{line: "timeout 50 sleep 50 | cat", request: Request{Timeout: time.Second}}.run(t)
	if r.code != ExitTimeout || !strings.Contains(r.log, "longer than 1s") || time.Since(start) > 30*time.Second {
		t.Errorf("%+v after %v", r, time.Since(start))
	}
	r = login{line: "cat /dev/zero", request: Request{Output: 1000}}.run(t)
	if r.code != ExitOutput || len(r.out) != 1000 || !strings.Contains(r.log, "the output was cut") {
		t.Errorf("code %d, %d bytes, %s", r.code, len(r.out), r.log)
	}
}

// TestHangup checks that a command that prints nothing ends when its reader is gone.
func TestHangup(t *testing.T) {
	needed(t)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := login{line: "sleep 1000"}.command(t.Context())
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	in.Close()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		cmd.Process.Kill()
		t.Error("the command still runs")
	}
}

// attack is a line that must not have its effect although one layer is removed.
type attack struct{ name, line string }

// attacks lists lines that write, execute or connect. CANARY is a directory that every user may write, and PORT a port of
// loopback with a listener.
func attacks() []attack {
	return []attack{
		{"write a file", "echo x > CANARY/new"},
		{"append to a file", "echo x >> CANARY/old"},
		{"truncate a file", ": > CANARY/old"},
		{"remove a file", "/usr/bin/rm CANARY/old"},
		{"change a mode", "/usr/bin/chmod 777 CANARY/old"},
		{"set a time", "/usr/bin/touch -d 2001-01-01 CANARY/old"},
		{"make a link", "/usr/bin/ln -s /etc CANARY/new"},
		{"make a pipe", "/usr/bin/mkfifo CANARY/new"},
		{"write with sed", "sed -n 'w CANARY/new' /etc/hostname"},
		{"write with awk", `awk '{ print > "CANARY/new" }' /etc/hostname`},
		{"write with sort", "sort -o CANARY/new /etc/hostname"},
		{"edit in place", "sed -i s/o/x/ CANARY/old"},
		{"execute a program of the user", "CANARY/program"},
		{"execute with find", "find /etc/hostname -exec /usr/bin/cp {} CANARY/new ;"},
		{"execute with awk", `awk 'BEGIN { system("/usr/bin/cp /etc/hostname CANARY/new") }'`},
		{"execute with the linker", "/lib64/ld-linux-x86-64.so.2 /usr/bin/touch CANARY/new"},
		{"connect", "/usr/bin/curl -s telnet://127.0.0.1:PORT/"},
	}
}

// TestRemoval removes the validator and the limits, singly: each attack still has no effect. With both removed the
// effects are seen, so the test can see them.
func TestRemoval(t *testing.T) {
	needed(t)
	ktest.Require(t, "root")
	ktest.Long(t)
	seen := 0
	for _, without := range []string{"", "validator", "limits", "validator limits"} {
		for _, a := range attacks() {
			effect := tryAttack(t, a, without)
			if without == "validator limits" {
				if effect != "" {
					seen++
				}
				continue
			}
			if effect != "" {
				t.Errorf("without %q: %s: %s", without, a.name, effect)
			}
		}
	}
	if least := len(attacks()) - 2; seen < least { // curl and this linker may be missing
		t.Errorf("without both layers only %d of %d effects were seen", seen, len(attacks()))
	}
}

// tryAttack runs an attack in a fresh directory and returns its effect.
func tryAttack(t *testing.T, a attack, without string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "canary")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := "#!/bin/sh\necho x > " + dir + "/new\n"
	for name, text := range map[string]string{"old": "hello\n", "program": program} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o755), os.Chmod(file, 0o755), os.Chown(file, account, account)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o777), os.Chtimes(filepath.Join(dir, "old"), time.Unix(1e9, 0), time.Unix(1e9, 0))); err != nil {
		t.Fatal(err)
	}
	before := describe(t, dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan bool, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			conn.Close()
		}
		connected <- err == nil
	}()
	line := strings.ReplaceAll(a.line, "CANARY", dir)
	line = strings.ReplaceAll(line, "PORT", fmt.Sprint(listener.Addr().(*net.TCPAddr).Port))
	r := login{
		line:    line,
		without: without,
		request: Request{Timeout: 10 * time.Second},
		reaches: strings.Contains(a.line, "PORT"),
	}.run(
		t,
	)
	listener.Close()
	if <-connected {
		return fmt.Sprintf("connected (%+v)", r)
	}
	if after := describe(t, dir); after != before {
		return fmt.Sprintf("%s became %s (%+v)", before, after, r)
	}
	return ""
}

// describe returns the names, modes, times and contents of a directory.
func describe(t *testing.T, dir string) (text string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%s %v %d;", e.Name(), info.Mode(), info.Size())
		if e.Name() == "old" {
			text += info.ModTime().UTC().Format(time.RFC3339)
		}
		if info.Mode().IsRegular() {
			f, err := os.Open(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(f)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			text += string(content)
		}
	}
	return text
}
