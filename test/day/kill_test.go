//go:build linux

package day

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// readHistory makes one attempt that the ledger can tell from all others, and reports whether a result came.
func (d *day) readHistory() bool {
	d.t.Helper()
	d.attempt++
	limit := 100 + d.attempt
	got := d.agent.call("git_log", map[string]any{"repo": ".", "limit": limit})
	if got.Bad && strings.Contains(got.Text, "the call may have run") {
		d.lost[fmt.Sprint(limit)] = true
		return false
	}
	if got.Bad || !strings.Contains(got.Text, "lay the first stone") {
		d.t.Errorf("attempt %d: %s", d.attempt, got.Text)
	}
	return true
}

// persist reads the history until a result comes. Only the model may repeat a call, because the error tells it to check
// first.
func (d *day) persist() {
	d.t.Helper()
	for range 5 {
		if d.readHistory() {
			return
		}
	}
	d.t.Error("no gateway answers")
}

func (d *day) killedBetween() {
	for range 3 {
		if !d.u.kill(syscall.SIGKILL) {
			d.t.Error("no gateway to kill")
		}
		d.persist()
	}
}

// killedWithin kills the gateway while a tool hangs. The caller must get an error, the tool must not survive, and the
// receipt must state the known facts.
func (d *day) killedWithin() {
	for range 2 {
		before, killed := d.count(`"git.status"`), make(chan bool)
		go func() {
			await(d.t, "the hanging call's intent and tool", func() bool { return d.count(`"git.status"`) > before && d.gits() > 0 })
			killed <- d.u.kill(syscall.SIGKILL)
		}()
		d.want = append(d.want, "interrupted")
		d.expect(true, "git_status", map[string]any{"repo": "stuck"}, "the gateway stopped during the call: the call may have run; see bailey receipts list")
		if !<-killed {
			d.t.Error("no gateway to kill")
		}
		await(d.t, "the end of what the gateway ran", func() bool { return d.gits() == 0 })
		d.persist()
	}
}

// killedAnywhere kills the gateway at other moments of a call, from its first byte to after its end.
func (d *day) killedAnywhere() {
	for _, after := range []time.Duration{0, 1, 2, 4, 6, 9, 14, 30} {
		killed := make(chan bool)
		go func() {
			time.Sleep(after * time.Millisecond)
			killed <- d.u.kill(syscall.SIGKILL)
		}()
		d.readHistory()
		<-killed
		d.persist()
	}
}

// count returns the number of occurrences of a text in the ledger.
func (d *day) count(text string) int {
	b, _ := os.ReadFile(filepath.Join(d.u.ledger(), "00000001.jsonl"))
	return strings.Count(string(b), text)
}

// gits returns the number of running programs named git in the repository that hangs.
func (d *day) gits() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		line, _ := os.ReadFile(name)
		if stuck := filepath.Join(d.u.project, "stuck"); strings.HasPrefix(string(line), "git\x00") {
			if dir, err := os.Readlink(filepath.Join(filepath.Dir(name), "cwd")); err == nil && dir == stuck {
				n++
			}
		}
	}
	return n
}
