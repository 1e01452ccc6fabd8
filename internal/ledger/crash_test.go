//go:build linux

package ledger

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"

	"golang.org/x/sys/unix"
)

// These tests start their own binary as a child that is killed. The child prints each entry that is durable.
const childEnv = "LEDGER_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := child(role, os.Args[1]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(role, dir string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", dir)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	return cmd
}

func child(role, dir string) error {
	switch role {
	case "calls":
		return childCalls(dir, nil)
	case "mid-write", "before-sync", "before-truncate":
		return childCalls(dir, &deadly{at: role})
	case "rotate-write", "rotate-sync", "rotate-name", "rotate-named":
		return childRotates(dir, role)
	case "file-limit":
		return childFileLimit(dir)
	case "full-disk":
		return childFullDisk(dir)
	}
	return fmt.Errorf("no role %q", role)
}

// childCalls makes calls until it is killed, and prints each half of a receipt when it is durable.
func childCalls(dir string, d *deadly) error {
	c := Config{Dir: dir}
	if d != nil {
		c.Wrap = func(real Disk) Disk { d.Disk = real; return d }
	}
	l, err := New(c)
	if err != nil {
		return err
	}
	for range 8 {
		go func() {
			for {
				in := intent()
				seal, err := l.Open(context.Background(), in)
				if err != nil {
					return
				}
				fmt.Printf("intent %s\n", in.Receipt)
				if seal(bailey.Outcome{Status: bailey.OK, Reason: strings.Repeat("x", rand.IntN(9000))}) != nil {
					return
				}
				fmt.Printf("outcome %s\n", in.Receipt)
			}
		}()
	}
	select {}
}

// deadly kills its own process at its fiftieth write, during the write or before the sync.
type deadly struct {
	Disk
	at     string
	writes int
}

func (d *deadly) WriteAt(p []byte, off int64) (int, error) {
	if d.writes++; d.writes == 50 && d.at == "mid-write" {
		d.Disk.WriteAt(p[:len(p)-7], off) // inside the last line of the group
		die()
	}
	return d.Disk.WriteAt(p, off)
}

func (d *deadly) Sync() error {
	if d.writes == 50 && d.at == "before-sync" {
		die()
	}
	return d.Disk.Sync()
}

func (d *deadly) Truncate(size int64) error {
	if d.at == "before-truncate" {
		die()
	}
	return d.Disk.Truncate(size)
}

func die() {
	unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// killed runs a child until it dies, by itself or after a time, and returns the durable entries.
func killed(t *testing.T, role, dir string, after time.Duration) (intents, outcomes []string) {
	t.Helper()
	cmd := command(role, dir)
	out, err := cmd.StdoutPipe()
	do(t, err)
	do(t, cmd.Start())
	if after == 0 {
		after = time.Minute // the child must kill itself
		defer func(began time.Time) {
			if time.Since(began) >= after {
				t.Error("the child did not come to its end")
			}
		}(time.Now())
	}
	killer := time.AfterFunc(after, func() { cmd.Process.Kill() })
	defer killer.Stop()
	for s := bufio.NewScanner(out); s.Scan(); {
		switch half, id, _ := strings.Cut(s.Text(), " "); half {
		case "intent":
			intents = append(intents, id)
		case "outcome":
			outcomes = append(outcomes, id)
		default:
			t.Errorf("the child says %q", s.Text())
		}
	}
	err = cmd.Wait()
	if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v", err)
	}
	return intents, outcomes
}

// recovered opens the ledger after a crash and checks that no durable entry is lost and no receipt is open.
func recovered(t *testing.T, dir string, intents, outcomes []string) {
	t.Helper()
	l := open(t, Config{Dir: dir})
	defer l.Close()
	if r := verified(t, dir); r.Open != 0 || r.Intents != r.Outcomes {
		t.Errorf("%+v", r)
	}
	status := make(map[string]bailey.Status)
	for line := range lines(t, first(dir)) {
		var e struct {
			Entry struct {
				Kind string `json:"kind"`
				Data struct {
					Receipt string
					Outcome bailey.Status
					Reason  string
				} `json:"data"`
			} `json:"entry"`
		}
		do(t, json.Unmarshal(line, &e))
		if d := e.Entry.Data; e.Entry.Kind == audit.KindOutcome {
			status[d.Receipt] = d.Outcome
			if d.Outcome == bailey.Interrupted && d.Reason != interrupted {
				t.Errorf("interrupted, and the reason is %q", d.Reason)
			}
		}
	}
	for _, id := range intents {
		if status[id] == "" {
			t.Errorf("the intent of %s was durable and is lost", id)
		}
	}
	for _, id := range outcomes {
		if status[id] != bailey.OK {
			t.Errorf("the outcome of %s was durable and is %q", id, status[id])
		}
	}
	call(t, l)
}

