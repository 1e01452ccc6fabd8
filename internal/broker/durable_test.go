//go:build linux || darwin

package broker

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// Environment variables for a broker in a separate process.
const (
	childDir  = "BROKER_TEST_DIR"
	childStep = "BROKER_TEST_STEP"
	childSock = "BROKER_TEST_SOCKET"
)

// TestMain makes this test binary a broker, which kills itself at a given step, if childDir is set.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := New(Config{Dir: dir, Socket: os.Getenv(childSock), Program: "child", Ready: func(string) { fmt.Println("ready") }, Step: func(step string) {
		if step == os.Getenv(childStep) {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}})
	if err == nil {
		err = s.Run(context.Background())
	}
	fmt.Println(err)
	os.Exit(1)
}

// child starts a broker in a separate process and waits until it serves. If as is set, the process runs as that user.
func child(t *testing.T, dir, step string, as *syscall.Credential, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childDir+"="+dir, childStep+"="+step), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if word, err := bufio.NewReader(out).ReadString('\n'); word != "ready\n" {
		t.Fatalf("the broker says %q, %v", word, err)
	}
	return cmd
}

// TestLentOnceAcrossKills checks that an answer is used at most once, whenever the broker is killed. If nothing was
// recorded, the answer must stay usable.
func TestLentOnceAcrossKills(t *testing.T) {
	for step, want := range map[string]struct{ first, later int }{
		"mint": {0, 1}, "write": {0, 1}, // nothing is on the disk: the answer is still usable after the restart
		"sync": {0, 0}, // the line is written and the value was not sent, but the broker cannot know that
		"send": {0, 0},
		"sent": {1, 0},
	} {
		t.Run(step, func(t *testing.T) {
			h := newHouse(t, table())
			text := textOf(h.question("one"))
			l := loanOf(text, []string{ada.sign(text)}, "one")
			h.end()
			got := func() int {
				lease, err := h.client.Lend(t.Context(), l)
				if err != nil {
					return 0
				}
				if lease.Secrets[0].Reveal() != value {
					t.Error("another value")
				}
				lease.Return()
				return 1
			}
			cmd := child(t, h.dir, step, nil)
			first := got()
			// the step was never reached
			giveUp := time.AfterFunc(20*time.Second, func() { cmd.Process.Signal(syscall.SIGTERM) })
			defer giveUp.Stop()
			if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("it was to be killed: %v", err)
			}
			child(t, h.dir, "", nil)
			if later := got() + got(); first != want.first || later != want.later {
				t.Errorf("killed at %s: lent %d, and after the restart %d; want %d, %d", step, first, later, want.first, want.later)
			}
			if j := h.journal(); strings.Contains(j, `"lend"`) && want.later == 0 && !strings.Contains(j, "the broker stopped first") {
				t.Errorf("the loan has no end:\n%s", j)
			}
		})
	}
}

