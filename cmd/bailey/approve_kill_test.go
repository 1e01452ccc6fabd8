//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/approve"
	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
)

// commitsAsk allows commits that a person granted.
const commitsAsk = writing + `
@id("commits-ask") @reason("somebody reads it first") @approval("count=1,ttl=10m")
forbid (principal, action == Action::"git.commit", resource)
unless { context.approvals.contains("commits-ask") };`

// TestGatewayKilledAtEveryStep kills a gateway while a call asks, is granted and runs: after one more ledger entry,
// after two more, and so on. Each time the question must still exist, a recorded answer must count, and the granted
// call must not run twice.
func TestGatewayKilledAtEveryStep(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	y.env = append(y.env, "BAILEY_OPERATOR=1")
	rules := filepath.Join(filepath.Dir(y.repo), "rules")
	y.must(y.program, "policy", "init", rules)
	ktest.Write(t, filepath.Join(rules, "commits.cedar"), commitsAsk)
	cmd := y.command(y.program, "init", "--yes")
	cmd.Dir = y.repo
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	y.must(y.program, "policy", "apply", rules, "--yes")
	steps := 0
	for there := true; there && !t.Failed(); { // a failed step may be the reason why later steps fail
		steps++
		killed := false
		for try := 0; there && !killed && !t.Failed(); try++ { // the kill may come too late for the step
			if killed, there = y.oneCommit(steps, try); try == 30 {
				t.Fatalf("step %d is there, and was missed each time", steps)
			}
		}
	}
	if steps < 8 { // question, pending, answer, intent, use, outcome, and the starts of two gateways
		t.Errorf("only %d steps", steps)
	}
	t.Logf("%d steps", steps)
}

// oneCommit makes one commit through a gateway that is killed when the ledger has n more entries. It reports whether a
// gateway was killed, and whether the ledger got that far.
func (y *yard) oneCommit(n, try int) (killed, there bool) {
	y.t.Helper()
	name, message := fmt.Sprintf("file%d-%d", n, try), fmt.Sprintf("commit %d-%d.", n, try)
	ktest.Write(y.t, filepath.Join(y.repo, name), name)
	y.must("git", "-C", y.repo, "add", name)
	y.must(y.program, "approvals", "list")
	begin := y.entries()
	die := make(chan bool, 1)
	stop := make(chan struct{})
	go func() { die <- y.killAt(begin+n, stop) }()
	commits := func() int {
		return strings.Count(y.must("git", "-C", y.repo, "log", "--format=%s"), message)
	}
	var seen []string
	for range 30 {
		cmd := y.command(y.program, "run", "git.commit", "-i", "repo=.", "-i", "message="+message, "--json")
		cmd.Dir = y.repo
		out, _ := cmd.Output()
		var r struct{ ApprovalID string }
		json.Unmarshal(out, &r)
		if seen = append(seen, string(bytes.TrimSpace(out))); commits() > 0 {
			break
		}
		if r.ApprovalID != "" {
			y.command(y.program, "approve", r.ApprovalID, "--yes").Run()
		}
		// A git that was killed with its gateway cannot remove its lock.
		if bytes.Contains(out, []byte(".lock': File exists.")) {
			y.unlock()
		}
	}
	there = y.entries() >= begin+n
	close(stop)
	killed = <-die
	if commits() != 1 {
		y.t.Errorf("killed at %d: %d commits\n%s", n, commits(), strings.Join(seen, "\n"))
	}
	y.asked(n, begin)
	return killed, there
}

// unlock removes the lock files of the repository, as git tells the user to do.
func (y *yard) unlock() {
	y.t.Helper()
	err := filepath.WalkDir(filepath.Join(y.repo, ".git"), func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && filepath.Ext(name) == ".lock" {
			err = os.Remove(name)
		}
		return err
	})
	if err != nil {
		y.t.Fatal(err)
	}
}

// asked checks that no question was asked again before its approval was used, and that no approval was used twice.
func (y *yard) asked(n, begin int) {
	y.t.Helper()
	open, used := map[string]bailey.ApprovalID{}, map[bailey.ApprovalID]int{}
	raw, err := os.ReadFile(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if err != nil {
		y.t.Fatal(err)
	}
	for e, err := range audit.Scan(bytes.NewReader(raw), audit.Head{}) {
		if err != nil {
			y.t.Fatal(err)
		}
		var q bailey.Question
		var u approve.Use
		switch {
		case e.Kind == approve.QuestionEvent && json.Unmarshal(e.Data, &q) == nil:
			if before, asked := open[q.Subject]; asked && used[before] == 0 {
				y.t.Errorf("killed at %d: %s was asked again as %s", n, before, q.ID)
			}
			open[q.Subject] = q.ID
		case e.Kind == approve.UseEvent && json.Unmarshal(e.Data, &u) == nil:
			if used[u.Question]++; used[u.Question] > 1 {
				y.t.Errorf("killed at %d: %s was used twice", n, u.Question)
			}
		}
	}
}

// entries returns the number of entries in the ledger.
func (y *yard) entries() int {
	raw, err := os.ReadFile(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		y.t.Fatal(err)
	}
	return bytes.Count(raw, []byte("\n"))
}

// killAt kills the home's gateway when the ledger has n entries. It returns false if stop is closed first.
func (y *yard) killAt(n int, stop <-chan struct{}) bool {
	for y.entries() < n {
		select {
		case <-stop:
			return false
		case <-time.After(200 * time.Microsecond):
		}
	}
	conn, err := peer.Dial(y.home.Socket())
	if err != nil {
		return true // the gateway has already ended
	}
	defer conn.Close()
	return syscall.Kill(conn.PID, syscall.SIGKILL) == nil
}

// TestStrandedCall checks that if the gateway ends while a call waits for approval, the client reports that the
// question stays open. The next gateway must list it.
func TestStrandedCall(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	y.env = append(y.env, "BAILEY_OPERATOR=1")
	y.asks(asksForDates)
	call, said := y.run(y.repo, "run", "--wait", "system.date")
	y.await("the call waits", func() bool { return strings.Contains(y.must(y.program, "approvals", "list"), "waits") })
	if err := syscall.Kill(y.gateway(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	call.Wait()
	if code(call) != apitype.ExitUnreachable || !strings.Contains(said.String(), "stopped while the call waited for approval a-") || !strings.Contains(said.String(), "the question stays open") {
		t.Errorf("exit code %d: %s", code(call), said)
	}
	if list := y.must(y.program, "approvals", "list"); !strings.Contains(list, "parked") {
		t.Errorf("the next gateway has: %s", list)
	}
}
