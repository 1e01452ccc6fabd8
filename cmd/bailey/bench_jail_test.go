//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// TestJailRatios checks that each row is compared with the row that its requirement names. If that row is missing,
// there must be no ratio.
func TestJailRatios(t *testing.T) {
	took := func(us ...int) (all []time.Duration) {
		for _, n := range us {
			all = append(all, time.Duration(n)*time.Microsecond)
		}
		return all
	}
	times := map[string][]time.Duration{
		"bwrap": took(4500, 1, 9000), "bare": took(500), "cold": took(9000), "cold-cage": took(4000), "wall": took(6000), "warm": took(1000, 900, 800), "warm-2workers": took(990, 990),
	}
	var ways []way
	for _, name := range []string{"bare", "ondemand", "warm", "warm-2workers", "cold", "cold-cage", "wall", "bwrap"} {
		ways = append(ways, way{name: name})
	}
	words := func() (all []string) {
		for _, r := range newJailRows(ways, times) {
			all = append(all, fmt.Sprintf("%s %d %.0f %.0f %.2f %s %s", r.Name, r.N, r.P50, r.P99, *r.PerBare, ratio(r.OfBwrap), r.required()))
		}
		return all
	}
	want := []string{
		"bare 1 500 500 1.00  ", "warm 3 900 1000 1.80 0.100 ≤ 0.10", "warm-2workers 2 990 990 1.98 0.122 1.10 × warm, ≤ 1.10",
		"cold 1 9000 9000 18.00 2.125 2.00 × bwrap, ≤ 1.00",
		"cold-cage 1 4000 4000 8.00 0.875 ", "wall 1 6000 6000 12.00 1.375 1.50 × cold-cage, ≤ 2.00", "bwrap 3 4500 9000 9.00 1.000 ",
	}
	if got := words(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	times["bwrap-dev"] = times["bwrap"]
	delete(times, "bwrap")
	ways = append(ways, way{name: "bwrap-dev"})
	want[len(want)-1] = "bwrap-dev 3 4500 9000 9.00 1.000 "
	if got := words(); !slices.Equal(got, want) {
		t.Errorf("with devices: %q\nwant %q", got, want)
	}
	delete(times, "bwrap-dev")
	want = []string{
		"bare 1 500 500 1.00  ", "warm 3 900 1000 1.80  ≤ 0.10", "warm-2workers 2 990 990 1.98  1.10 × warm, ≤ 1.10", "cold 1 9000 9000 18.00  ≤ 1.00",
		"cold-cage 1 4000 4000 8.00  ", "wall 1 6000 6000 12.00  1.50 × cold-cage, ≤ 2.00",
	}
	if got := words(); !slices.Equal(got, want) {
		t.Errorf("without bwrap: %q\nwant %q", got, want)
	}
}

// TestBallast checks that the heap has the requested size and stays reachable.
func TestBallast(t *testing.T) {
	wall := ballast(1 << 20)
	if n := len(wall) * 72; n > 1<<20 || n < 1<<20-72 {
		t.Errorf("%d bytes", n)
	}
	for i, b := range wall {
		if b.on != wall[i/2] && i > 0 {
			t.Fatalf("brick %d leads nowhere", i)
		}
	}
}

// TestBenchWithoutBwrap checks that without bwrap the output has neither its row nor a ratio to it, and gives the
// reason.
func TestBenchWithoutBwrap(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "cgroup", "true")
	y := newYard(t)
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	y.env = append(y.env, "PATH="+t.TempDir())
	var said jailRows
	if err := json.Unmarshal([]byte(y.must(y.program, "bench", "jail", "-n", "1", "--json", "--", program)), &said); err != nil {
		t.Fatal(err)
	}
	why := map[string]string{}
	for _, r := range said.Absent {
		why[r.Name] = r.Why
	}
	if !strings.Contains(why["bwrap"], "not found") || why["cold"] == "" || len(why) != 2 {
		t.Errorf("absent: %q", why)
	}
	for _, r := range said.Rows {
		if r.Name == "bwrap" || r.OfBwrap != nil || r.PerBwrap != nil {
			t.Errorf("a row of %+v", r)
		}
	}
	if len(said.Rows) != 8 {
		t.Errorf("rows %+v", said.Rows)
	}
}

// TestBenchLeavesNothing checks that the benchmark leaves no process, file or control group, both at its normal end and
// after Ctrl-C.
func TestBenchLeavesNothing(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "cgroup")
	for _, c := range []struct {
		turns       string
		calls, code int // three calls are made before the first turn
	}{{"1", 0, 0}, {"100000", 4, 130}} {
		t.Run(fmt.Sprint("code=", c.code), func(t *testing.T) {
			y := newYard(t)
			tmp := t.TempDir()
			y.env = append(y.env, "TMPDIR="+tmp)
			cmd, said := y.run(y.repo, "bench", "jail", "-n", c.turns)
			pid := cmd.Process.Pid
			seen := map[process]bool{}
			warm, cold := map[int]bool{}, map[int]bool{} // by pid
			y.await("three jails' helpers and the gateway's, and calls of it", func() bool {
				for _, p := range below(t, pid) {
					seen[p] = p.name != "bwrap" // bwrap ends before its own PID 1
					words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
					warm[p.pid] = warm[p.pid] || bytes.HasPrefix(words, []byte("bailey-warm"))
					cold[p.pid] = cold[p.pid] || bytes.HasPrefix(words, []byte("bailey\x00run\x00"))
				}
				return holding(warm) >= 4 && holding(cold) >= c.calls
			})
			if len(left(t, tmp)) == 0 || len(groupsOf(t, pid)) == 0 {
				t.Error("it has no files or no groups: this test sees nothing")
			}
			if c.code != 0 {
				cmd.Process.Signal(syscall.SIGINT)
			}
			cmd.Wait()
			if code(cmd) != c.code {
				t.Fatalf("it ended with %d: %s", code(cmd), said)
			}
			maps.DeleteFunc(seen, func(_ process, ours bool) bool { return !ours })
			if alive := survivors(t, slices.Collect(maps.Keys(seen))); len(alive) > 0 {
				t.Errorf("processes: %+v", alive)
			}
			if files := left(t, tmp); len(files) > 0 {
				t.Errorf("files: %q", files)
			}
			if groups := groupsOf(t, pid); len(groups) > 0 {
				t.Errorf("groups: %q", groups)
			}
		})
	}
}

// holding counts the true values.
func holding(set map[int]bool) (n int) {
	for _, has := range set {
		if has {
			n++
		}
	}
	return n
}

func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// groupsOf returns the control groups of a gateway, except the one that a process cannot leave in cgroup version 2
// (internal/jail, site.close).
func groupsOf(t *testing.T, pid int) (dirs []string) {
	t.Helper()
	prefix := fmt.Sprintf("%d-", pid)
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		own := strings.HasPrefix(d.Name(), prefix) && strings.HasPrefix(filepath.Base(filepath.Dir(path)), "bailey-")
		if _, err := os.Stat(filepath.Join(path, "self")); own && err != nil || strings.HasPrefix(filepath.Base(filepath.Dir(path)), prefix) && d.Name() != "self" {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}
