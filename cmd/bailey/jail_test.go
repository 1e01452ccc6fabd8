//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"bailey/internal/cli/direct"
	"bailey/internal/ktest"
	"bailey/internal/terminal"
)

// shell is a `bailey jail run` on a terminal, with a simulated user.
type shell struct {
	*ktest.Screen
	t      *testing.T
	person *os.File // the master of the user's terminal
	number int      // of that terminal
	pid    int
	code   chan int
}

// shell starts a shell in a cage. args are inserted between run and --.
func (y *yard) shell(t *testing.T, args ...string) *shell {
	t.Helper()
	ktest.Require(t, "bash")
	master, slave := ktest.PTY(t)
	st, err := slave.Stat()
	if err != nil {
		t.Fatal(err)
	}
	cmd := y.command(y.program, slices.Concat([]string{"jail", "run"}, args, []string{"--", "bash", "--norc"})...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Dir = y.repo
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{Screen: ktest.NewScreen(), t: t, person: master, pid: cmd.Process.Pid, code: make(chan int, 1)}
	s.number = int(st.Sys().(*syscall.Stat_t).Rdev & 0xff)
	// The slave stays open so that the mode of the terminal can be read at the end.
	t.Cleanup(func() { slave.Close(); cmd.Process.Kill() })
	go s.Watch(master)
	go func() { cmd.Wait(); s.code <- code(cmd) }()
	s.sees("exit ends it")
	return s
}

// sees waits until the screen matches the pattern, and returns the last group of the match.
func (s *shell) sees(form string) string {
	s.t.Helper()
	re := regexp.MustCompile(form)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if m := re.FindStringSubmatch(s.Text()); m != nil {
			return m[len(m)-1]
		}
	}
	s.t.Fatalf("the screen never showed %s:\n%s", form, s.Text())
	return ""
}

// says types a line at the prompt and waits for its echo, because a signal key discards unread input.
func (s *shell) says(line string) {
	s.t.Helper()
	s.sees(`\$ $`)
	s.types(line + "\n")
	s.sees(regexp.QuoteMeta(line) + `\r\n`)
}

// presses repeats a key until its effect appears, because a key that is typed before the program starts does not reach
// it.
func (s *shell) presses(key, form string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !regexp.MustCompile(form).MatchString(s.Text()); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q never showed %s:\n%s", key, form, s.Text())
		}
		s.types(key)
	}
}

func (s *shell) types(keys string) { s.person.WriteString(keys) }

// ends waits for the exit code, and checks that the terminal has its original mode.
func (s *shell) ends(want int) {
	s.t.Helper()
	select {
	case got := <-s.code:
		if got != want {
			s.t.Errorf("ended with %d, want %d\n%s", got, want, s.Text())
		}
	case <-time.After(patience):
		s.t.Fatalf("never ended\n%s", s.Text())
	}
	if at, ok := terminal.Get(s.person); !ok || at.Lflag&(syscall.ICANON|syscall.ECHO|syscall.ISIG) != syscall.ICANON|syscall.ECHO|syscall.ISIG || at.Oflag&syscall.OPOST == 0 {
		s.t.Errorf("the terminal is not left as it was: %+v", at)
	}
}

// TestShellInACage checks a shell in a cage as a user sees it.
func TestShellInACage(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "sleep", "stty", "stat", "id")
	y := newYard(t)
	s := y.shell(t, "--ro", ".", "--proc", "--exec", "id", "--exec", "sleep", "--exec", "stty", "--exec", "stat")
	s.sees(`bailey: cage full, [0-9]+ layers; bound: ` + regexp.QuoteMeta(y.repo) + ` \(read-only\); bash, id, sleep, stty, stat may run`)
	s.says("id -u; ls; pwd; echo $TERM $HOME")
	s.sees(`[\r\n]1000\r\n`)
	s.sees(`ls: command not found`)
	s.sees(`[\r\n]` + regexp.QuoteMeta(y.repo) + `\r\n`)
	s.sees(`xterm /home/bailey`)

	s.says("sleep 100")
	s.presses("\x1a", `Stopped +sleep 100`) // Ctrl-Z
	s.says("fg")
	s.sees(`fg\r\n[^\n]*sleep 100\r\n`)
	s.presses("\x03", `fg\r\n[\s\S]*\$ $`) // Ctrl-C, until there is a prompt
	s.says("echo ended by $?")
	s.sees(`ended by 130`)

	size := [4]uint16{31, 117}
	if err := direct.Ioctl(s.person, syscall.TIOCSWINSZ, unsafe.Pointer(&size)); err != nil {
		t.Fatal(err)
	}
	s.types("until [ \"$(stty size)\" = '31 117' ]; do sleep 0.1; done; echo resized $((40+3))\n")
	s.sees(`resized 43`)

	// The tool must have another terminal than the user.
	s.types("stat -L -c 'at %T.' /proc/self/fd/0\n")
	inside, err := strconv.ParseUint(s.sees(`at ([0-9a-f]+)\.`), 16, 32)
	if err != nil || int(inside) == s.number {
		t.Errorf("the tool is on terminal %d, the person on %d (%v)", inside, s.number, err)
	}
	s.types("exit 7\n")
	s.ends(7)
	ledger, err := os.ReadFile(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if err != nil || !regexp.MustCompile(`"kind":"jail.run","data":\{("absent":\["cgroup"\],)?"argv":\["bash","--norc"\].*"operator":"terminal".*"tty":true`).Match(ledger) {
		t.Errorf("the ledger does not say so: %v\n%s", err, ledger)
	}
}

// TestShellIsEnded checks that however the shell ends, the terminal is restored and no process of the cage survives.
func TestShellIsEnded(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	y.must(y.program, "capabilities", "list") // starts the gateway, which would otherwise be a child of the shell
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGHUP: 129, syscall.SIGQUIT: 131} {
		t.Run(sig.String(), func(t *testing.T) {
			s := y.shell(t)
			s.says("echo $((40+2))")
			s.sees(`[\r\n]42\r\n`)
			inside := below(t, s.pid)
			if len(inside) < 2 {
				t.Errorf("only %v run", inside)
			}
			syscall.Kill(s.pid, sig)
			s.ends(want)
			if left := survivors(t, inside); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	t.Run("hung up", func(t *testing.T) {
		s := y.shell(t, "--timeout", "1h")
		inside := below(t, s.pid)
		s.person.Close()
		select {
		case <-s.code:
		case <-time.After(patience):
			t.Fatal("never ended")
		}
		if left := survivors(t, inside); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	t.Run("time is up", func(t *testing.T) {
		s := y.shell(t, "--timeout", "1s")
		s.ends(137) // an interactive bash ignores SIGTERM
		s.sees("timed out")
	})
}
