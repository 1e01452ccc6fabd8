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
	groups *groups
	digest string
	bounds bounds
	base   uint64   // address of its mailbox
	mounts *os.File // shows whether mounts changed since it was started
	calls  int
	spoilt error // why it can serve no call

	parked      bool     // a cage, or the rest of one, exists
	lists       *lists   // shows which processes live in the cage
	leash, mail *os.File // of the armed cage; nil if none is armed

	ready chan struct{} // closed when it is armed or spoilt; ready and the fields below are guarded by warmth.mu
	taken bool
	used  time.Time
}

// startHelper starts a helper for a user, in a control group of its own, and makes it build the lasting part of its
// cage. The user leaves with it, or if the start fails.
func (j *Jail) startHelper(digest string, b bounds, as user, steps []inside.Step, donated []*os.File) (*helper, error) {
	sum, err := hex.DecodeString(digest)
	if err != nil {
		as.left()
		return nil, err
	}
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0) // must be first, as in arm
	if err != nil {
		as.left()
		return nil, err
	}
	h := &helper{digest: digest, bounds: b, mounts: os.NewFile(uintptr(fd), "mountinfo"), ready: make(chan struct{})}
	null, err := os.Open(os.DevNull)
	if err != nil {
		as.left()
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
	if h.groups, err = j.holder.open(); err != nil {
		h.dismiss()
		return nil, err
	}
	if err := h.build(sum, steps, append([]*os.File{null, null, null}, donated...)); err != nil {
		h.dismiss()
		return nil, err
	}
	return h, nil
}

// build sends the plan and makes the helper prove that it runs this very program with this very plan.
func (h *helper) build(sum []byte, steps []inside.Step, files []*os.File) error {
	if err := h.limit(h.bounds); err != nil {
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
	h.child.send(message, files)
	kind, x, y, err := h.report()
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

func (h *helper) armed() bool { return h.mail != nil }

// waits reports whether the helper is ready, that is, not busy with its next cage.
func (h *helper) waits() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

// fit reports whether the helper can take a call now: the mounts that it shows must be current.
func (h *helper) fit() bool {
	return h.spoilt == nil && !remounted(h.mounts)
}

// worn reports whether it must be replaced.
func (h *helper) worn() bool { return h.spoilt != nil || h.calls >= maxCalls }

// renew gives the helper a control group that no call has used. If ahead is true, it also arms a cage in that group.
func (h *helper) renew(ahead bool) {
	if h.armed() {
		return // the last call did not use the cage
	}
	if h.spoilt = h.clear(); h.spoilt != nil {
		return
	}
	if h.calls > 0 {
		next, err := h.groups.make(h.process.Pid)
		if err == nil {
			err = next.limit(h.bounds)
			h.hold.end()
			h.hold = next
		}
		if h.spoilt = err; err != nil {
			return
		}
	}
	if ahead {
		if h.spoilt = h.arm(); h.spoilt == nil {
			h.spoilt = h.park()
		}
	}
}

// arm makes the helper build a cage with a pending tool in it.
func (h *helper) arm() error {
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
	err = h.pass([]byte{inside.Arm}, theirs)
	closeAll(theirs)
	return err
}

// errUnbuilt marks a helper's own report that it has started no tool.
var errUnbuilt = errors.New("the helper could not build a cage")

// park waits until the armed cage has its pending tool, and opens the lists of the processes in it.
func (h *helper) park() error {
	if h.parked {
		return nil
	}
	kind, x, y, err := h.report()
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

// send makes the pending tool, or one that is about to be pending, execute with the content of mail. It returns false
// if no part of it can reach the tool.
func (h *helper) send(mail []byte, streams []*os.File) bool {
	if h.spoilt == nil {
		h.calls++
		h.spoilt = pass(h.mail, mail, streams)
	}
	return h.spoilt == nil
}

// clear waits until the helper has removed the last cage.
func (h *helper) clear() error {
	if !h.parked {
		return nil
	}
	h.leash.Close() // ends PID 1, and with it all remaining processes
	h.leash = nil
	kind, _, _, err := h.report()
	if err == nil && kind != inside.Gone {
		err = errors.New("the helper did not take its cage apart")
	}
	h.parked = false
	h.lists.close()
	h.lists = nil
	return err
}

// dismiss ends the helper and all processes that it started.
func (h *helper) dismiss() {
	for _, f := range []*os.File{h.leash, h.mail, h.mounts} {
		if f != nil {
			f.Close()
		}
	}
	h.lists.close()
	h.process.Kill()
	h.child.dismiss()
}
