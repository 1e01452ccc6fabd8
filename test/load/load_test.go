//go:build linux

package load_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
)

// TestLoad makes random calls in one home for the duration in BAILEY_LOAD (default 20s; 10m and 1h by hand, with a
// larger go test -timeout): runs, MCP sessions, refusals, bad input, and clients and gateways that are killed. At the
// end the ledger must verify, and each call must have one intent and one outcome. Each client's result must equal its
// receipt, the gateway must not have grown, and no process may remain.
func TestLoad(t *testing.T) {
	ktest.Long(t)
	length := 20 * time.Second
	if s := os.Getenv("BAILEY_LOAD"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatalf("BAILEY_LOAD: %v", err)
		}
	}
	s := begin(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() { s.client(stop) })
	}
	wg.Go(func() { s.killer(stop, min(max(length/10, 2*time.Second), time.Minute)) })
	wg.Go(func() { s.watch(stop) })
	time.Sleep(length)
	close(stop)
	wg.Wait()
	s.settle()
}

// site is a home under load, with the results that the clients got.
type site struct {
	t                   *testing.T
	dir, program        string
	repo, hanging, home string
	env                 []string

	mu    sync.Mutex
	told  map[bailey.ReceiptID]bailey.Status // results that clients got
	did   map[string]int
	seen  map[process]bool // every process seen below a gateway
	marks []mark

	gateways []int // every gateway that was seen; guarded by mu
}

func begin(t *testing.T) *site {
	ktest.Require(t, "userns", "netns", "git", "go")
	dir, err := os.MkdirTemp("/var/tmp", "bailey-load-") // calls on a repository below /tmp have no warm helper
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &site{t: t, dir: dir, program: filepath.Join(dir, "bailey"), repo: filepath.Join(dir, "project"), hanging: filepath.Join(dir, "hanging"),
		home: filepath.Join(dir, "home"), told: map[bailey.ReceiptID]bailey.Status{}, did: map[string]int{}, seen: map[process]bool{}}
	build := exec.Command("go", "build", "-o", s.program, "bailey/cmd/bailey")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.env = append(os.Environ(), "HOME="+filepath.Join(dir, "me"), "BAILEY_HOME="+s.home, "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b")
	for _, words := range [][]string{
		{"git", "init", "-q", s.repo}, {"git", "-C", s.repo, "commit", "-q", "--allow-empty", "-m", "first"}, {"git", "init", "-q", s.hanging},
	} {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = s.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", words, err, out)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(s.hanging, ".git", "index"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.command("gateway", "stop").Run() })
	return s
}

func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Env, cmd.Dir = s.env, s.repo
	return cmd
}

func (s *site) count(what string) {
	s.mu.Lock()
	s.did[what]++
	s.mu.Unlock()
}

// client makes calls of every kind until stop is closed.
func (s *site) client(stop <-chan struct{}) {
	kinds := []struct {
		name string
		do   func()
	}{
		{"echo", func() { s.run("ok", "system.echo", "-i", "message=hi") }},
		{"log", func() { s.run("ok", "git.log", "-i", "repo=.") }},
		{"denied", func() { s.run("denied", "git.log", "-i", "repo=/") }},
		{"bad input", func() { s.run("failed", "git.log", "-i", "repo=.", "-i", "limit=x") }},
		{"unknown", func() { s.run("failed", "no.such") }},
		{"tool fails", func() { s.run("failed", "git.show", "-i", "repo=.", "-i", "rev=nothing") }},
		{"killed client", s.killed},
		{"session", s.session},
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		k := kinds[rand.IntN(len(kinds))]
		k.do()
		s.count(k.name)
	}
}

// run makes a call that must end with this status, unless the gateway is killed meanwhile.
func (s *site) run(want bailey.Status, args ...string) {
	s.answered(args, s.command(append([]string{"run", "--json"}, args...)...), func(got bailey.Status) bool { return got == want || got == bailey.Killed })
}

