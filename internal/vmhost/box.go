//go:build linux

package vmhost

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/guestclient"
	"bailey/internal/guestwire"
	"bailey/internal/hostapi"
	"bailey/internal/vm"
)

// A box is a sandbox. turn has its token while no operation changes the sandbox; commands do not need it.
type box struct {
	h    *Host
	dir  string
	turn chan struct{}

	dialing sync.Mutex // held while a session begins

	mu      sync.Mutex // guards what follows; never held while something waits
	record  boxRecord
	machine *vm.Machine // nil if it has none
	session *guestclient.Session
	gone    bool                // it was destroyed
	network *network            // of the session; nil if it has none
	told    bailey.EgressReport // of former networks, and not yet taken
}

func (h *Host) newBox(r boxRecord) *box {
	b := &box{h: h, dir: h.boxDir(r.ID), record: r, turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

func (b *box) recordNow() boxRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record
}

func (b *box) machineNow() *vm.Machine {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.machine
}

// takeTurn waits until no other operation changes the sandbox.
func (b *box) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case <-b.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		b.turn <- struct{}{}
		return nil, missingSandbox(b.record.ID)
	}
	return func() { b.turn <- struct{}{} }, nil
}

// setRecord changes the record on disk, and then in memory. The caller has the turn.
func (b *box) setRecord(durable bool, change func(r *boxRecord)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.record
	change(&r)
	if err := writeRecord(b.dir, r, durable); err != nil {
		return err
	}
	b.record = r
	return nil
}

func (b *box) machineDir(n int) string { return filepath.Join(b.dir, fmt.Sprintf("machine-%d", n)) }

