//go:build linux

package jail

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// falseName turns a test binary into a helper that its last tool has compromised. It acts like a helper until its first
// argument makes it deviate.
const falseName = "bailey-false"

func falseMain(lie string) int {
	say := func(kind byte, x, y uint32) {
		b := []byte{kind, byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24), byte(y), byte(y >> 8), byte(y >> 16), byte(y >> 24)}
		unix.Write(inside.Socket, b)
	}
	b := make([]byte, 1<<20)
	silent := func() { // ends with the gateway
		for n := 1; n > 0; {
			n, _ = unix.Read(inside.Socket, b)
		}
		os.Exit(1)
	}
	n := 0
	for n < 4 || n < 4+int(binary.LittleEndian.Uint32(b)) {
		got, _, _, _, err := unix.Recvmsg(inside.Socket, b[n:], make([]byte, 4096), 0)
		if err != nil || got == 0 {
			return 1
		}
		n += got
	}
	digest := slices.Clone(b[4 : 4+inside.DigestSize])
	switch lie {
	case "no handshake":
		return 1
	case "a silent handshake":
		silent()
	case "another plan":
		digest[31] ^= 1
	case "half a handshake":
		say(inside.Ready, 4096, 0)
		unix.Write(inside.Socket, digest[:20])
		return 1
	case "a failure":
		say(inside.Failed, 3, uint32(unix.ENOENT))
		return 1
	case "an unready handshake":
		say(inside.Parked, 0, 0)
		unix.Write(inside.Socket, digest)
		silent()
	}
	say(inside.Ready, 4096, 0)
	unix.Write(inside.Socket, digest)
	for {
		rights := make([]byte, 256)
		n, m, _, _, err := unix.Recvmsg(inside.Socket, b[:1], rights, 0)
		if err != nil || n == 0 {
			return 0
		}
		messages, err := unix.ParseSocketControlMessage(rights[:m])
		if err != nil || len(messages) != 1 {
			return 1
		}
		fds, _ := unix.ParseUnixRights(&messages[0])
		switch lie {
		case "dies when armed":
			return 1
		case "silent when armed":
			silent()
		case "Exited for Parked":
			say(inside.Exited, 0, 0)
			silent()
		case "fails when armed":
			say(inside.Failed, 1, uint32(unix.EIO))
			return 1
		}
		say(inside.Parked, 0, 0)
		if n, _, _, _, err := unix.Recvmsg(fds[1], b, make([]byte, 256), 0); n == 0 || err != nil {
			return 1
		}
		switch lie {
		case "dies in the call":
			return 1
		case "silent in the call":
			silent()
		case "half a report":
			unix.Write(inside.Socket, []byte{inside.Exited, 0, 0})
			silent()
		case "half a report, and dies":
			unix.Write(inside.Socket, []byte{inside.Exited, 0, 0})
			return 1
		case "noise":
			unix.Write(inside.Socket, []byte("noisenoisenoisenoise"))
			silent()
		case "Gone for Exited":
			say(inside.Gone, 0, 0)
		case "Parked for Exited":
			say(inside.Parked, 0, 0)
		case "Ready for Exited":
			say(inside.Ready, 1, 2)
		case "Exited, and dies":
			say(inside.Exited, 0, 0)
			return 1
		case "Exited, and silent":
			say(inside.Exited, 0, 0)
			silent()
		case "Exited, half of Gone":
			say(inside.Exited, 0, 0)
			unix.Write(inside.Socket, []byte{inside.Gone})
			silent()
		case "Exited twice":
			say(inside.Exited, 0, 0)
			say(inside.Exited, 7<<8, 0)
		case "a flood":
			for {
				say(inside.Exited, 0, 0)
			}
		case "fails":
			say(inside.Failed, 1, uint32(unix.EIO))
			return 1
		case "fails nowhere":
			say(inside.Failed, 1<<31, 1<<31)
			return 1
		case "Unused, and silent":
			say(inside.Unused, 0, 0)
			silent()
		}
		silent()
	}
}