// answered runs a client and records its result, which must be an expected one.
func (s *site) answered(args []string, client *exec.Cmd, expected func(bailey.Status) bool) {
	out, failed := client.Output()
	var r struct {
		ReceiptID bailey.ReceiptID
		Outcome   bailey.Status
		Reason    string
	}
	if err := json.Unmarshal(out, &r); err != nil {
		var exit *exec.ExitError
		errors.As(failed, &exit)
		s.t.Errorf("%v: the answer is no JSON: %q (%v, %+v)", args, out, failed, exit)
		return
	}
	if r.ReceiptID == "" {
		s.count("cut off")
		return
	}
	if !expected(r.Outcome) {
		s.t.Errorf("%v ended as %s: %s", args, r.Outcome, r.Reason)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.told[r.ReceiptID]; twice {
		s.t.Errorf("receipt %s was given out twice", r.ReceiptID)
	}
	s.told[r.ReceiptID] = r.Outcome
}

// killed ends a client during a call, with a random signal.
func (s *site) killed() {
	cmd := s.command("run", "git.status", "-i", "repo=.")
	cmd.Dir = s.hanging
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return
	}
	time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	cmd.Process.Signal([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL}[rand.IntN(4)])
	cmd.Wait()
}

// session makes some calls over MCP and ends in one of the ways in which agents end. Each request must get one answer.
func (s *site) session() {
	cmd := s.command("serve")
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Error(err)
		return
	}
	defer cmd.Wait()
	late := time.AfterFunc(2*time.Minute, func() {
		s.t.Error("a session hangs")
		cmd.Process.Kill()
	})
	defer late.Stop()
	lines := bufio.NewReader(out)
	ask := func(id int, method, params string) {
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
		line, err := lines.ReadString('\n')
		if err == nil && !strings.Contains(line, fmt.Sprintf(`"id":%d`, id)) {
			s.t.Errorf("request %d was answered with %.300s", id, line)
		}
	}
	ask(0, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"load","version":"1"}}`)
	io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	for id := range rand.IntN(8) {
		ask(id+1, "tools/call", []string{
			`{"name":"system_echo","arguments":{"message":"hi"}}`, `{"name":"git_log","arguments":{"repo":"."}}`,
			`{"name":"git_log","arguments":{"repo":"/"}}`, `{"name":"no_such","arguments":{}}`, `{"name":"git_log","arguments":{"limit":[]}}`,
		}[rand.IntN(5)])
	}
	switch rand.IntN(3) {
	case 0:
		cmd.Process.Kill()
	case 1:
		io.WriteString(in, `{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"system_echo","argu`)
	}
	in.Close()
}

// settle lets the next gateway close the calls that the last one left open, and checks the ledger.
func (s *site) settle() {
	cmd := s.command("run", "system.echo", "-i", "message=last")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("the last call: %v %s", err, &stderr)
	}
	s.flat()
	s.idle()
	if out, err := s.command("gateway", "stop").CombinedOutput(); err != nil {
		s.t.Errorf("stop: %v %s", err, out)
	}
	s.empty()
	segments, err := filepath.Glob(filepath.Join(s.home, "ledger", "[0-9]*.jsonl"))
	if err != nil || len(segments) == 0 {
		s.t.Fatalf("the ledger has %d segments, %v", len(segments), err)
	}
	outcomes := map[bailey.Status]int{}
	found := &receipts{s: s, outcomes: outcomes}
	var parts []io.Reader
	for _, name := range segments {
		f, err := os.Open(name)
		if err != nil {
			s.t.Fatal(err)
		}
		defer f.Close()
		parts = append(parts, io.TeeReader(f, found))
	}
	report, err := audit.Verify(parts...)
	if err != nil || !report.OK || report.Open != 0 || report.Intents != report.Outcomes {
		s.t.Errorf("the ledger: %+v, %v", report, err)
	}
	for id, status := range s.told {
		s.t.Errorf("receipt %s (%s) was given out and is not in the ledger", id, status)
	}
	s.t.Logf("%d calls in the ledger: %v; the clients did: %v", report.Intents, outcomes, s.did)
}

// receipts removes from told each receipt that it finds in the ledger's lines with the same status.
type receipts struct {
	s        *site
	outcomes map[bailey.Status]int
	rest     []byte
}

func (r *receipts) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for {
		i := bytes.IndexByte(r.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		r.line(r.rest[:i])
		r.rest = r.rest[i+1:]
	}
}

func (r *receipts) line(b []byte) {
	var l struct {
		Entry struct {
			Kind string
			Data json.RawMessage
		}
	}
	var o bailey.Outcome
	if json.Unmarshal(b, &l) != nil || l.Entry.Kind != audit.KindOutcome || json.Unmarshal(l.Entry.Data, &o) != nil {
		return
	}
	r.outcomes[o.Status]++
	if told, ok := r.s.told[o.Receipt]; ok && told == o.Status {
		delete(r.s.told, o.Receipt)
	}
}
