package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/peer"
)

// The tests here treat the doors badly, with real processes. Each of them ends by reading the ledger's
// file itself: what was started has one intent and one outcome, and the chain holds.

// await waits for something that another process does.
func (y *yard) await(what string, done func() bool) {
	y.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			y.t.Fatalf("%s: waited 30 s for nothing; outcomes %v", what, y.tally())
		}
	}
}

// tally counts the receipts in the ledger's file by outcome; "" counts the open ones.
func (y *yard) tally() map[bailey.Status]int {
	y.t.Helper()
	f, err := os.Open(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		y.t.Fatal(err)
	}
	defer f.Close()
	counts, became := map[bailey.Status]int{}, map[bailey.ReceiptID]bailey.Status{}
	for e, err := range audit.Scan(f, audit.Head{}) {
		if err != nil {
			break // a line that is being written; verified looks at the end
		}
		var half struct {
			Receipt bailey.ReceiptID
			Outcome bailey.Status
		}
		if err := json.Unmarshal(e.Data, &half); err != nil {
			y.t.Fatal(err)
		}
		if e.Kind == audit.KindIntent || e.Kind == audit.KindOutcome {
			became[half.Receipt] = half.Outcome
		}
	}
	for _, status := range became {
		counts[status]++
	}
	return counts
}

// verified wants a ledger that holds, with this many calls and none open.
func (y *yard) verified(calls int) {
	y.t.Helper()
	r, err := ledger.Verify(y.home.Ledger())
	if err != nil || !r.OK || r.Intents != calls || r.Outcomes != calls || r.Open != 0 {
		y.t.Errorf("the ledger: %+v, %v; want %d calls, none open", r, err, calls)
	}
}

// gateway returns the pid of the home's gateway.
func (y *yard) gateway() int {
	y.t.Helper()
	conn, err := peer.Dial(y.home.Socket())
	if err != nil {
		y.t.Fatal(err)
	}
	defer conn.Close()
	return conn.PID
}

// hang makes a repository whose index is a pipe: git status waits for it until it is killed.
func (y *yard) hang() string {
	y.t.Helper()
	dir := filepath.Join(filepath.Dir(y.repo), "hanging")
	y.must("git", "init", "-q", dir)
	if err := syscall.Mkfifo(filepath.Join(dir, ".git", "index"), 0o644); err != nil {
		y.t.Fatal(err)
	}
	return dir
}

// run starts bailey in a directory and leaves it running.
func (y *yard) run(dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	y.t.Helper()
	cmd := y.command(y.program, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	if err := cmd.Start(); err != nil {
		y.t.Fatal(err)
	}
	y.t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, &said
}

// code is how a shell would say how a command ended.
func code(cmd *exec.Cmd) int {
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// process is one that no other can be taken for: a pid is used again, its start time is not.
type process struct {
	pid, parent int
	name, start string
}

func processes(t *testing.T) map[int]process {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]process{}
	for _, file := range stats {
		b, err := os.ReadFile(file)
		head, tail, ok := strings.Cut(string(b), " (")
		end := strings.LastIndex(tail, ") ") // a name may hold parentheses, see proc_pid_stat(5)
		if err != nil || !ok || end < 0 {
			continue // it has just ended
		}
		f := strings.Fields(tail[end+2:])
		pid, _ := strconv.Atoi(head)
		parent, _ := strconv.Atoi(f[1])
		all[pid] = process{pid, parent, tail[:end], f[19]}
	}
	return all
}

// below returns all processes that descend from pid.
func below(t *testing.T, pid int) []process {
	t.Helper()
	all := processes(t)
	var found []process
	for _, p := range all {
		for up := p.parent; up > 1; up = all[up].parent {
			if up == pid {
				found = append(found, p)
				break
			}
		}
	}
	return found
}

// howMany counts processes by name.
func howMany(list []process, name string) (n int) {
	for _, p := range list {
		if p.name == name {
			n++
		}
	}
	return n
}

// survivors returns which of them still live.
func survivors(t *testing.T, was []process) []process {
	t.Helper()
	now := processes(t)
	return slices.DeleteFunc(slices.Clone(was), func(p process) bool { return now[p.pid].start != p.start })
}

// memory reads one of the gateway's figures, in KiB: VmRSS, VmHWM (proc_pid_status(5)).
func memory(t *testing.T, pid int, key string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(value)[0])
			return n
		}
	}
	t.Fatalf("no %s", key)
	return 0
}

