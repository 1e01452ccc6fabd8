//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/cli/direct"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// profiled runs the program, or finds secrets in a text, and at its end prints to standard error how many allocations package redact made.
func profiled() {
	runtime.MemProfileRate = 1
	var code int
	if os.Args[1] == "detect" {
		gateway.NewRedaction().Text(bailey.NewSessionID(), os.Args[2])
	} else {
		code = cli.Run(context.Background(), func() {}, direct.Work{}, jail.Bare, os.Args[1:])
	}
	runtime.GC() // the profile is that of the last completed cycle
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 100_000)
	n, ok := runtime.MemProfile(records, true)
	if !ok {
		panic("there are more records than that")
	}
	total := 0
	for _, r := range records[:n] {
		if ofRedact(r.Stack()) {
			total += int(r.AllocObjects)
		}
	}
	fmt.Fprintf(os.Stderr, "profiled %d, redact allocated %d times\n", n, total)
	os.Exit(code)
}

// ofRedact reports whether package redact made the allocation. Its initialisation does not count: it runs before the
// rate is set, so it is sampled at random, and TestStartsLight checks it.
func ofRedact(stack []uintptr) (is bool) {
	frames := runtime.CallersFrames(stack)
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		name, ok := strings.CutPrefix(f.Function, "bailey/internal/redact.")
		if is = is || ok; ok && name == "init" {
			return false
		}
	}
	return is
}

// TestClientHasNoDetectors checks that the thin client of a call and of redact allocates no detectors, because it
// starts often. The same measurement must find them in a process that creates detectors.
func TestClientHasNoDetectors(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	y.must(y.program, "run", "system.echo", "-i", "message=hi") // starts the gateway, which is another process
	text := "from 10.1.2.3 password=hunter2hunter\n"
	for _, c := range []struct {
		args []string
		has  bool
	}{
		{[]string{"run", "system.echo", "-i", "message=password=hunter2hunter"}, false},
		{[]string{"redact"}, false}, {[]string{"redact", "--report"}, false}, {[]string{"redact", "--jsonl"}, false},
		{[]string{"status"}, false}, {[]string{"detect", text}, true},
	} {
		cmd := y.command("bailey-profiled", c.args...)
		cmd.Stdin = strings.NewReader(text)
		if c.args[len(c.args)-1] == "--jsonl" {
			cmd.Stdin = strings.NewReader(`{"text":"from 10.1.2.3"}`)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", c.args, err, out)
		}
		m := regexp.MustCompile(`profiled (\d+), redact allocated (\d+) times`).FindSubmatch(out)
		if m == nil || len(m[1]) < 3 {
			t.Fatalf("%v: nothing was profiled:\n%s", c.args, out)
		}
		if has := string(m[2]) != "0"; has != c.has {
			t.Errorf("%v: package redact allocated %s times", c.args, m[2])
		}
	}
}

// session redacts text, and returns the output and its session.
func (y *yard) session(text string) (string, bailey.SessionID) {
	y.t.Helper()
	cmd := y.command(y.program, "redact", "--json")
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(text), &said
	out, err := cmd.Output()
	var sum struct{ Session bailey.SessionID }
	if err != nil || json.Unmarshal(said.Bytes(), &sum) != nil || sum.Session == "" {
		y.t.Fatalf("%v: %s", err, &said)
	}
	return string(out), sum.Session
}