// describeBox returns the sandbox as clients see it. It asks QEMU for the state of a running one.
func (b *box) describeBox(ctx context.Context) hostapi.Sandbox {
	b.mu.Lock()
	r, m := b.record, b.machine
	b.mu.Unlock()
	s := r.Sandbox
	if m == nil || s.State != hostapi.Running && s.State != hostapi.Paused {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := m.Status(ctx)
	switch {
	case err != nil:
		s.Problem, s.Hint = "QEMU does not answer: "+err.Error(), "destroy the sandbox if that does not change"
	case st.State == vm.Failed:
		s.State, s.Problem, s.Hint = hostapi.Failed, st.Problem, st.Hint
	case st.State == vm.Ended:
		s.State, s.Problem, s.Hint = hostapi.Ended, st.Problem, st.Hint
	}
	return s
}

// closeSession ends the session with the guest.
func (b *box) closeSession() {
	b.mu.Lock()
	s := b.session
	b.session = nil
	b.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// openSession returns the session with the guest of a running sandbox, and begins one if there is none.
func (b *box) openSession(ctx context.Context) (*guestclient.Session, error) {
	b.dialing.Lock()
	defer b.dialing.Unlock()
	b.mu.Lock()
	r, m, s := b.record, b.machine, b.session
	b.mu.Unlock()
	if err := mustRun(r.Sandbox, m); err != nil {
		return nil, err
	}
	if s != nil {
		select {
		case <-s.Done():
		default:
			return s, nil
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.h.GuestTime, bailey.Unavailable.Errorf(
		"show the sandbox; if it runs, its guest is overloaded or damaged: destroy it", "the guest does not answer within %v",
		b.h.GuestTime))
	defer cancel()
	s, err := redialGuest(ctx, m, guestclient.Config{Marker: &r.Marker, OpTime: b.h.GuestTime}, r.Marker, false)
	if err != nil {
		return nil, err
	}
	if err := b.startNetwork(ctx, s); err != nil {
		s.Close()
		return nil, err
	}
	return s, b.keepSession(m, s)
}

// keepSession makes s the session of the sandbox unless it got another machine meanwhile.
func (b *box) keepSession(m *vm.Machine, s *guestclient.Session) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.machine != m {
		s.Close()
		return bailey.Conflict.New("the sandbox got another machine meanwhile", "call again")
	}
	b.session = s
	return nil
}

// mustRun returns an error unless commands can run in the sandbox.
func mustRun(s hostapi.Sandbox, m *vm.Machine) error {
	hints := map[hostapi.State]string{hostapi.Paused: "resume it: bailey sandbox resume " + s.Name,
		hostapi.Stopped: "start it: bailey sandbox start " + s.Name, hostapi.Creating: "wait until it is created",
		hostapi.Ended: cmp.Or(s.Hint, "destroy it and create another")}
	switch {
	case s.State == hostapi.Ended:
		return bailey.Unavailable.Errorf(hints[s.State], "the sandbox %s has ended: %s", s.Name, s.Problem)
	case s.State != hostapi.Running || m == nil:
		return bailey.Conflict.Errorf(hints[s.State], "the sandbox %s is not running: it is %s", s.Name, s.State)
	case m.Err() != nil:
		return bailey.Unavailable.Wrapf(m.Err(), "destroy it and create another", "the sandbox %s has ended", s.Name)
	}
	return nil
}

// dialGuest begins a session with a guest that has just booted.
func dialGuest(ctx context.Context, m *vm.Machine, cfg guestclient.Config) (*guestclient.Session, error) {
	cfg.HelloTime = time.Hour // ctx ends earlier
	conn, err := m.Channel(ctx)
	if err != nil {
		return nil, endOf(m, err)
	}
	s, err := guestclient.Dial(ctx, conn, cfg)
	if err != nil {
		return nil, endOf(m, cmp.Or(context.Cause(ctx), err))
	}
	return s, nil
}

// redialGuest begins a session with a guest that had one, with the given marker. While no host is connected, the port
// reads as ended in a running guest, and not in one that was just resumed, so the agent may or may not have seen the
// end
// of its former session. Both beginnings are tried in turns, with a pause in which the agent sees the end. resumed says
// which is more likely.
func redialGuest(ctx context.Context, m *vm.Machine, cfg guestclient.Config, marker guestclient.Marker,
	resumed bool) (*guestclient.Session, error) {
	for patience := time.Second; ; patience = min(2*patience, time.Minute) {
		cfg.Resync, cfg.HelloTime = nil, patience
		if resumed {
			cfg.Resync = &marker
		}
		conn, err := m.Channel(ctx)
		if err != nil {
			return nil, endOf(m, err)
		}
		s, err := guestclient.Dial(ctx, conn, cfg)
		switch {
		case err == nil:
			return s, nil
		case m.Err() != nil:
			return nil, endOf(m, err)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		resumed = !resumed
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// endOf returns how QEMU ended if it has, and else err.
func endOf(m *vm.Machine, err error) error {
	select {
	case <-m.Done():
	case <-time.After(100 * time.Millisecond): // the end of a process is noticed after that of its connections
	}
	if end := m.Err(); end != nil {
		return end
	}
	return err
}

// renewGuest begins the first session with a clone and makes another machine of it: the session serves no command
// before.
func (b *box) renewGuest(ctx context.Context, m *vm.Machine, t templateRecord) (*guestclient.Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*b.h.GuestTime,
		bailey.Unavailable.Errorf("destroy a sandbox, or try again",
			"the guest of the new machine does not answer within %v", 2*b.h.GuestTime))
	defer cancel()
	r := b.recordNow()
	cfg := guestclient.Config{MustRenew: true, Marker: &r.Marker, OpTime: b.h.GuestTime}
	s, err := redialGuest(ctx, m, cfg, t.Marker, true)
	if err != nil {
		return nil, err
	}
	renewal := guestwire.Renewal{Hostname: r.Name, MachineID: r.MachineID}
	for _, name := range t.Interfaces { // if one is missing, the session refuses the renewal
		renewal.Network = append(renewal.Network, guestwire.Interface{Name: name, MAC: randomMAC()})
	}
	_, err = s.Renew(ctx, renewal)
	if err != nil {
		s.Close()
		return nil, endOf(m, cmp.Or(context.Cause(ctx), err))
	}
	return s, nil
}

// randomMAC returns an address of QEMU's range for local use.
func randomMAC() string {
	var n [3]byte
	rand.Read(n[:])
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", n[0], n[1], n[2])
}

func randomHex() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// newID returns a random id with a prefix of two letters.
func newID(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()) }

// replaceMachine makes m the machine of the sandbox, and watches it. The caller has the turn.
func (b *box) replaceMachine(m *vm.Machine, s *guestclient.Session) {
	b.closeSession()
	b.mu.Lock()
	b.machine, b.session = m, s
	b.mu.Unlock()
	if m != nil {
		go b.watchMachine(m)
	}
}

// watchMachine records the end of a machine that was not ended by an operation, and removes the rest of it.
func (b *box) watchMachine(m *vm.Machine) {
	<-m.Done()
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	if b.machineNow() != m {
		return
	}
	b.closeSession()
	err := b.setRecord(false, func(r *boxRecord) { endRecord(r, m.Err()) })
	if err == nil {
		b.mu.Lock()
		b.machine = nil
		b.mu.Unlock()
		err = m.Destroy(context.Background())
	}
	b.h.Log.Warn("the machine of a sandbox ended", "sandbox", b.recordNow().ID, "error", errors.Join(m.Err(), err))
}

// endRecord records that the machine has ended.
func endRecord(r *boxRecord, why error) {
	r.State, r.Generation = hostapi.Ended, 0
	r.Problem, r.Hint = "its machine has ended", "destroy the sandbox, or restore it to a snapshot"
	if why != nil {
		r.Problem += ": " + why.Error()
	}
}

// makeDirectory creates the directory of a new sandbox with its record.
func (b *box) makeDirectory() error {
	b.h.step("sandbox directory")
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return explainDisk(err, filepath.Dir(b.dir))
	}
	b.h.step("record creating")
	return writeRecord(b.dir, b.recordNow(), false)
}
