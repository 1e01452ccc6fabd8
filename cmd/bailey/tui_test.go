//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// window is a terminal in tmux that runs a program.
type window struct {
	y      *yard
	socket string
	raw    string // a file with all output bytes
}

// window starts bailey in a terminal of 100 by 30 as soon as all its output is captured. When bailey ends, the window
// shows the exit code.
func (y *yard) window(env string, args ...string) *window {
	y.t.Helper()
	ktest.Require(y.t, "tmux")
	dir, err := os.MkdirTemp("", "tui") // the path of a socket must be short (unix(7))
	if err != nil {
		y.t.Fatal(err)
	}
	w := &window{y: y, socket: filepath.Join(dir, "s"), raw: filepath.Join(dir, "raw")}
	y.t.Cleanup(func() {
		y.command("tmux", "-S", w.socket, "kill-server").Run()
		os.RemoveAll(dir)
	})
	run := fmt.Sprintf("trap : INT; sleep 0.2; cd '%s'; %s '%s' %s; echo left with $?; exec sleep 600", y.repo, env, y.program, strings.Join(args, " "))
	w.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "sh", "-c", run)
	w.tmux("pipe-pane", "cat >"+w.raw)
	return w
}

func (w *window) tmux(args ...string) string {
	w.y.t.Helper()
	return w.y.must("env", append([]string{"LC_ALL=C.UTF-8", "tmux", "-u", "-S", w.socket}, args...)...)
}

func (w *window) text() string { return w.tmux("capture-pane", "-p") }

// sees waits until the window shows all words.
func (w *window) sees(words ...string) {
	w.y.t.Helper()
	w.until(fmt.Sprintf("%q", words), func(text string) bool {
		for _, word := range words {
			if !strings.Contains(text, word) {
				return false
			}
		}
		return true
	})
}

func (w *window) misses(word string) {
	w.y.t.Helper()
	w.until("no "+word, func(text string) bool { return !strings.Contains(text, word) })
}

func (w *window) until(what string, ok func(text string) bool) {
	w.y.t.Helper()
	var text string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if text = w.text(); ok(text) {
			return
		}
	}
	w.y.t.Fatalf("waited for %s in\n%s", what, text)
}

func (w *window) keys(names ...string) {
	w.y.t.Helper()
	w.tmux(append([]string{"send-keys"}, names...)...)
}

// answer opens the dialog and presses a key after the initial time in which keys are ignored. That time started before
// the dialog was visible.
func (w *window) answer(open, asks, key string) {
	w.y.t.Helper()
	w.keys(open)
	w.sees(asks, "▸")
	time.Sleep(400 * time.Millisecond)
	w.keys(key)
}

// asks applies a policy that requires approval for system.date.
func (y *yard) asks(rule string) {
	y.t.Helper()
	rules := filepath.Join(filepath.Dir(y.repo), "rules")
	y.must(y.program, "policy", "init", rules)
	if err := os.WriteFile(filepath.Join(rules, "dates.cedar"), []byte(rule), 0o600); err != nil {
		y.t.Fatal(err)
	}
	y.operator("policy", "apply", rules, "--yes")
}