// TestKeptAreNotListed checks that only the session id gives access to a kept session: no answer of the socket contains
// an id, a query without an id finds nothing, and status shows only a count.
func TestKeptAreNotListed(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	_, id := y.session("from 10.1.2.3")
	_, second := y.session("from 10.1.2.4")
	c := &localapi.Client{Home: y.home}
	look := func(request string) (got any, err error) {
		var raw json.RawMessage
		if request != "" {
			raw = json.RawMessage(request)
		}
		return localapi.NewQuery[json.RawMessage, any](apitype.ShowKeptSession.Name).Ask(t.Context(), c, raw)
	}
	for request, kind := range map[string]bailey.Kind{
		"": bailey.NotFound, "null": bailey.NotFound, "{}": bailey.NotFound, `{"session":""}`: bailey.NotFound,
		`{"session":"s-"}`: bailey.NotFound, `{"session":"*"}`: bailey.NotFound, `{"session":[]}`: bailey.Invalid,
	} {
		if got, err := look(request); !errors.Is(err, kind) || got != nil {
			t.Errorf("%s: %v, %v", request, got, err)
		}
	}
	one, err := look(`{"session":"` + string(id) + `"}`)
	if m, ok := one.(map[string]any); err != nil || !ok || m["texts"] != 1.0 || len(m) != 3 {
		t.Errorf("%v, %v", one, err)
	}
	said := y.must(y.program, "status") + y.must(y.program, "status", "--json") + y.must(y.program, "__complete", "redact", "--session", "")
	if !strings.Contains(said, "2 redaction sessions are kept, the last until ") || !strings.Contains(said, `"kept":{"sessions":2,`) ||
		strings.Contains(said, string(id)) || strings.Contains(said, string(second)) {
		t.Error(said)
	}
}

// TestRestoreAsks checks that the prompt appears on the controlling terminal while standard input and output are files.
// If the answer is not yes, nothing is read, printed or recorded.
func TestRestoreAsks(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	clean, id := y.session("from 10.1.2.3")
	for _, c := range []struct {
		keys, out string
		code      int
	}{
		{"\n", "", apitype.ExitDenied}, {"n\n", "", apitype.ExitDenied}, {"\x1b", "", apitype.ExitDenied}, {"yy\n", "", apitype.ExitDenied}, {"y\n", "from 10.1.2.3", apitype.ExitOK},
	} {
		master, slave := ktest.PTY(t)
		cmd := y.command(y.program, "redact", "--restore", "--session", string(id))
		var out, said bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = strings.NewReader(clean), &out, &said, []*os.File{slave}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		s := ktest.NewScreen()
		go s.Watch(master)
		select {
		case <-s.Asked:
		case <-time.After(patience):
			cmd.Process.Kill()
			t.Fatalf("never asked: %s%s", s.Text(), &said)
		}
		master.WriteString(c.keys)
		cmd.Wait()
		recorded := strings.Contains(y.ledger(), `"redact.restore"`)
		if code(cmd) != c.code || out.String() != c.out || recorded != (c.code == apitype.ExitOK) || !strings.Contains(s.Text(), string(id)+" (1 text)?") {
			t.Errorf("%q: code %d, out %q, recorded %v\n%s%s", c.keys, code(cmd), &out, recorded, s.Text(), &said)
		}
	}
	if !strings.Contains(y.ledger(), fmt.Sprintf(`{"session":"%s","operator":"terminal","person":`, id)) {
		t.Error("the ledger does not say by what right")
	}
}

func (y *yard) ledger() string {
	y.t.Helper()
	b, err := os.ReadFile(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if err != nil {
		y.t.Fatal(err)
	}
	return string(b)
}

// TestKilledRedaction checks that if a client is killed while it redacts, the gateway keeps no connection.
func TestKilledRedaction(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	y.session("from 10.1.2.3")
	gate := y.gateway()
	sockets := func() (n int) {
		list, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", gate))
		for _, f := range list {
			if to, _ := os.Readlink(f); strings.HasPrefix(to, "socket:") {
				n++
			}
		}
		return n
	}
	before := sockets() // the gateway may still be closing earlier connections
	for range 50 {
		time.Sleep(10 * time.Millisecond)
		before = min(before, sockets())
	}
	var all []*exec.Cmd
	for range 3 {
		cmd := y.command(y.program, "redact")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, "a line\nand from 10.1.2.3 ")
		io.ReadFull(out, make([]byte, 7))
		all = append(all, cmd)
	}
	if n := sockets(); n != before+3 {
		t.Errorf("%d connections, want %d", n, before+3)
	}
	for _, cmd := range all {
		cmd.Process.Kill()
		cmd.Wait()
	}
	y.await("the end of the connections", func() bool { return sockets() <= before })
}