// served is a `bailey serve` and the agent's side of its pipes.
type served struct {
	y   *yard
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// serve starts one and shakes hands.
func (y *yard) serve(dir string) *served {
	y.t.Helper()
	s := &served{y: y, cmd: y.command(y.program, "serve")}
	s.cmd.Dir = dir
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		y.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		y.t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		y.t.Fatal(err)
	}
	y.t.Cleanup(func() { s.cmd.Process.Kill() })
	s.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	s.hear()
	s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

func (s *served) say(line string) { io.WriteString(s.in, line+"\n") }

func (s *served) call(id int, tool, args string) {
	s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args))
}

// hear returns the next line, "" at the end.
func (s *served) hear() string {
	line := make(chan string, 1)
	go func() {
		text, _ := s.out.ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		return text
	case <-time.After(time.Minute):
		return "nothing within a minute"
	}
}

// TestManyAtOnce: eight servers and a hundred runs find no gateway. One starts; there is one ledger, and
// each call has one receipt.
func TestManyAtOnce(t *testing.T) {
	y := newYard(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			out, err := y.command(y.program, "run", "system.echo", "-i", fmt.Sprintf("message=<%d>", i)).CombinedOutput()
			if err != nil || string(out) != fmt.Sprintf("<%d>\n", i) {
				t.Errorf("run %d: %v %q", i, err, out)
			}
		})
	}
	servers := make([]*served, 8)
	for i := range servers {
		servers[i] = y.serve(y.repo)
	}
	for i, s := range servers {
		wg.Go(func() {
			for n := range 5 {
				s.call(n+1, "system_echo", fmt.Sprintf(`{"message":"s%d-%d"}`, i, n))
				if text := s.hear(); !strings.Contains(text, fmt.Sprintf("s%d-%d", i, n)) {
					t.Errorf("server %d: %s", i, text)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range servers {
		s.in.Close()
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("a server ended with %v", err)
		}
	}
	y.verified(100 + 8*5)
	log, err := os.ReadFile(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if n := bytes.Count(log, []byte(`"kind":"gateway.start"`)); err != nil || n != 1 {
		t.Errorf("%d gateways started, %v", n, err)
	}
}

// TestServeStdinCloses: an agent that leaves at once, in mid-line, or in mid-call.
func TestServeStdinCloses(t *testing.T) {
	y := newYard(t)
	dir := y.hang()
	for name, input := range map[string]string{"at once": "", "mid-line": `{"jsonrpc":"2.0","id":`, "not JSON": "\x00\xff\n"} {
		cmd := y.command(y.program, "serve")
		cmd.Dir, cmd.Stdin = y.repo, strings.NewReader(input)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil || stderr.Len() > 0 {
			t.Errorf("%s: %v %s", name, err, &stderr)
		}
	}
	s := y.serve(dir)
	s.call(1, "git_status", `{"repo":"."}`)
	y.await("git in its cage", func() bool { return howMany(below(t, y.gateway()), "git") == 1 })
	s.in.Close()
	rest, _ := io.ReadAll(s.out)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("closed in mid-call: %v, %s", err, rest)
	}
	y.await("the outcome", func() bool { return y.tally()[bailey.Killed] == 1 })
	y.verified(1)
	y.await("the end of git", func() bool { return howMany(below(t, y.gateway()), "git") == 0 })
}

// TestHugeOutput: 200 MB from a tool are drained, capped and marked, at every door, and the gateway does
// not grow with them.
func TestHugeOutput(t *testing.T) {
	y := newYard(t)
	big, err := os.Create(filepath.Join(y.repo, "big"))
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("every line of it is the same as the last one ", 20) + "\n"
	w := bufio.NewWriterSize(big, 1<<20)
	for n := 0; n < 200<<20; n += len(line) {
		w.WriteString(line)
	}
	if err := errors.Join(w.Flush(), big.Close()); err != nil {
		t.Fatal(err)
	}
	y.must("git", "-C", y.repo, "-c", "core.compression=1", "add", "big")
	y.must("git", "-C", y.repo, "commit", "-q", "-m", "big")
	y.must(y.program, "run", "system.echo", "-i", "message=start")
	before := memory(t, y.gateway(), "VmHWM")

	in := []string{"run", "git.show", "-i", "repo=.", "-i", "rev=HEAD:big"}
	cmd := y.command(y.program, append(in, "--json")...)
	cmd.Dir = y.repo
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v %.300s", err, out)
	}
	var r struct {
		Result struct {
			Stdout    string
			Truncated bool
		}
	}
	decode(t, string(out), &r)
	if !r.Result.Truncated || len(r.Result.Stdout) != bailey.OutputCap {
		t.Errorf("as JSON: %d bytes, truncated %v", len(r.Result.Stdout), r.Result.Truncated)
	}

	cmd = y.command(y.program, in...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = y.repo, &stderr
	if out, err = cmd.Output(); err != nil || len(out) != bailey.OutputCap || !strings.Contains(stderr.String(), "was cut at") {
		t.Errorf("as a stream: %d bytes, %v, %s", len(out), err, &stderr)
	}

	s := y.serve(y.repo)
	s.call(1, "git_show", `{"repo":".","rev":"HEAD:big"}`)
	if text := s.hear(); len(text) < bailey.OutputCap || !strings.Contains(text, "truncated") {
		t.Errorf("over MCP: %d bytes: %.300s", len(text), text)
	}
	s.in.Close()
	s.cmd.Wait()

	// A reader that has seen enough: the shell's own exit code of the client is in the file.
	script := fmt.Sprintf(`{ "%s" run git.show -i repo=. -i rev=HEAD:big; echo $? >"$1"; } | head -n 1`, y.program)
	cmd = y.command("sh", "-c", script, "sh", filepath.Join(y.repo, "..", "code"))
	cmd.Dir = y.repo
	if out, err = cmd.Output(); err != nil || string(out) != line {
		t.Errorf("head: %v %.100q", err, out)
	}
	if b, err := os.ReadFile(filepath.Join(y.repo, "..", "code")); err != nil || string(b) != "141\n" {
		t.Errorf("a closed stdout ends the client with %q, %v; want 141", b, err)
	}
	y.await("four outcomes and that of echo", func() bool { n := y.tally(); return n[bailey.OK]+n[bailey.Killed] == 5 && n[""] == 0 })
	y.verified(5)
	if grown := memory(t, y.gateway(), "VmHWM") - before; grown > 64<<10 {
		t.Errorf("the gateway grew by %d KiB", grown)
	} else {
		t.Logf("the gateway grew by %d KiB over %d", grown, before)
	}
}

// TestSignalsToTheClient: the tool dies with the client, its receipt says killed, and the exit code is a
// shell's.
func TestSignalsToTheClient(t *testing.T) {
	y := newYard(t)
	dir := y.hang()
	y.must(y.program, "run", "system.echo", "-i", "message=start")
	killed := 0
	for _, door := range []string{"run", "run --json", "serve"} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGKILL} {
			if door == "serve" && sig == syscall.SIGPIPE {
				continue // a server hears of closed pipes where it writes: a lost gateway is not its end
			}
			t.Run(door+" "+sig.String(), func(t *testing.T) {
				var cmd *exec.Cmd
				var said *bytes.Buffer
				if door == "serve" {
					s := y.serve(dir)
					s.call(1, "git_status", `{"repo":"."}`)
					cmd, said = s.cmd, &bytes.Buffer{}
				} else {
					cmd, said = y.run(dir, append(strings.Fields(door), "git.status", "-i", "repo=.")...)
				}
				y.await("git in its cage", func() bool { return howMany(below(t, y.gateway()), "git") == 1 })
				cmd.Process.Signal(sig)
				cmd.Wait()
				if code(cmd) != 128+int(sig) {
					t.Errorf("exit code %d, want %d: %s", code(cmd), 128+int(sig), said)
				}
				killed++
				y.await("the outcome", func() bool { n := y.tally(); return n[bailey.Killed] == killed && n[""] == 0 })
				y.await("the end of git", func() bool { return howMany(below(t, y.gateway()), "git") == 0 })
			})
		}
	}
	y.verified(1 + killed)
}

// TestGatewayTerminated: SIGTERM with calls in flight kills them, says so in their receipts, tells their
// clients, and the next call finds a new gateway.
func TestGatewayTerminated(t *testing.T) {
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
	late, err := y.command(y.program, "run", "system.echo", "-i", "message=late").CombinedOutput() // while it ends, or just after
	if err != nil && !strings.Contains(string(late), "may have run") || err == nil && string(late) != "late\n" {
		t.Errorf("a call while the gateway ends: %v %s", err, late)
	}
	if gate.Wait(); code(gate) != 0 || !strings.Contains(log.String(), "the gateway ends") {
		t.Errorf("the gateway ended with %d:\n%s", code(gate), log)
	}
	for i, cmd := range calls {
		if cmd.Wait(); code(cmd) != exitUnreachable || !strings.Contains(said[i].String(), "may have run") {
			t.Errorf("a client ended with %d: %s", code(cmd), said[i])
		}
	}
	if n := y.tally(); n[bailey.Killed] != 5 || n[""] != 0 {
		t.Errorf("outcomes %v, want 5 killed", n)
	}
	y.await("the end of the cages", func() bool { return len(survivors(t, caged)) == 0 })
	y.must(y.program, "run", "system.echo", "-i", "message=again")
}

// TestGatewayKilled: kill -9 with twenty calls in flight leaves no process, and twenty interrupted receipts.
func TestGatewayKilled(t *testing.T) {
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
		if cmd.Wait(); code(cmd) != exitUnreachable || !strings.Contains(said[i].String(), "may have run") {
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

// TestGatewayStop: it ends a gateway with a call in flight, waits for its end, and says when there is none.
func TestGatewayStop(t *testing.T) {
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
	if out := y.must(y.program, "gateway", "stop"); !strings.Contains(out, "has ended") {
		t.Error(out)
	}
	if n := y.tally(); n[bailey.Killed] != 1 || n[""] != 0 {
		t.Errorf("when stop returns the outcomes are %v", n)
	}
	if cmd.Wait(); code(cmd) != exitUnreachable {
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

// TestTwoVersions: another build of the same protocol is served; another protocol is refused in words
// that lead to bailey gateway stop, which every version understands.
func TestTwoVersions(t *testing.T) {
	y := newYard(t)
	y.must(y.program, "run", "system.echo", "-i", "message=one")
	program, err := os.ReadFile(y.program)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "bailey") // another file: the loader ignores what follows the program
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
	y.must(y.program, "gateway", "stop") // waits for what is still ending

	l, err := peer.Listen(y.home.Socket()) // a gateway of another protocol
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
			conn.WriteFrame('x', []byte(`{"kind":"conflict","message":"the client speaks protocol 1, the gateway 99","hint":"bailey gateway stop"}`))
			conn.Close()
		}
	}()
	cmd, said := y.run(y.repo, "run", "system.echo", "-i", "message=three")
	if cmd.Wait(); code(cmd) != exitDenied || !strings.Contains(said.String(), "the gateway 99") || !strings.Contains(said.String(), "gateway stop") {
		t.Errorf("a gateway of another protocol: %d %s", code(cmd), said)
	}
	y.verified(2)
}

// TestOldLedger: 100,000 entries of another year and host are verified at the start and go on.
func TestOldLedger(t *testing.T) {
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
	var list receiptList
	decode(t, y.must(y.program, "receipts", "list", "--json"), &list)
	if len(list.Receipts) == 0 || list.Receipts[0].Outcome != bailey.OK || time.Since(start) > 20*time.Second {
		t.Errorf("%d receipts after %v", len(list.Receipts), time.Since(start))
	}
	y.verified(calls + 1)
}

// mounted runs a shell script in a mount namespace of its own, where it may mount what it likes. In it
// bailey is the program, and refused CODE WORD... a call that must fail with that code and say those words.
func (y *yard) mounted(script string) string {
	y.t.Helper()
	ktest.Require(y.t, "unshare", "sh", "mount")
	flags := []string{"-m"}
	if os.Geteuid() != 0 {
		flags = []string{"-m", "--map-current-user", "--keep-caps"}
	}
	if out, err := y.command("unshare", append(flags, "mount", "-t", "tmpfs", "none", "/mnt")...).CombinedOutput(); err != nil {
		ktest.Missing(y.t, "mount", fmt.Errorf("%v: %s", err, out))
	}
	prelude := `set -e
trap 'bailey gateway stop >/dev/null 2>&1 || true' EXIT
refused() {
	want=$1; shift # a code, or several that the case accepts
	got=0; out=$(bailey run system.echo -i message=x 2>&1) || got=$?
	case " $want " in *" $got "*) ;; *) echo "exit code $got, want $want: $out"; exit 1;; esac
	for word; do case $out in *"$word"*) ;; *) echo "not said: $word: $out"; exit 1;; esac; done
}
fill() { dd if=/dev/zero of="$BAILEY_HOME/fill" bs=4k >/dev/null 2>&1 || true; }
mkdir -p "$BAILEY_HOME"
mount -t tmpfs -o size=2m,mode=0700 home "$BAILEY_HOME"
`
	cmd := y.command("unshare", append(flags, "sh", "-c", prelude+script)...)
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(y.program)+":"+os.Getenv("PATH"))
	cmd.Dir = y.repo
	out, err := cmd.CombinedOutput()
	if err != nil {
		y.t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// TestFullDisk: no space, no call; with space again, the same gateway goes on. A gateway that has no
// space to start says so too.
func TestFullDisk(t *testing.T) {
	newYard(t).mounted(`
dd if=/dev/zero of="$BAILEY_HOME/ballast" bs=1k count=1500 2>/dev/null
bailey run system.echo -i message=before
fill
for n in 1 2 3 4 5 6 7 8 9; do bailey run system.echo -i message=$n >/dev/null 2>&1 || break; done # what was reserved
refused 1 "not recorded" "no space left" "free some space"
bailey audit verify
rm "$BAILEY_HOME/fill"
bailey run system.echo -i message=after
bailey gateway stop
fill
refused "1 127" "no space left" "free some space"
rm "$BAILEY_HOME/fill"
bailey run system.echo -i message=again
bailey audit verify --json | grep '"open":0'
`)
}

// TestFullDiskFromTheStart: a home that has never had room for a ledger.
func TestFullDiskFromTheStart(t *testing.T) {
	newYard(t).mounted(`
fill
refused 127 "no space left" "free some space"
rm "$BAILEY_HOME/fill"
bailey run system.echo -i message=again
bailey audit verify
`)
}

// TestReadOnlyHome: nothing can be recorded, so nothing runs; what is there can be verified.
func TestReadOnlyHome(t *testing.T) {
	newYard(t).mounted(`
mount -o remount,ro "$BAILEY_HOME"
refused 127 "read-only" "BAILEY_HOME"
mount -o remount,rw "$BAILEY_HOME"
bailey run system.echo -i message=before
bailey gateway stop
mount -o remount,ro "$BAILEY_HOME"
refused 127 "read-only" "BAILEY_HOME"
bailey audit verify
bailey gateway stop
`)
}

// TestFrailHome: a home in memory is said to be one.
func TestFrailHome(t *testing.T) {
	newYard(t).mounted(`
bailey run system.echo -i message=x
grep "a crash of the machine may lose receipts.*tmpfs keeps the ledger in memory" "$BAILEY_HOME/gateway.log"
`)
}
