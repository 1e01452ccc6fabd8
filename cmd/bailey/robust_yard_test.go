//go:build linux

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
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/peer"
)

// await waits for an effect of another process.
func (y *yard) await(what string, done func() bool) {
	y.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			y.t.Fatalf("%s: waited %v for nothing; outcomes %v", what, patience, y.tally())
		}
	}
}

// tally counts the receipts in the file of the ledger by outcome; "" counts the open ones.
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
			break // the line is being written; verified checks the end
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

// verified checks that the ledger is valid, with this number of calls and no open call.
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

// hang creates a repository whose index is a pipe: git status blocks on it until it is killed.
func (y *yard) hang() string {
	y.t.Helper()
	dir := filepath.Join(filepath.Dir(y.repo), "hanging")
	y.must("git", "init", "-q", dir)
	if err := syscall.Mkfifo(filepath.Join(dir, ".git", "index"), 0o644); err != nil {
		y.t.Fatal(err)
	}
	return dir
}

// run starts bailey in a directory and does not wait for it.
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

// code returns the exit code of a command as a shell reports it.
func code(cmd *exec.Cmd) int {
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// process identifies a process uniquely: a pid can be reused, but not with the same start time.
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
		end := strings.LastIndex(tail, ") ") // a name may contain parentheses, see proc_pid_stat(5)
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

// below returns all descendants of pid.
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

// survivors returns the processes that are still alive.
func survivors(t *testing.T, was []process) []process {
	t.Helper()
	now := processes(t)
	return slices.DeleteFunc(slices.Clone(was), func(p process) bool { return now[p.pid].start != p.start })
}

// memory returns a field of the process status in KiB, for example VmRSS or VmHWM (proc_pid_status(5)).
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

// served is a `bailey serve` with the agent's ends of its pipes.
type served struct {
	y   *yard
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// serve starts bailey serve and initializes the session.
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

// hear returns the next line, or "" at the end.
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