// TestInterruptedRedaction checks that Ctrl-C ends the redaction of a log that is followed, and prints its session. If
// the output is not read, the next Ctrl-C must end it.
func TestInterruptedRedaction(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	for _, stalled := range []bool{false, true} {
		cmd := y.command(y.program, "redact")
		var said bytes.Buffer
		cmd.Stderr = &said
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		const setPipeSize, page = 1031, 4096 // F_SETPIPE_SZ, fcntl(2)
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, out.(*os.File).Fd(), setPipeSize, page); errno != 0 {
			t.Fatal(errno)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, "from 10.1.2.3 and on\n")
		io.ReadFull(out, make([]byte, 5))
		if stalled {
			log := &again{text: []byte("from 10.1.2.3\n")}
			go io.Copy(in, log)
			// The amount that is buffered between the two differs: a pipe is small if its owner has many
			// (pipe-user-pages-soft, pipe(7)).
			last := int64(0)
			y.await("input that nobody takes any more", func() bool {
				was := last
				last = log.given.Load()
				return last > page && last == was
			})
		}
		cmd.Process.Signal(syscall.SIGINT)
		if stalled {
			ended := make(chan struct{})
			go func() { cmd.Wait(); close(ended) }()
			y.await("its end", func() bool {
				select {
				case <-ended:
					return true
				default:
					cmd.Process.Signal(syscall.SIGINT)
					return false
				}
			})
		} else {
			io.Copy(io.Discard, out)
			cmd.Wait()
		}
		if code(cmd) != 130 || !stalled && !strings.Contains(said.String(), "--restore --session s-") {
			t.Errorf("stalled %v: code %d, %s", stalled, code(cmd), &said)
		}
	}
}

// TestEndedRedaction checks the message after a signal. It must not mention calls, because none was made.
func TestEndedRedaction(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	_, id := y.session("from 10.1.2.3")
	for _, c := range []struct {
		args   []string
		signal syscall.Signal
		want   string
	}{
		{[]string{"redact"}, syscall.SIGTERM, "bailey: unavailable: ended by a signal (terminated)\n  the output is incomplete\n"},
		{[]string{"redact", "--restore", "--session", string(id)}, syscall.SIGINT, "bailey: unavailable: ended by a signal (interrupt)\n"},
	} {
		master, slave := ktest.PTY(t)
		cmd := y.command(y.program, c.args...)
		var said bytes.Buffer
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr, cmd.ExtraFiles = &said, []*os.File{slave}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		s := ktest.NewScreen()
		go s.Watch(master)
		io.WriteString(in, "a line\nand from 10.1.2.3 ")
		if c.signal == syscall.SIGTERM {
			io.ReadFull(out, make([]byte, 7))
		} else {
			<-s.Asked
		}
		cmd.Process.Signal(c.signal)
		io.Copy(io.Discard, out)
		cmd.Wait()
		if code(cmd) != 128+int(c.signal) || said.String() != c.want {
			t.Errorf("%v: code %d, %q\n%s", c.args, code(cmd), &said, s.Text())
		}
	}
}

// TestRedactHoldsLittle checks that the memory of the client and of the gateway does not grow with the text.
func TestRedactHoldsLittle(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	pass := func(size int) (client int64, gate int) {
		cmd := y.command(y.program, "redact")
		line := []byte("2026-01-02 from 10.1.2.3 to host password=hunter2hunter and more\n")
		cmd.Stdin = io.LimitReader(&again{text: line}, int64(size))
		cmd.Stdout = io.Discard
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", y.gateway()))
		if err != nil {
			t.Fatal(err)
		}
		peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
		gate, _ = strconv.Atoi(string(peak[1]))
		return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss, gate
	}
	client, gate := pass(2 << 20)
	client2, gate2 := pass(64 << 20)
	t.Logf("client %d KiB and then %d, gateway %d and then %d", client, client2, gate, gate2)
	if client2-client > 24<<10 || gate2-gate > 24<<10 {
		t.Errorf("client %d KiB and then %d, gateway %d and then %d", client, client2, gate, gate2)
	}
}

// again repeats a text endlessly.
type again struct {
	text  []byte
	at    int
	given atomic.Int64
}

func (a *again) Read(b []byte) (int, error) {
	n := copy(b, a.text[a.at:])
	a.at = (a.at + n) % len(a.text)
	a.given.Add(int64(n))
	return n, nil
}