func TestKilledAnytime(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	durable := 0
	for range 10 {
		intents, outcomes := killed(t, "calls", dir, 50*time.Millisecond+time.Duration(rand.IntN(int(100*time.Millisecond))))
		recovered(t, dir, intents, outcomes)
		durable += len(outcomes)
	}
	if durable == 0 {
		t.Error("no child came to a single call")
	}
}

// Case 1: the process is killed between write and fsync; no answered entry is lost, and no receipt stays open.
func TestKilledBetweenWriteAndSync(t *testing.T) {
	dir := place(t)
	intents, outcomes := killed(t, "before-sync", dir, 0)
	recovered(t, dir, intents, outcomes)
}

// Case 2: the process is killed during a write; the torn line is cut, saved and recorded, no answered entry lost.
func TestKilledInsideWrite(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	intents, outcomes := killed(t, "mid-write", dir, 0)
	if r, err := Verify(dir); err != nil || r.OK || r.FirstBad.Reason != audit.Torn {
		t.Fatalf("no torn tail: %v %v", r.FirstBad, err)
	}
	recovered(t, dir, intents, outcomes)
	repairs(t, dir, 1)
}

// TestKilledInsideRepair checks that a repair is repeated correctly if it is killed after the tail is saved and before
// it is cut.
func TestKilledInsideRepair(t *testing.T) {
	dir := place(t)
	intents, outcomes := killed(t, "mid-write", dir, 0)
	killed(t, "before-truncate", dir, 0)
	killed(t, "before-truncate", dir, 0)
	recovered(t, dir, intents, outcomes)
	repairs(t, dir, 3)
	do(t, open(t, Config{Dir: dir}).Close())
	repairs(t, dir, 3)
}

// repairs checks that each saved torn tail is recorded once, with its length and digest.
func repairs(t *testing.T, dir string, want int) {
	t.Helper()
	files, err := filepath.Glob(dir + "/torn-*")
	if err != nil || len(files) != want {
		t.Fatalf("%v %v, want %d", files, err, want)
	}
	recorded := make(map[string]Repair)
	f, err := os.Open(first(dir))
	do(t, err)
	defer f.Close()
	for e, err := range audit.Scan(f, audit.Head{}) {
		do(t, err)
		if e.Kind != audit.KindRepair {
			continue
		}
		var r Repair
		do(t, json.Unmarshal(e.Data, &r))
		if _, twice := recorded[r.File]; twice {
			t.Errorf("%s is on record twice", r.File)
		}
		recorded[r.File] = r
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		do(t, err)
		sum := sha256.Sum256(data)
		r := recorded[filepath.Base(name)]
		if r.Bytes != int64(len(data)) || r.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: %d bytes, on record %+v", name, len(data), r)
		}
		if st, err := os.Stat(name); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v %v", name, st.Mode(), err)
		}
	}
}

// Case 8: a second process opens the ledger; it is refused as long as the first process runs, and no longer.
func TestSecondProcess(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	out, err := command("calls", dir).Output()
	if err == nil || !strings.Contains(string(out), fmt.Sprintf("process %d writes the ledger", os.Getpid())) {
		t.Errorf("%v: %s", err, out)
	}
	do(t, l.Close())
	cmd := command("calls", dir)
	pipe, err := cmd.StdoutPipe()
	do(t, err)
	do(t, cmd.Start())
	if _, err := io.ReadFull(pipe, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if l, err := New(Config{Dir: dir}); err == nil {
		l.Close()
		t.Error("two writers")
	}
	cmd.Process.Kill()
	cmd.Wait()
	open(t, Config{Dir: dir})
}
