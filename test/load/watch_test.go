//go:build linux

package load_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"bailey/internal/peer"
)

// mark is a sample of the gateway.
type mark struct{ kib, files int }

// process identifies a process uniquely, even if its pid is reused.
type process struct {
	pid   int
	start string // in clock ticks since boot (proc_pid_stat(5))
}

func (s *site) gateway() int {
	conn, err := peer.Dial(filepath.Join(s.home, "gateway.sock"))
	if err != nil {
		return 0
	}
	defer conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.gateways, conn.PID) {
		s.gateways = append(s.gateways, conn.PID)
	}
	return conn.PID
}

// killer ends gateways, by a signal or by the stop command.
func (s *site) killer(stop <-chan struct{}, most time.Duration) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Second + rand.N(most)):
		}
		pid := s.gateway()
		if pid == 0 {
			continue
		}
		switch rand.IntN(4) {
		case 0:
			syscall.Kill(pid, syscall.SIGTERM)
			s.count("gateway terminated")
		case 1:
			if out, err := s.command("gateway", "stop").CombinedOutput(); err != nil {
				s.t.Errorf("stop: %v %s", err, out)
			}
			s.count("gateway stopped")
		default:
			syscall.Kill(pid, syscall.SIGKILL)
			s.count("gateway killed")
		}
	}
}

// watch samples the gateway and records every process below it.
func (s *site) watch(stop <-chan struct{}) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		pid := s.gateway()
		if pid == 0 {
			continue
		}
		kib, kerr := rss(pid)
		files, ferr := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		s.mu.Lock()
		if kerr == nil && ferr == nil {
			s.marks = append(s.marks, mark{kib, len(files)})
		}
		for _, p := range below(pid) {
			s.seen[p] = true
		}
		s.mu.Unlock()
	}
}

// flat compares the first third of the samples with the last: neither memory nor descriptors may grow.
func (s *site) flat() {
	n := len(s.marks) / 3
	if n == 0 {
		s.t.Error("the gateway was never seen")
		return
	}
	middle := func(part []mark, of func(mark) int) int {
		var all []int
		for _, m := range part {
			all = append(all, of(m))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for name, c := range map[string]struct {
		of    func(mark) int
		slack int
	}{
		"KiB of memory": {func(m mark) int { return m.kib }, 32 << 10},
		// A running call has a dozen, and the number of running calls is random: [site.idle] counts them afterwards.
		"descriptors": {func(m mark) int { return m.files }, 512},
	} {
		first, last := middle(s.marks[:n], c.of), middle(s.marks[len(s.marks)-n:], c.of)
		s.t.Logf("%s: %d in the first third, %d in the last (medians of %d)", name, first, last, n)
		if last > first*3/2+c.slack {
			s.t.Errorf("the gateway grew from %d to %d %s", first, last, name)
		}
	}
}

// idle checks that the gateway has no more descriptors than an idle one.
func (s *site) idle() {
	n := 0
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.gateway()))
		if n = len(files); err == nil && n <= 48+4*8 { // helpers have some
			return
		}
	}
	s.t.Errorf("a gateway with nothing to do holds %d descriptors", n)
}

// empty checks that every process that was ever below a gateway has ended, and every process of this program.
func (s *site) empty() {
	var left []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = nil
		for p := range s.seen {
			if stat(p.pid).start == p.start {
				left = append(left, fmt.Sprint(p.pid))
			}
		}
		links, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, link := range links {
			if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, s.program) {
				left = append(left, link)
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.ESRCH) {
				s.t.Error(err)
			}
		}
		if len(left) == 0 {
			s.t.Logf("%d processes were seen below gateways, none is left", len(s.seen))
			return
		}
	}
	s.t.Errorf("processes are left: %v", left)
}

func rss(pid int) (kib int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, fmt.Errorf("statm of %d: %q", pid, b)
	}
	pages, err := strconv.Atoi(f[1])
	return pages * os.Getpagesize() / 1024, err
}

type status struct {
	parent int
	start  string
}

// stat reads the status of a process. It returns the zero status if the process has ended or is a zombie, which holds
// no resources any more.
func stat(pid int) status {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := strings.LastIndex(string(b), ") ")
	if err != nil || end < 0 {
		return status{}
	}
	f := strings.Fields(string(b)[end+2:])
	if f[0] == "Z" {
		return status{}
	}
	parent, _ := strconv.Atoi(f[1])
	return status{parent, f[19]}
}

func below(root int) []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	all := map[int]status{}
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			all[pid] = stat(pid)
		}
	}
	var found []process
	for pid, st := range all {
		for up := st.parent; up > 1; up = all[up].parent {
			if up == root {
				found = append(found, process{pid, st.start})
				break
			}
		}
	}
	slices.SortFunc(found, func(a, b process) int { return a.pid - b.pid })
	return found
}