// turned starts a false helper for calls of the job's plan. Building it has no time limit. Then each answer may take as
// long as answer says, or as the jail allows if that is zero.
func (w *warmed) turned(t *testing.T, job bailey.Job, lie string, answer time.Duration) (*helper, error) {
	t.Helper()
	planned, err := w.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	r := planned.(*run)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "helper")
	unix.SetNonblock(pair[0], true)
	p, err := os.StartProcess(self, []string{falseName, lie}, &os.ProcAttr{Files: []*os.File{inside.Socket: theirs}})
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	h := &helper{child: child{process: p, times: w.times, stream: os.NewFile(uintptr(pair[0]), "helper")}, digest: r.cage.PlanDigest, bounds: r.plan.bounds,
		mounts: table, ready: make(chan struct{})}
	if h.hold, err = w.holder.newEnforcer(p); err != nil {
		t.Fatal(err)
	}
	h.groups, _ = w.holder.openCgroups()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	sum, _ := hex.DecodeString(h.digest)
	if err := h.sendAndVerifyPlan(sum, r.plan.wireSteps(), []*os.File{null, null, null}); err != nil {
		h.closeAndWait()
		return h, err
	}
	h.times.answer = cmp.Or(answer, h.times.answer)
	w.cages().mu.Lock()
	w.cages().starting++
	w.cages().mu.Unlock()
	w.cages().busy.Add(1)
	w.cages().finishStart(h.digest, h, nil)
	return h, nil
}

// TestFalseHelper checks that, whatever a compromised helper reports, a call ends in time. If the helper may have run
// the tool, the gateway must not; otherwise it must run it once. The helper must get no further call.
func TestFalseHelper(t *testing.T) {
	t.Parallel()
	killed := bailey.Exit{Code: 137}
	late := bailey.Exit{Code: 137, TimedOut: true}
	fine := bailey.Exit{}
	for _, c := range []struct {
		lie  string
		exit bailey.Exit
		runs int // by the gateway, in a cold cage
	}{
		{"dies when armed", fine, 1},
		{"Exited for Parked", fine, 1},
		{"fails when armed", fine, 1},
		{"dies in the call", killed, 0},
		{"silent in the call", late, 0},
		{"half a report", late, 0},
		{"half a report, and dies", killed, 0},
		{"noise", killed, 0},
		{"Gone for Exited", killed, 0},
		{"Parked for Exited", killed, 0},
		{"Ready for Exited", killed, 0},
		{"Exited, and dies", fine, 0},
		{"Exited, and silent", fine, 0},
		{"Exited, half of Gone", fine, 0},
		{"Exited twice", fine, 0},
		{"a flood", fine, 0},
		// A helper's report about its own call is trusted, like that of any PID 1: one that lies could itself run the
		// tool as often as it likes.
		{"fails", fine, 1},
		{"fails nowhere", fine, 1},
		{"Unused, and silent", fine, 1},
	} {
		for _, onDemand := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/on demand %v", c.lie, onDemand), func(t *testing.T) {
				t.Parallel()
				w := warmJail(t, Config{OnDemand: onDemand, Grace: short})
				dir, p := writable(t)
				file := filepath.Join(dir, "runs")
				job := bailey.Job{Command: probe, Args: []string{"count", file}, Places: []bailey.Place{p}, Timeout: time.Minute}
				if c.exit == late {
					job.Timeout = 1500 * time.Millisecond // enough for the helper to begin on a busy machine
				}
				h, err := w.turned(t, job, c.lie, 0)
				if err != nil {
					t.Fatal(err)
				}
				if slices.Contains([]string{"Exited, and silent", "Exited, half of Gone", "Unused, and silent"}, c.lie) {
					h.times.answer = short // limit for the answer that never comes
				}
				begin := time.Now()
				exit, err := start(t.Context(), w.Jail, job, nil, bailey.Streams{})
				took := time.Since(begin)
				if err != nil || exit != c.exit || size(file) != c.runs {
					t.Errorf("%+v, %v, %d runs; want %+v, %d", exit, err, size(file), c.exit, c.runs)
				}
				if took > job.Timeout+h.times.answer+time.Minute {
					t.Errorf("it took %v", took)
				}
				before := size(file)
				job.Timeout = time.Minute
				begin = time.Now()
				exit, err = start(t.Context(), w.Jail, job, nil, bailey.Streams{})
				if err != nil || exit != fine || size(file) != before+1 || time.Since(begin) > h.times.answer+time.Minute {
					t.Errorf("the next call: %+v, %v, %d runs, after %v", exit, err, size(file)-before, time.Since(begin))
				}
				w.cages().busy.Wait()
				if slices.Contains(w.cages().helpers, h) || alive(h.process.Pid) {
					t.Error("the helper was kept")
				}
			})
		}
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// TestSilentWhenArmed checks that if a helper never gets a cage ready, the gateway waits only for the answer time, and
// later calls are not delayed.
func TestSilentWhenArmed(t *testing.T) {
	t.Parallel()
	for _, onDemand := range []bool{false, true} {
		t.Run(fmt.Sprintf("on demand %v", onDemand), func(t *testing.T) {
			t.Parallel()
			w := warmJail(t, Config{OnDemand: onDemand})
			job := bailey.Job{Command: probe, Args: []string{"exit", "5"}, Timeout: time.Minute}
			if onDemand {
				job.Timeout = 3 * short // expires while the call waits for the helper
			}
			turned := make(chan *helper)
			go func() { h, _ := w.turned(t, job, "silent when armed", 3*short); turned <- h }()
			for begin := time.Now(); len(w.cages().all()) == 0 && time.Since(begin) < time.Minute; {
				time.Sleep(time.Millisecond)
			}
			begin := time.Now()
			_, err := start(t.Context(), w.Jail, job, nil, bailey.Streams{})
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("%v, %v", err, took)
			}
			if onDemand && bailey.KindOf(err) != bailey.Unavailable || !onDemand && err != nil {
				t.Errorf("%v", err)
			}
			w.cages().busy.Wait()
			if h := <-turned; alive(h.process.Pid) && slices.Contains(w.cages().all(), h) {
				t.Error("the helper was kept")
			}
			job.Timeout = time.Minute
			if exit, err := start(t.Context(), w.Jail, job, nil, bailey.Streams{}); err != nil || exit.Code != 5 {
				t.Errorf("the next call: %+v, %v", exit, err)
			}
		})
	}
}

