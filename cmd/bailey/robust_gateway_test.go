//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
)

// TestGatewayTerminated sends SIGTERM to a gateway with running calls. They must be killed, their receipts must say so,
// their clients must be told, and the next call must get a new gateway.
func TestGatewayTerminated(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	dir := y.hang()
	gate, log := y.run(dir, "gateway")
	y.await("the gateway", func() bool { c, err := peer.Dial(y.home.Socket()); return err == nil && c.Close() == nil })
	var calls []*exec.Cmd
	var said []*bytes.Buffer
	for range 5 {
		cmd, out := y.run(dir, "run", "git.status", "-i", "repo=.")
		calls, said = append(calls, cmd), append(said, out)
	}
	y.await("five gits", func() bool { return howMany(below(t, gate.Process.Pid), "git") == 5 })
	caged := below(t, gate.Process.Pid)
	gate.Process.Signal(syscall.SIGTERM)
	var late []byte
	// This call comes while the gateway ends, or just after.
	late, err := y.command(y.program, "run", "system.echo", "-i", "message=late").CombinedOutput()
	// The output may also say that the call waits.
	if err != nil && !strings.Contains(string(late), "may have run") || err == nil && !strings.HasSuffix(string(late), "late\n") {
		t.Errorf("a call while the gateway ends: %v %s", err, late)
	}
	if gate.Wait(); code(gate) != 0 || !strings.Contains(log.String(), "the gateway stops") {
		t.Errorf("the gateway ended with %d:\n%s", code(gate), log)
	}
	for i, cmd := range calls {
		if cmd.Wait(); code(cmd) != apitype.ExitUnreachable || !strings.Contains(said[i].String(), "may have run") {
			t.Errorf("a client ended with %d: %s", code(cmd), said[i])
		}
	}
	most := 5
	if err != nil {
		most++ // if the late call came while the gateway ended, it may have been killed too
	}
	if n := y.tally(); n[bailey.Killed] < 5 || n[bailey.Killed] > most || n[""] != 0 {
		t.Errorf("outcomes %v, want 5 to %d killed", n, most)
	}
	y.await("the end of the cages", func() bool { return len(survivors(t, caged)) == 0 })
	y.must(y.program, "run", "system.echo", "-i", "message=again")
}

// TestGatewayKilled checks that kill -9 with twenty running calls leaves no process, and twenty interrupted receipts.
func TestGatewayKilled(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	dir := y.hang()
	var calls []*exec.Cmd
	var said []*bytes.Buffer
	for range 20 {
		cmd, out := y.run(dir, "run", "git.status", "-i", "repo=.")
		calls, said = append(calls, cmd), append(said, out)
	}
	y.await("twenty gits", func() bool {
		c, err := peer.Dial(y.home.Socket())
		return err == nil && c.Close() == nil && howMany(below(t, c.PID), "git") == 20
	})
	pid := y.gateway()
	caged := below(t, pid)
	if len(caged) < 40 {
		t.Errorf("%d processes below the gateway, want twenty gits and their PID 1s", len(caged))
	}
	syscall.Kill(pid, syscall.SIGKILL)
	for i, cmd := range calls {
		if cmd.Wait(); code(cmd) != apitype.ExitUnreachable || !strings.Contains(said[i].String(), "may have run") {
			t.Errorf("a client ended with %d: %s", code(cmd), said[i])
		}
	}
	y.await("the end of the cages", func() bool { return len(survivors(t, caged)) == 0 })
	y.must(y.program, "run", "system.echo", "-i", "message=again")
	if n := y.tally(); n[bailey.Interrupted] != 20 || n[bailey.OK] != 1 || n[""] != 0 {
		t.Errorf("outcomes %v, want 20 interrupted", n)
	}
	y.verified(21)
}

