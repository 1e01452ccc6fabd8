package jail

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"bailey/internal/jail/inside"
)

// A helper is a warm helper (package inside, warm.go) as the gateway sees it. It belongs to the caller that has taken
// it.
type helper struct {
	child
	groups *cgroupManager
	digest string
	bounds bounds
	base   uint64   // address of its mailbox
	mounts *os.File // shows whether mounts changed since it was started
	calls  int
	spoilt error // why it can serve no call

	parked      bool        // a cage, or the rest of one, exists
	lists       *childLists // shows which processes live in the cage
	leash, mail *os.File    // of the armed cage; nil if none is armed

	ready chan struct{} // closed when it is armed or spoilt; ready and the fields below are guarded by warmth.mu
	taken bool
	used  time.Time
}

// startHelper starts a helper for a user, in a control group of its own, and makes it build the lasting part of its
// cage. The user leaves with it, or if the start fails.
func (j *Jail) startHelper(digest string, b bounds, as user, steps []inside.Step, donated []*os.File) (*helper, error) {
	sum, err := hex.DecodeString(digest)
	if err != nil {
		as.releaseUser()
		return nil, err
	}
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0) // must be first, as in arm
	if err != nil {
		as.releaseUser()
		return nil, err
	}
	h := &helper{digest: digest, bounds: b, mounts: os.NewFile(uintptr(fd), "mountinfo"), ready: make(chan struct{})}
	null, err := os.Open(os.DevNull)
	if err != nil {
		as.releaseUser()
		h.mounts.Close()
		return nil, err
	}
	defer null.Close()
	c, err := j.spawnAs(inside.Warm, as)
	if err != nil {
		h.mounts.Close()
		return nil, err
	}
	h.child = *c
	if h.groups, err = j.holder.openCgroups(); err != nil {
		h.closeAndWait()
		return nil, err
	}
	if err := h.sendAndVerifyPlan(sum, steps, append([]*os.File{null, null, null}, donated...)); err != nil {
		h.closeAndWait()
		return nil, err
	}
	return h, nil
}

// sendAndVerifyPlan sends the plan and makes the helper prove that it runs this very program with this very plan.
func (h *helper) sendAndVerifyPlan(sum []byte, steps []inside.Step, files []*os.File) error {
	if err := h.applyBounds(h.bounds); err != nil {
		return err
	}
	message := inside.Encode(append(make([]byte, 4, 8<<10), sum...), steps)
	if len(message)-4 > inside.MaxBytes {
		return errors.New("the plan is too large")
	}
	binary.LittleEndian.PutUint32(message, uint32(len(message)-4))
	if err := sameProgram(h.process.Pid); err != nil {
		return err
	}
	h.child.sendRequest(message, files)
	kind, x, y, err := h.readReport()
	if err == nil && kind != inside.Ready {
		err = fmt.Errorf("step %d: %w", x, unix.Errno(y))
	}
	var back [inside.DigestSize]byte
	if err == nil {
		_, err = io.ReadFull(h.stream, back[:])
	}
	if err != nil {
		return fmt.Errorf("the helper did not build what stands: %w", err)
	}
	if !bytes.Equal(back[:], sum) {
		return errors.New("the helper has another plan than was meant")
	}
	h.base = uint64(x) | uint64(y)<<32
	return nil
}

// sameProgram compares the executable of a process with that of this process.
func sameProgram(pid int) error {
	var theirs, ours unix.Stat_t
	if err := errors.Join(unix.Stat(fmt.Sprintf("/proc/%d/exe", pid), &theirs), unix.Stat(self, &ours)); err != nil {
		return err
	}
	if theirs.Dev != ours.Dev || theirs.Ino != ours.Ino {
		return errors.New("the helper runs another program")
	}
	return nil
}

func (h *helper) hasArmedCage() bool { return h.mail != nil }

// isReady reports whether the helper is ready, that is, not busy with its next cage.
func (h *helper) isReady() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

// isUsable reports whether the helper can take a call now: the mounts that it shows must be current.
func (h *helper) isUsable() bool {
	return h.spoilt == nil && !hasMountChange(h.mounts)
}

// isWornOut reports whether it must be replaced.
func (h *helper) isWornOut() bool { return h.spoilt != nil || h.calls >= maxCalls }

// prepareNext gives the helper a control group that no call has used. If ahead is true, it also arms a cage in that group.
func (h *helper) prepareNext(ahead bool) {
	if h.hasArmedCage() {
		return // the last call did not use the cage
	}
	if h.spoilt = h.removeCage(); h.spoilt != nil {
		return
	}
	if h.calls > 0 {
		next, err := h.groups.createCgroup(h.process.Pid)
		if err == nil {
			err = next.setBounds(h.bounds)
			h.hold.stopEnforcing()
			h.hold = next
		}
		if h.spoilt = err; err != nil {
			return
		}
	}
	if ahead {
		if h.spoilt = h.armCage(); h.spoilt == nil {
			h.spoilt = h.waitUntilParked()
		}
	}
}

// armCage makes the helper build a cage with a pending tool in it.
func (h *helper) armCage() error {
	var pair [2]int
	leash, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
		unix.Close(leash[0])
		unix.Close(leash[1])
		return os.NewSyscallError("socketpair", err)
	}
	h.leash, h.mail = os.NewFile(uintptr(leash[0]), "leash"), os.NewFile(uintptr(pair[0]), "mailbox")
	theirs := []*os.File{os.NewFile(uintptr(leash[1]), "leash"), os.NewFile(uintptr(pair[1]), "mailbox")}
	err = h.passFiles([]byte{inside.Arm}, theirs)
	closeAll(theirs)
	return err
}

// errUnbuilt marks a helper's own report that it has started no tool.
var errUnbuilt = errors.New("the helper could not build a cage")

// waitUntilParked waits until the armed cage has its pending tool, and opens the lists of the processes in it.
func (h *helper) waitUntilParked() error {
	if h.parked {
		return nil
	}
	kind, x, y, err := h.readReport()
	if err != nil {
		return err
	}
	switch kind {
	case inside.Parked:
	case inside.Failed:
		return fmt.Errorf("%w: step %d, %w", errUnbuilt, x, unix.Errno(y))
	default:
		return errors.New("the helper speaks out of turn")
	}
	h.parked, h.lists = true, listsOf(h.process.Pid)
	return nil
}

// sendCall makes the pending tool, or one that is about to be pending, execute with the content of mail. It returns false
// if no part of it can reach the tool.
func (h *helper) sendCall(mail []byte, streams []*os.File) bool {
	if h.spoilt == nil {
		h.calls++
		h.spoilt = sendWithFiles(h.mail, mail, streams)
	}
	return h.spoilt == nil
}

// removeCage waits until the helper has removed the last cage.
func (h *helper) removeCage() error {
	if !h.parked {
		return nil
	}
	h.leash.Close() // ends PID 1, and with it all remaining processes
	h.leash = nil
	kind, _, _, err := h.readReport()
	if err == nil && kind != inside.Gone {
		err = errors.New("the helper did not take its cage apart")
	}
	h.parked = false
	h.lists.close()
	h.lists = nil
	return err
}

// closeAndWait ends the helper and all processes that it started.
func (h *helper) closeAndWait() {
	for _, f := range []*os.File{h.leash, h.mail, h.mounts} {
		if f != nil {
			f.Close()
		}
	}
	h.lists.close()
	h.process.Kill()
	h.child.closeAndWait()
}
