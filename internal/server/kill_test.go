//go:build linux

package server

import (
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
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/receipts"
)

const asksForDates = `
@id("dates-ask") @reason("a person has to know what day it is") @approval("count=1,ttl=10m")
forbid (principal, action == Action::"system.date", resource)
unless { context.approvals.contains("dates-ask") };`

// TestKillEndsWhatever uses the kill switch while a tool runs, a call waits for approval, and other calls arrive. Each
// call must have a receipt, and no tool may run afterwards.
func TestKillEndsWhatever(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "git")
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.Load(policy.Config{Actions: policyfiles.Actions(catalog), Sources: []policy.Source{policy.Starter(), {Name: "own.cedar", Text: []byte(asksForDates)}}})
	if err != nil {
		t.Fatal(err)
	}
	s := SpineOf(t, &Server{Catalog: catalog, Rules: FixedRules(rules)})
	dir := hanging(t)
	results := make(chan bailey.Result, 2)
	go func() { results <- s.Calls(t, "git.status", dir, map[string]any{"repo": "."}) }()
	go func() { results <- s.Calls(t, "system.date", dir, nil) }()
	until(t, "a tool runs", func() bool { calls, _ := s.live.Now(); return len(calls) == 2 })
	until(t, "a call waits", func() bool { return len(s.Queue.Open()) == 1 })

	until(t, "git reads", func() bool { return worksIn(dir, "git") })

	var wild sync.WaitGroup
	var late []bailey.Result
	var mu sync.Mutex
	for range 4 { // an agent that calls continuously
		wild.Go(func() {
			for range 50 {
				r := s.Calls(t, "system.echo", dir, map[string]any{"message": "x"})
				mu.Lock()
				late = append(late, r)
				mu.Unlock()
				if r.Status == bailey.Refused {
					return
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	begin := time.Now()
	state, err := s.kill.Kill(t.Context(), "enough", "ada")
	if err != nil || state.Calls < 2 {
		t.Errorf("%+v, %v", state, err)
	}
	after := s.Calls(t, "system.echo", dir, map[string]any{"message": "after"})
	for range 2 {
		if r := <-results; r.Status != bailey.Killed || r.Err == nil || !strings.Contains(r.Err.Error(), "the kill switch was activated") || r.ExitCode == 0 && r.Executed {
			t.Errorf("a call under way: %+v", r)
		}
	}
	wild.Wait()
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if after.Status != bailey.Refused || after.Executed || !strings.Contains(after.Err.Error(), "enough") {
		t.Errorf("a call that came later: %+v", after)
	}
	recorded := 3
	for _, r := range late {
		if r.Receipt == "" && !r.Executed && strings.Contains(r.Err.Error(), "the kill switch was activated") {
			continue // ended before its intent was recorded
		}
		recorded++
		if r.Status == bailey.OK && r.Err != nil || r.Status != bailey.OK && r.Status != bailey.Killed && r.Status != bailey.Refused {
			t.Errorf("a call in the same moment: %+v", r)
		}
	}
	if open := s.Queue.Open(); len(open) != 0 {
		t.Errorf("still asked of a person: %+v", open)
	}
	if read(dir) {
		t.Error("a tool runs on")
	}
	page, err := s.index.Find(t.Context(), receipts.Filter{Limit: receipts.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		if r.Outcome == nil {
			t.Errorf("%s %s has no outcome", r.Intent.Receipt, r.Intent.Capability)
		}
	}
	if len(page.Records) != recorded {
		t.Errorf("%d receipts of %d calls", len(page.Records), recorded)
	}
}

// Calls makes a call whose caller waits for the answer.
func (s *Server) Calls(t *testing.T, id bailey.CapabilityID, dir string, input map[string]any) bailey.Result {
	return s.kill.Do(t.Context(), bailey.Call{Capability: id, Input: input, Door: "test", Dir: dir, Patience: time.Hour,
		Principal: bailey.Principal{Agent: "a"}, Session: bailey.Session{ID: bailey.NewSessionID()}})
}

// hanging returns a repository whose index is a pipe that no process fills, so a reader blocks.
func hanging(t *testing.T) string {
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, ".git", "index"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// worksIn reports whether a program with this name has dir as its working directory.
func worksIn(dir, program string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, cwd := range all {
		at, err := os.Readlink(cwd)
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(cwd), "comm"))
		if err == nil && at == dir && strings.TrimSpace(string(name)) == program {
			return true
		}
	}
	return false
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("it never came to that: %s", what)
}

// read reports whether a process has the index of the repository open for reading. A pipe without a reader cannot be
// opened for writing.
func read(dir string) bool {
	fd, err := syscall.Open(filepath.Join(dir, ".git", "index"), syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err == nil {
		syscall.Close(fd)
	}
	return err == nil
}