// TestGatewayStop checks that the command ends a gateway with a running call and waits for its end. If no gateway runs,
// it must say so.
func TestGatewayStop(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	if out := y.must(y.program, "gateway", "stop"); !strings.Contains(out, "no gateway") {
		t.Error(out)
	}
	if _, err := os.Stat(string(y.home)); err == nil {
		t.Error("asking for a gateway's end made a home")
	}
	dir := y.hang()
	cmd, said := y.run(dir, "run", "git.status", "-i", "repo=.")
	y.await("git in its cage", func() bool {
		c, err := peer.Dial(y.home.Socket())
		return err == nil && c.Close() == nil && howMany(below(t, c.PID), "git") == 1
	})
	pid := y.gateway()
	if out := y.must(y.program, "gateway", "stop"); !strings.Contains(out, "has stopped") {
		t.Error(out)
	}
	if n := y.tally(); n[bailey.Killed] != 1 || n[""] != 0 {
		t.Errorf("when stop returns the outcomes are %v", n)
	}
	if cmd.Wait(); code(cmd) != apitype.ExitUnreachable {
		t.Errorf("the client ended with %d: %s", code(cmd), said)
	}
	y.verified(1)
	if out := y.must(y.program, "gateway", "stop", "--json"); out != `{"ok":true,"stopped":false}`+"\n" {
		t.Error(out)
	}
	y.must(y.program, "run", "system.echo", "-i", "message=again")
	if y.gateway() == pid {
		t.Error("the same gateway answers")
	}
	log, err := os.ReadFile(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if err != nil || !bytes.Contains(log, []byte(`"kind":"gateway.stop"`)) {
		t.Errorf("the ledger does not say that somebody ended the gateway: %v", err)
	}
}

// TestTwoVersions checks that another build with the same protocol is served. If the protocol differs, the error must
// mention bailey gateway stop, which every version understands.
func TestTwoVersions(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	y.must(y.program, "run", "system.echo", "-i", "message=one")
	program, err := os.ReadFile(y.program)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "bailey") // another file: the loader ignores bytes after the program
	if err := os.WriteFile(other, append(program, "another build"...), 0o755); err != nil {
		t.Fatal(err)
	}
	pid := y.gateway()
	if out := y.must(other, "run", "system.echo", "-i", "message=two"); out != "two\n" || y.gateway() != pid {
		t.Errorf("another build: %s", out)
	}
	ask := func(query string) (byte, string) {
		conn, err := peer.Dial(y.home.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.WriteFrame('q', []byte(query)); err != nil {
			t.Fatal(err)
		}
		kind, b, err := conn.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		return kind, string(b)
	}
	kind, text := ask(`{"protocol":99,"verb":"call","dir":"/","call":{"capability":"system.echo"}}`)
	if kind != 'x' || !strings.Contains(text, "protocol 99") || !strings.Contains(text, "bailey gateway stop") {
		t.Errorf("a client of another protocol: %q %s", kind, text)
	}
	if kind, text := ask(`{"protocol":99,"verb":"stop"}`); kind != 'r' {
		t.Errorf("stop of another protocol: %q %s", kind, text)
	}
	y.await("the gateway's end", func() bool { _, err := peer.Dial(y.home.Socket()); return err != nil })
	y.must(y.program, "gateway", "stop") // waits for the gateway that is still ending

	l, err := peer.Listen(y.home.Socket()) // a gateway with another protocol
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.ReadFrame()
			conn.WriteFrame('x', []byte(`{"kind":"conflict","message":"the client uses protocol 1, the gateway 99","hint":"bailey gateway stop"}`))
			conn.Close()
		}
	}()
	cmd, said := y.run(y.repo, "run", "system.echo", "-i", "message=three")
	if cmd.Wait(); code(cmd) != apitype.ExitDenied || !strings.Contains(said.String(), "the gateway 99") || !strings.Contains(said.String(), "gateway stop") {
		t.Errorf("a gateway of another protocol: %d %s", code(cmd), said)
	}
	y.verified(2)
}

// TestOldLedger checks that a ledger with 100,000 entries of another year and host is verified at the start and
// continued.
func TestOldLedger(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	const calls = 50_000
	past := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	l, err := ledger.New(ledger.Config{Dir: y.home.Ledger(), Host: "elsewhere", Now: func() time.Time { return past }})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 250 {
		wg.Go(func() {
			for range calls / 250 {
				seal, err := l.Open(t.Context(), bailey.Intent{Receipt: bailey.NewReceiptID(), Capability: "system.echo", Agent: "local", Door: "cli"})
				if err == nil {
					err = seal(bailey.Outcome{Status: bailey.OK, Decision: "allow", Argv: []string{"printf", "hi"}})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	y.must(y.program, "run", "system.echo", "-i", "message=new")
	took := time.Since(start)
	t.Logf("the first call on %d entries took %v", 2*calls+1, took)
	if took > 20*time.Second {
		t.Errorf("the first call took %v", took)
	}
	start = time.Now()
	var list apitype.ReceiptList
	decode(t, y.must(y.program, "receipts", "list", "--json"), &list)
	if len(list.Receipts) == 0 || list.Receipts[0].Outcome != bailey.OK || time.Since(start) > 20*time.Second {
		t.Errorf("%d receipts after %v", len(list.Receipts), time.Since(start))
	}
	y.verified(calls + 1)
}
