//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"bailey"
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
	if err := ioctl(s.person, syscall.TIOCSWINSZ, unsafe.Pointer(&size)); err != nil {
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
		s.sees("time was up")
	})
}

// TestConsoleGivesTheTerminalBack checks that the terminal is restored, even after a panic.
func TestConsoleGivesTheTerminalBack(t *testing.T) {
	_, slave := ktest.PTY(t)
	defer slave.Close()
	before, _ := terminal.Get(slave)
	broken := func(do func(c *console)) (said any) {
		c, err := openConsole(slave, slave)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { said = recover() }()
		defer c.close()
		if now, _ := terminal.Get(slave); now == before {
			t.Error("the terminal is not raw")
		}
		do(c)
		return nil
	}
	if said := broken(func(c *console) { panic("boom") }); said != "boom" {
		t.Error(said)
	}
	if now, _ := terminal.Get(slave); now != before {
		t.Errorf("%+v, was %+v", now, before)
	}
	said := broken(func(c *console) {
		defer func() {
			if now, _ := terminal.Get(slave); now != before {
				t.Error("a goroutine that breaks leaves the terminal raw")
			}
		}()
		c.guard(func() { panic("boom") })
	})
	if said != "boom" {
		t.Error(said)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := openConsole(null, slave); err == nil {
		t.Error("a terminal was made for what is none")
	}
}

func TestSizes(t *testing.T) {
	for word, want := range map[string]int64{"1M": 1 << 20, "512M": 512 << 20, "2G": 2 << 30, "1048576": 1 << 20, "2048K": 2 << 20, "4294967296G": 1 << 62} {
		if got, err := parseSize(word); err != nil || got != want {
			t.Errorf("%s: %d, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "M", "0", "1K", "1023K", "-1G", "1.5G", "1 G", "1GG", "1m", "0x1M", "+1M", "1_0M", "9223372036854775808", "4294967297G", "99999999999999999999G"} {
		if got, err := parseSize(word); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%q is %d, %v", word, got, err)
		}
	}
}

func FuzzSize(f *testing.F) {
	f.Add("512M")
	f.Add("4294967297G")
	f.Fuzz(func(t *testing.T, word string) {
		if n, err := parseSize(word); err == nil && (n < 1<<20 || n > 1<<62) {
			t.Errorf("%q is %d", word, n)
		}
	})
}

// TestPassed checks that a variable is passed by name or as NAME=VALUE. If a named variable is not set, it is an error.
func TestPassed(t *testing.T) {
	here := map[string]string{"A": "1", "EMPTY": "", "TERM": "xterm"}
	look := func(name string) (string, bool) { v, ok := here[name]; return v, ok }
	got, err := passed([]string{"A", "EMPTY", "B=x=y", "A=2"}, look)
	if err != nil || !slices.Equal(got, []string{"A=1", "EMPTY=", "B=x=y", "A=2"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := passed([]string{"NONE"}, look); !errors.Is(err, bailey.Invalid) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := passed(nil, look); err != nil || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTerminalsName checks that TERM is not passed on if it could be a path to another file.
func TestTerminalsName(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../x", "x y", "x\n", "é", "x\x00", strings.Repeat("x", 65), "-\x1b[2J"} {
		var job bailey.Job
		forTerminal(&job, name)
		if len(job.Env) != 0 || slices.ContainsFunc(job.Read, func(p string) bool { return strings.Contains(p, "terminfo") }) {
			t.Errorf("%q: %q %q", name, job.Env, job.Read)
		}
	}
	job := bailey.Job{Timeout: time.Second}
	forTerminal(&job, "xterm-256color")
	if !slices.Equal(job.Env, []string{"TERM=xterm-256color"}) || !slices.Contains(job.Read, "/lib/terminfo/x/xterm-256color") || job.Timeout != time.Second {
		t.Errorf("%+v", job)
	}
	job = bailey.Job{Env: []string{"TERM=mine"}}
	forTerminal(&job, "xterm")
	if !slices.Equal(job.Env, []string{"TERM=mine"}) || job.Timeout < 24*time.Hour {
		t.Errorf("%+v", job)
	}
}

// TestBanner checks that the banner is one line, whatever names it contains.
func TestBanner(t *testing.T) {
	for _, c := range []struct {
		job  bailey.Job
		cage bailey.Cage
		want string
	}{
		{bailey.Job{Command: "id"}, bailey.Cage{Kind: "full"}, ""},
		{bailey.Job{Command: "id"}, bailey.Cage{Kind: "landlock", Lesser: "no\nnamespaces"}, "bailey: cage landlock, 0 layers; not the full cage: no\\nnamespaces\n"},
		{bailey.Job{Command: "/bin/bash", TTY: true}, bailey.Cage{Kind: "full", Layers: make([]string, 20)},
			"bailey: cage full, 20 layers; bound: nothing of yours; only bash may run, --exec ls adds more; exit ends it\n"},
		{bailey.Job{Command: "sh", TTY: true, Exec: []string{"/bin/ls"}, Places: []bailey.Place{{Path: "/a"}, {Path: "/\x1b[2J\n", Write: true}}}, bailey.Cage{Kind: "full"},
			"bailey: cage full, 0 layers; bound: /a (read-only), /\\x1b[2J\\n (writable); sh, ls may run, --exec adds more; exit ends it\n"},
	} {
		var out strings.Builder
		(&app{stderr: &out}).banner(c.job, c.cage)
		if out.String() != c.want {
			t.Errorf("%q\nwant\n%q", &out, c.want)
		}
	}
}

// TestLayersHaveTheirWords checks that `jail explain` describes the purpose of each isolation layer on this host.
func TestLayersHaveTheirWords(t *testing.T) {
	ktest.Require(t, "userns", "netns")
	j, err := openJail(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	run, err := j.Plan(t.Context(), bailey.Job{Command: "true", NeedsProc: true})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	cage := run.Cage()
	for _, name := range cage.Layers {
		if layerWords[name] == "" {
			t.Errorf("no word for %s; there are %v", name, slices.Sorted(maps.Keys(layerWords)))
		}
	}
	var out strings.Builder
	p := cagePlan{Cage: cage}
	for i, line := range strings.Split(strings.TrimSuffix(cage.Plan, "\n"), "\n") {
		p.Plan = append(p.Plan, planStep{cage.PlanLayers[i], line})
	}
	(&app{stdout: &out}).explained(p)
	for i := range p.Plan {
		if n := strings.Count(out.String(), fmt.Sprintf("\n  %3d  ", i+1)); n != 1 {
			t.Errorf("step %d stands there %d times", i+1, n)
		}
	}
}

// TestExplainWarm checks that the steps of a warm cage are grouped by time and process. A step of the plan must appear
// as in the plan, and a system call with the line that it implements.
func TestExplainWarm(t *testing.T) {
	var out strings.Builder
	a := &app{stdout: &out}
	p := cagePlan{Cage: bailey.Cage{Kind: "full", PlanDigest: "d1"}, Plan: []planStep{{"", "head"}, {"mountns", "private"}, {"keyring", "keyring"}},
		Warm: []bailey.WarmStep{{When: "tool", Line: 3, Text: "keyctl 1"}, {When: "init", Text: "setsid"}, {When: "once", Line: 2}, {When: "call", Line: 4}}}
	a.warmed(p)
	want := "cage full, plan d1\n" + warmWords[0].words + "\n    2  private\n" + warmWords[1].words + "\n    4  \n" +
		warmWords[2].words + "\n       setsid\n" + warmWords[3].words + "\n    3  keyctl 1\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	if a.warmed(cagePlan{}); !strings.Contains(out.String(), "no helper serves") {
		t.Errorf("%q", out.String())
	}
}