func (w *helperPool) all() []*helper {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.helpers)
}

// TestFalseHandshake checks that a helper gets no call if it is not this program with this plan.
func TestFalseHandshake(t *testing.T) {
	t.Parallel()
	w, hasty := warmJail(t, Config{}), warmJail(t, Config{Answer: 2 * short})
	for lie, w := range map[string]*warmed{"no handshake": w, "another plan": w, "half a handshake": w, "a failure": w, "an unready handshake": w, "a silent handshake": hasty} {
		begin := time.Now()
		h, err := w.turned(t, bailey.Job{Command: probe}, lie, 0)
		if err == nil || time.Since(begin) > DefaultAnswer+time.Minute || alive(h.process.Pid) {
			t.Errorf("%s: %v after %v", lie, err, time.Since(begin))
		}
	}
	if err := sameProgram(os.Getpid()); err != nil {
		t.Error(err)
	}
	sleeper, err := os.StartProcess("/bin/sleep", []string{"bailey-warm", "60"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	defer sleeper.Kill()
	var wrong error
	// until its execve it is a copy of this process
	for begin := time.Now(); wrong == nil && time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
		wrong = sameProgram(sleeper.Pid)
	}
	if wrong == nil || !strings.Contains(wrong.Error(), "another program") && !errors.Is(wrong, os.ErrNotExist) {
		t.Errorf("another program is taken for this one: %v", wrong)
	}
}

// TestUnreadMail checks that mail counts as unread even if another process still has a copy of the helper's end when the
// helper is gone. Mail that was read counts as read.
func TestUnreadMail(t *testing.T) {
	for _, unread := range []bool{true, false} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		h := &helper{mail: os.NewFile(uintptr(pair[0]), "mail")}
		defer h.mail.Close()
		if _, err := unix.Write(pair[0], []byte("mail")); err != nil {
			t.Fatal(err)
		}
		if !unread {
			unix.Read(pair[1], make([]byte, 4))
		}
		time.AfterFunc(50*time.Millisecond, func() { unix.Close(pair[1]) })
		if h.isMailRead() == unread {
			t.Errorf("unread %v: read returns %v", unread, unread)
		}
	}
}