// TestTornTail checks that an incomplete last line is cut off and that complete lines before it count. Any other
// invalid journal must be refused.
func TestTornTail(t *testing.T) {
	h := newHouse(t, table())
	text := textOf(h.question("one"))
	l := loanOf(text, []string{ada.sign(text)}, "one")
	h.lend(l).Return()
	h.end()
	whole := h.journal()
	put := func(text string) {
		if err := os.WriteFile(filepath.Join(h.dir, journalName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tail := range []string{`{"at":"2026`, "\x00\x00\x00", "x"} {
		put(whole + tail)
		h.start(false)
		h.refused("used before the crash", l, bailey.Denied, "was used")
		h.end()
		if strings.Contains(h.journal(), tail+"{") || !strings.HasPrefix(h.journal(), whole) {
			t.Error("the torn line is there, or what was before it is not")
		}
	}
	for name, bad := range map[string]string{
		"no JSON": "x\n", "empty": "\n", "an unknown key": `{"event":"end","x":1}` + "\n", "an unknown event": `{"event":"forget"}` + "\n", "zeros": "\x00\x00\n",
	} {
		put(bad + whole)
		if s, err := New(h.config); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				s.Close()
			}
		}
	}
}

// TestHostileDirectory checks that a directory, journal, lock, table or file that other users could have created or can
// access is refused.
func TestHostileDirectory(t *testing.T) {
	text := strings.Replace(table(), `free: {literal: "`+value+`"`, `free: {file: secret`, 1)
	secret := func(h *house) string { return filepath.Join(h.dir, "secret") }
	in := func(h *house, name string) string { return filepath.Join(h.dir, name) }
	for name, spoil := range map[string]func(h *house) error{
		"wide directory":    func(h *house) error { return os.Chmod(h.dir, 0o750) },
		"wide journal":      func(h *house) error { return os.Chmod(in(h, journalName), 0o640) },
		"journal is a link": func(h *house) error { return relink(in(h, journalName)) },
		"journal has a second name": func(h *house) error {
			return os.Link(in(h, journalName), in(h, "second"))
		},
		"journal is a pipe": func(h *house) error {
			os.Remove(in(h, journalName))
			return syscall.Mkfifo(in(h, journalName), 0o600)
		},
		"lock is a link":  func(h *house) error { return relink(in(h, lockName)) },
		"wide table":      func(h *house) error { return os.Chmod(in(h, TableName), 0o644) },
		"table is a link": func(h *house) error { return relink(in(h, TableName)) },
		"table is gone":   func(h *house) error { return os.Remove(in(h, TableName)) },
		"table changed":   func(h *house) error { h.write(text + "\n# more\n"); return nil },
		"socket's directory is anybody's": func(h *house) error {
			h.config.Socket = filepath.Join(t.TempDir(), "s")
			return os.Chmod(filepath.Dir(h.config.Socket), 0o777)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, text)
			h.end()
			if err := spoil(h); err != nil {
				t.Fatal(err)
			}
			s, err := New(h.config)
			if err == nil {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				s.Ready = func(string) { t.Error("it serves"); cancel() }
				err = s.Run(ctx)
				s.Close()
			}
			if err == nil || bailey.HintOf(err) == "" {
				t.Errorf("%v (%s)", err, bailey.HintOf(err))
			}
		})
	}
	for name, spoil := range map[string]func(h *house) error{
		"no file": func(h *house) error { return nil }, "wide": func(h *house) error { return os.WriteFile(secret(h), []byte(value), 0o604) },
		"a link": func(h *house) error { os.WriteFile(secret(h), []byte(value), 0o600); return relink(secret(h)) },
		"a pipe": func(h *house) error { return syscall.Mkfifo(secret(h), 0o600) }, "a directory": func(h *house) error { return os.Mkdir(secret(h), 0o700) },
		"too long": func(h *house) error { return os.WriteFile(secret(h), []byte(strings.Repeat("x", MaxValue+1)), 0o600) },
		"empty":    func(h *house) error { return os.WriteFile(secret(h), nil, 0o600) },
		"a NUL":    func(h *house) error { return os.WriteFile(secret(h), []byte(value+"\x00"), 0o600) },
	} {
		t.Run("file: "+name, func(t *testing.T) {
			h := newHouse(t, text)
			if err := spoil(h); err != nil {
				t.Fatal(err)
			}
			if lease, err := h.client.Lend(t.Context(), loanOf("", nil, "free")); err == nil || len(lease.Env) > 0 {
				t.Errorf("%v", err)
			} else {
				silent(t, err)
			}
		})
	}
	h := newHouse(t, text)
	if err := os.WriteFile(secret(h), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	h.lend(loanOf("", nil, "free")).Return()
}

func relink(name string) error {
	if err := os.Rename(name, name+".real"); err != nil {
		return err
	}
	return os.Symlink(name+".real", name)
}

// TestTwoBrokers checks that a directory can have only one broker, whatever socket the second one uses.
func TestTwoBrokers(t *testing.T) {
	h := newHouse(t, table())
	for _, socket := range []string{"", filepath.Join(h.dir, "other.sock")} {
		if s, err := New(Config{Dir: h.dir, Socket: socket}); !errors.Is(err, bailey.Conflict) || !strings.Contains(err.Error(), "another broker") || bailey.HintOf(err) == "" {
			t.Errorf("%v", err)
			if err == nil {
				s.Close()
			}
		}
	}
	h.lend(loanOf("", nil, "free")).Return() // the first broker is unaffected
}

