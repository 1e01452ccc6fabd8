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

	"bailey/internal/ktest"
)

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
	var said struct {
		Rows []struct {
			Name, Of, Note string
			N              int
			Ratio          *float64
		}
	}
	if err := json.Unmarshal([]byte(y.must(y.program, "bench", "jail", "-n", "1", "--json", "--", program)), &said); err != nil {
		t.Fatal(err)
	}
	why, measured := map[string]string{}, map[string]bool{}
	for _, r := range said.Rows {
		if r.N == 0 {
			why[r.Name] = r.Note
			continue
		}
		measured[r.Name] = true
		if r.Name == "bwrap" || strings.Contains(r.Of, "bwrap") || (r.Ratio == nil) != (r.Of == "") {
			t.Errorf("a row of %+v", r)
		}
	}
	if !strings.Contains(why["bwrap"], "not found") || why["cold"] == "" || len(why) != 2 {
		t.Errorf("absent: %q", why)
	}
	if len(measured) != 8 {
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
