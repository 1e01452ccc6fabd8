//go:build linux

package jail

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/battery"
)

// job returns a job that runs the attacker with both places.
func (s *stage) job(t *testing.T, args ...string) bailey.Job {
	t.Helper()
	b, err := json.Marshal(s.Scene)
	if err != nil {
		t.Fatal(err)
	}
	job := bailey.Job{Command: attacker(), Args: args, NeedsProc: s.Proc, Env: []string{battery.Env + "=" + string(b)},
		Places: []bailey.Place{place(t, s.RO, false), place(t, s.RW, true)}}
	if s.Helper != "" {
		job.Exec = []string{s.Helper}
	}
	if s.Wall {
		job.Wall = &bailey.Wall{Trees: hostTrees(), Run: true, Unix: true, Pty: true}
	}
	if s.Net {
		job.Network = &bailey.Network{Listen: []bailey.Listen{{Network: "tcp", Address: "127.0.0.1:3128"}}}
	}
	return job
}

// look checks from outside that the attacks had no effect.
func (s *stage) look(t *testing.T) {
	t.Helper()
	if n := s.callers.Load(); n > 0 {
		t.Errorf("%d callers came out of the cage", n)
	}
	if n, err := unix.Read(s.pipe, make([]byte, 64)); n > 0 || err == nil {
		t.Errorf("%d bytes came through a FIFO in a place that is only read (%v)", n, err)
	}
	select {
	case sig := <-s.signals:
		t.Errorf("the gateway felt %v", sig)
	default:
	}
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, s.Victim); err != nil || nice != s.nice || !running(s.Victim) {
		t.Errorf("the victim is not what it was: priority %d of %d, %v", nice, s.nice, err)
	}
	if name, _ := os.Hostname(); name != s.HostName {
		t.Errorf("the host is called %s now", name)
	}
	if s.digest(t) != s.untouch {
		t.Error("what may only be read was changed")
	}
	for _, line := range s.lingering() {
		t.Errorf("a process is left: %s", line)
	}
}

// running tells whether a process exists and is not a zombie.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := bytes.LastIndexByte(b, ')')
	return err == nil && i > 0 && b[i+2] != 'Z'
}

// lingering lists the processes with the token in their command line, except the victim.
func (s *stage) lingering() (lines []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		if bytes.Contains(b, []byte(s.Token)) && file != fmt.Sprintf("/proc/%d/cmdline", s.Victim) {
			lines = append(lines, fmt.Sprintf("%s %q", file, b))
		}
	}
	return lines
}

// digest covers the names, modes, owners, link counts, sizes and times of all files that must not change.
func (s *stage) digest(t *testing.T) string {
	t.Helper()
	h := sha256.New()
	for _, root := range []string{s.RO, s.Secret, s.Canary, filepath.Join(s.RW, battery.Hidden)} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err == nil {
				err = unix.Lstat(path, &st)
			}
			fmt.Fprintln(h, path, st.Mode, st.Uid, st.Nlink, st.Size, st.Mtim, st.Ctim)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	return string(h.Sum(nil))
}