// TestOtherUsers checks that a peer that is not admitted gets no information, and that an admitted one can borrow but
// cannot change anything. A client must not trust a listener of another uid than the expected one.
func TestOtherUsers(t *testing.T) {
	ktest.Require(t, "root")
	const uid = 61234
	run, err := os.MkdirTemp("", "broker-test-") // in a path that other users can enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(run)
	os.Chmod(run, 0o755)
	dir := filepath.Join(run, "state")
	socket := filepath.Join(run, "run", "broker.sock")
	for _, d := range []string{dir, filepath.Dir(socket)} {
		os.Mkdir(d, 0o700)
		os.Chown(d, uid, uid)
	}
	os.Chmod(filepath.Dir(socket), 0o755)
	put := func(text string) {
		name := filepath.Join(dir, TableName)
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chown(name, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	put(table())
	if _, err := New(Config{Dir: dir}); !errors.Is(err, bailey.Denied) || !strings.Contains(bailey.HintOf(err), "runuser") {
		t.Errorf("root on the broker's directory: %v", err)
	}
	// The applied table: a line in the journal, as the command apply writes it under that uid.
	journal := filepath.Join(dir, journalName)
	line := fmt.Sprintf(`{"at":"2026-01-01T00:00:00Z","event":"apply","digest":"%s"}`+"\n", digestOf([]byte(table())))
	if err := errors.Join(os.WriteFile(journal, []byte(line), 0o600), os.Chown(journal, uid, uid)); err != nil {
		t.Fatal(err)
	}
	// other users may not be able to enter the directory of the test binary
	copyExe := filepath.Join(run, "broker.test")
	b, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(copyExe, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	old := os.Args[0]
	os.Args[0] = copyExe
	defer func() { os.Args[0] = old }()
	child(t, dir, "", &syscall.Credential{Uid: uid, Gid: uid}, childSock+"="+socket)

	c := Client{Socket: socket, UID: uid}
	lease, err := c.Lend(t.Context(), loanOf("", nil, "free"))
	if err != nil || lease.Secrets[0].Reveal() != value || strings.Contains(lease.IDs[0], SameUID) {
		t.Fatalf("an admitted uid: %v %v", lease, err)
	}
	lease.Return()
	public, err := c.MakeKey(t.Context())
	if err == nil {
		_, err = c.SignLog(t.Context(), public, []byte(checkpoint("log", 1, "a")))
	}
	if err != nil {
		t.Errorf("an admitted uid and its log's key: %v", err)
	}
	if err := c.Apply(t.Context(), digestOf([]byte(table()))); !errors.Is(err, bailey.Denied) {
		t.Errorf("an admitted uid changed the table: %v", err)
	}
	if _, err := (Client{Socket: socket, UID: os.Geteuid()}).Hello(t.Context()); !errors.Is(err, bailey.Denied) || !strings.Contains(err.Error(), "61234") {
		t.Errorf("a socket of another uid: %v", err)
	}
	cmd := exec.Command(copyExe, "-test.run=^TestAsAnother$", "-test.v")
	cmd.Env = append(os.Environ(), "BROKER_TEST_AT="+socket, "BROKER_TEST_KEY="+hex.EncodeToString(public), childDir+"=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid + 1, Gid: uid + 1}}
	cmd.Dir = run
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestAsAnother") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAsAnother is the part of TestOtherUsers that runs under a uid that the table does not admit.
func TestAsAnother(t *testing.T) {
	socket := os.Getenv("BROKER_TEST_AT")
	if socket == "" {
		t.Skip("TestOtherUsers runs this")
	}
	c := Client{Socket: socket, UID: 61234}
	if h, err := c.Hello(t.Context()); err == nil {
		t.Errorf("it was told %+v", h)
	}
	lease, err := c.Lend(t.Context(), loanOf("", nil, "free"))
	if err == nil || len(lease.Secrets) > 0 {
		t.Error("it was lent something")
	}
	if k, err := c.MakeKey(t.Context()); err == nil {
		t.Errorf("it was made a key %x", k)
	}
	public, err := hex.DecodeString(os.Getenv("BROKER_TEST_KEY"))
	if err != nil {
		t.Fatal(err)
	}
	if sig, err := c.SignLog(t.Context(), public, []byte(checkpoint("log", 2, "a"))); err == nil {
		t.Errorf("it was signed: %x", sig)
	}
}

// TestStolenSocket checks that if another uid serves the socket of the broker, the client sends no request to it.
func TestStolenSocket(t *testing.T) {
	h := newHouse(t, table())
	c := Client{Socket: h.client.Socket, UID: os.Geteuid() + 1}
	lease, err := c.Lend(t.Context(), loanOf("", nil, "free"))
	if !errors.Is(err, bailey.Denied) || !strings.Contains(err.Error(), "is served by uid") || bailey.HintOf(err) == "" || len(lease.Env) > 0 {
		t.Errorf("%v", err)
	}
	if strings.Contains(h.journal(), `"lend"`) {
		t.Error("it was asked")
	}
}

// TestOwnUIDIsNoGateway checks that the broker's own user may query and apply the table, but may borrow only if the
// table admits it.
func TestOwnUIDIsNoGateway(t *testing.T) {
	h := newHouse(t, strings.Replace(table(), fmt.Sprintf("admitted: [%d]", os.Geteuid()), "admitted: []", 1))
	if _, err := h.client.Hello(t.Context()); err != nil {
		t.Error(err)
	}
	h.refused("not admitted", loanOf("", nil, "free"), bailey.Denied, "is not admitted")
}