// operator runs a command with operator rights.
func (y *yard) operator(args ...string) {
	y.t.Helper()
	cmd := y.command(y.program, args...)
	cmd.Env = append(cmd.Env, "BAILEY_OPERATOR=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		y.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// open returns the number of open questions.
func (y *yard) open() int {
	y.t.Helper()
	return strings.Count(y.must(y.program, "approvals", "list"), "system.date")
}

// TestScreen checks, in a real terminal, that a question rings the bell and is shown completely. Escape and Enter must
// not grant it. After y the call continues.
func TestScreen(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	y.asks(asksForDates)
	w := y.window("", "tui")
	w.sees("[1 inbox]", "Nothing waits for you")
	call, out := y.run(y.repo, "run", "--wait", "system.date")
	w.sees("[1 inbox (1)]", "▸ system.date  by local", "new: system.date")
	w.keys("Enter")
	w.sees("a person has to know what day it is")
	w.misses("argument 1   --utc")
	w.keys("m")
	w.sees("argument 1   --utc", "dates-ask: a person has to know what day it is", "expires      in")
	for _, key := range []string{"Escape", "Enter", "n"} {
		w.answer("g", "Grant system.date to local?", key)
		w.misses("Grant system.date to local?")
		if y.open() != 1 {
			t.Fatalf("%s answered:\n%s", key, w.text())
		}
	}
	for _, size := range [][2]string{{"12", "4"}, {"250", "60"}, {"100", "30"}} {
		w.tmux("resize-window", "-x", size[0], "-y", size[1])
	}
	w.sees("argument 1   --utc")
	w.answer("g", "Grant system.date to local?", "y")
	w.sees("approved", "Nothing waits for you")
	if err := call.Wait(); err != nil || !strings.Contains(out.String(), "\n20") {
		t.Errorf("%v, %s", err, out)
	}
	w.keys("3")
	w.sees("▸", "ok", "system.date")
	w.keys("v")
	w.sees("The ledger is valid", "not proved:")
	w.keys("Escape") // alone: with another key directly after it, it is read as that key with Alt
	w.misses("The ledger is valid")
	w.keys("5")
	w.sees("Calls are allowed")
	w.keys("s")
	w.sees("Stop everything: for which reason?")
	w.keys("o", "f", "f", "Enter")
	w.sees("Stop everything now?")
	time.Sleep(400 * time.Millisecond)
	w.keys("y")
	w.sees("STOPPED everything is stopped since")
	w.answer("u", "Allow calls again?", "y")
	w.misses("STOPPED")
	w.keys("q")
	w.sees("left with 0")
	raw, err := os.ReadFile(w.raw)
	if bells := strings.Count(withoutTitles(string(raw)), "\a"); err != nil || bells != 1 {
		t.Errorf("%d bells, %v", bells, err)
	}
}

// TestScreenDenies checks that a repeated question is compared with the previous one in the ledger, and that a denial
// gives the reason.
func TestScreenDenies(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	y.asks(asksForDates)
	ask := func() (*exec.Cmd, *bytes.Buffer) {
		call, out := y.run(y.repo, "run", "--wait", "system.date")
		y.await("the call to ask", func() bool { return y.open() == 1 })
		return call, out
	}
	call, out := ask()
	id, _, _ := strings.Cut(y.must(y.program, "approvals", "list"), " ")
	y.operator("approve", id, "--yes")
	if err := call.Wait(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	call, out = ask()
	w := y.window("", "tui")
	w.sees("[1 inbox (1)]", "▸ system.date")
	w.keys("Enter")
	w.sees("Since the last question about it, "+id, "only the time")
	w.keys("m")
	w.sees("argument 1   --utc")
	w.keys("d")
	w.sees("Reason for the denial? The agent is told.")
	w.keys("too", "Space", "late", "Enter")
	w.sees("Deny system.date to local?", "Because: too late")
	time.Sleep(400 * time.Millisecond)
	w.keys("y")
	w.sees("denied", "Nothing waits for you")
	if err := call.Wait(); err == nil || !strings.Contains(out.String(), "too late") {
		t.Errorf("%v, %s", err, out)
	}
	w.keys("q")
	w.sees("left with 0")
}

// withoutTitles removes the terminal commands that end with a BEL character (OSC of xterm).
func withoutTitles(raw string) string {
	return regexp.MustCompile("\x1b\\][^\a\x1b]*\a").ReplaceAllString(raw, "")
}

// needsKeygen requires ssh-keygen, which creates no key if the user has no account entry.
func needsKeygen(t *testing.T) {
	t.Helper()
	ktest.Require(t, "ssh-keygen", "account")
}

// TestScreenSigns checks a key with a passphrase. ssh-keygen must ask for the passphrase in place of the screen.
func TestScreenSigns(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	needsKeygen(t)
	y := newYard(t)
	y.asks(strings.ReplaceAll(asksForDates, "count=1", "role=sre,count=1"))
	key := filepath.Join(filepath.Dir(y.repo), "ada")
	y.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-C", "ada", "-f", key)
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf("approvers:\n  - name: ada\n    key: %s\n    roles: [sre]\n", strings.Join(strings.Fields(string(public))[:2], " "))
	if err := os.WriteFile(filepath.Join(string(y.home), "settings.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	y.operator("init", "--apply", "--yes")
	call, out := y.run(y.repo, "run", "--wait", "system.date")
	w := y.window("NO_COLOR=yes", "tui", "--key", key)
	w.sees("[1 inbox (1)]", "system.date")
	w.keys("Enter")
	w.sees("each with sre")
	asked := func(n int) { // earlier prompts are still visible
		t.Helper()
		w.until(fmt.Sprintf("%d prompts", n), func(text string) bool { return strings.Count(text, "Enter passphrase") == n })
	}
	w.answer("g", "You sign with", "y")
	asked(1)
	w.keys("C-c") // ends only ssh-keygen
	w.sees("ssh-keygen could not sign", "[1 inbox (1)]")
	w.answer("g", "You sign with", "y")
	asked(2)
	w.keys("wrong", "Enter")
	w.sees("ssh-keygen could not sign", "[1 inbox (1)]")
	if y.open() != 1 {
		t.Fatal("granted without a signature")
	}
	w.answer("g", "You sign with", "y")
	asked(3)
	w.keys("open", "Space", "sesame", "Enter")
	w.sees("approved")
	if err := call.Wait(); err != nil || !strings.Contains(out.String(), "\n20") {
		t.Errorf("%v, %s", err, out)
	}
	if colored := regexp.MustCompile("\x1b\\[[0-9;]*[349][0-7][;m]").FindString(w.tmux("capture-pane", "-p", "-e")); colored != "" {
		t.Errorf("NO_COLOR, and there is %q", colored)
	}
	w.keys("C-c")
	w.sees("left with 0")
}

// program returns the bailey process in the window.
func (w *window) program() process {
	w.y.t.Helper()
	shell, err := strconv.Atoi(strings.TrimSpace(w.tmux("list-panes", "-F", "#{pane_pid}")))
	if err != nil {
		w.y.t.Fatal(err)
	}
	for _, p := range below(w.y.t, shell) {
		if p.name == "bailey" {
			return p
		}
	}
	w.y.t.Fatal("no bailey in the window")
	return process{}
}

// TestScreenEnds checks that after a signal the terminal is restored, and that the program ends if its terminal
// disappears.
func TestScreenEnds(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	w := y.window("", "tui")
	w.sees("[1 inbox]")
	if err := syscall.Kill(w.program().pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.sees("left with 143")
	w.misses("[1 inbox]")
	w = y.window("", "tui")
	w.sees("[1 inbox]")
	program := w.program()
	w.tmux("kill-server")
	y.await("the program to end with its terminal", func() bool { return len(survivors(t, []process{program})) == 0 })
}

// TestScreenWithoutGateway checks that the end of the gateway is shown, and that r starts another one.
func TestScreenWithoutGateway(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	w := y.window("", "tui")
	w.sees("[1 inbox]")
	y.must(y.program, "gateway", "stop")
	w.sees("no gateway answers")
	w.keys("r")
	w.misses("no gateway answers")
	y.gateway()
}
