//go:build linux

package jail

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// armedWhen waits until n armed processes wait, and returns their pids.
func (j *Jail) armedWhen(t *testing.T, n int) map[int]bool {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		pids := map[int]bool{}
		for _, a := range j.cages().stock.all() {
			pids[a.process.Pid] = true
		}
		if len(pids) == n {
			return pids
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d wait, want %d", len(pids), n)
		}
	}
}

// TestStock checks the stock's size: each call that finds it empty raises it by one, up to eight. Each armed process
// must serve one call only. After a time without calls one stays, and after Close none.
func TestStock(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	call := func() {
		if r := ask(t, j, bailey.Job{}, "exit", "0"); r.err != nil || r.exit.Code != 0 {
			t.Errorf("%+v", r)
		}
	}
	call() // also the trial of the host
	j.armedWhen(t, 1)
	for more := range maxArmed + 1 {
		j.cages().stock.empty() // as if other calls had just used them
		call()
		j.armedWhen(t, min(more+2, maxArmed))
	}
	first := j.armedWhen(t, maxArmed)
	for range maxArmed {
		call()
	}
	second := j.armedWhen(t, maxArmed)
	for pid := range second {
		if first[pid] {
			t.Errorf("%d waits again", pid)
		}
	}
	j.cages().stock.shrinkToOne()
	j.cages().stock.busy.Wait()
	kept := j.armedWhen(t, 1)
	for pid := range second {
		if !kept[pid] {
			vanishes(t, "a while without a call", pid)
		}
	}
	call()
	last := j.armedWhen(t, 1)
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	for pid := range last {
		vanishes(t, "the jail was closed", pid)
	}
	call()
	j.armedWhen(t, 0)
}

// TestStockAtTheEnd checks that no process stays that was about to start when the jail was closed.
func TestStockAtTheEnd(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns")
	before := offspring()
	for i := range 20 {
		j := plainJail(t, Config{})
		j.chosen, j.cages().closed = true, true
		j.cages().stock.more = i % maxArmed
		j.cages().stock.refillPool(false)
		time.Sleep(time.Duration(i) * time.Millisecond)
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		j.armedWhen(t, 0)
	}
	for _, pid := range offspring() {
		if !slices.Contains(before, pid) {
			t.Errorf("left: %d", pid)
		}
	}
}

// offspring returns all children of this process.
func offspring() (pids []int) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range tasks {
		b, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(b)) {
			n, _ := strconv.Atoi(word)
			pids = append(pids, n)
		}
	}
	return pids
}
