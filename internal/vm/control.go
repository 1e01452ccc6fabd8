//go:build linux

package vm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
)

// States of a machine.
const (
	Running = "running"
	Paused  = "paused"
	Failed  = "failed" // paused because its disk cannot be written
	Ended   = "ended"
)

// A Status is the state of a machine at one moment.
type Status struct {
	State    string
	Emulated bool
	Problem  string `json:",omitempty"` // why State is Failed or Ended
	Hint     string `json:",omitempty"`
}

// Status asks QEMU.
func (m *Machine) Status(ctx context.Context) (Status, error) {
	s := Status{Emulated: m.record.Spec.Accel == Emulated}
	state, err := m.queryState(ctx)
	if err != nil {
		err = m.preferEnd(err)
	}
	if end := m.Err(); end != nil {
		s.State, s.Problem, s.Hint = Ended, end.Error(), bailey.HintOf(end)
		return s, nil
	}
	switch state {
	case "running":
		s.State = Running
	case "io-error":
		s.State = Failed
		s.Problem = "the disk is full: the machine was paused when it wrote to " + filepath.Join(m.dir, overlayFile)
		s.Hint = "free space on the file system of " + m.dir + ", then resume the machine"
	case "shutdown", "guest-panicked", "internal-error", "watchdog":
		s.State, s.Problem, s.Hint = Ended, "the guest stopped: "+state, "destroy the sandbox and create it again"
	default:
		s.State = Paused
	}
	return s, err
}

// dialQEMU connects to the monitor.
func (m *Machine) dialQEMU(ctx context.Context) error {
	m.asking.Lock()
	defer m.asking.Unlock()
	return m.redialQEMU(ctx)
}

func (m *Machine) redialQEMU(ctx context.Context) (err error) {
	if m.monitor != nil {
		m.monitor.conn.Close()
	}
	m.monitor, err = dialMonitor(ctx, filepath.Join(m.dir, monitorFile), m.host.QEMUTime)
	return err
}

// commandQEMU runs a command of the monitor. If an earlier command was cancelled, it connects again, because the answer
// to that one may still come.
func (m *Machine) commandQEMU(ctx context.Context, file *os.File, command string, arguments, result any) error {
	m.asking.Lock()
	defer m.asking.Unlock()
	if m.monitor == nil || m.monitor.bad != nil {
		if err := m.redialQEMU(ctx); err != nil {
			return err
		}
	}
	return m.monitor.executeWith(ctx, file, command, arguments, result)
}

func (m *Machine) queryState(ctx context.Context) (string, error) {
	var answer struct{ Status string }
	err := m.commandQEMU(ctx, nil, "query-status", nil, &answer)
	return answer.Status, err
}

// waitWhile waits until QEMU is in none of the given states.
func (m *Machine) waitWhile(ctx context.Context, states ...string) error {
	for end := time.Now().Add(m.host.QEMUTime); ; {
		state, err := m.queryState(ctx)
		if err != nil || !slices.Contains(states, state) {
			return err
		}
		if time.Now().After(end) {
			return bailey.Unavailable.Errorf("see whether the machine is overloaded", "QEMU stays in state %s", state)
		}
		if err := sleepShortly(ctx); err != nil {
			return err
		}
	}
}

// sleepShortly waits between two questions for a state.
func sleepShortly(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Millisecond):
		return nil
	}
}

// Pause stops the processors of the machine.
func (m *Machine) Pause(ctx context.Context) error {
	return wrapStep(m.preferEnd(m.commandQEMU(ctx, nil, "stop", nil, nil)), "cannot pause the machine")
}

// Resume continues a paused machine.
func (m *Machine) Resume(ctx context.Context) error {
	return wrapStep(m.preferEnd(m.commandQEMU(ctx, nil, "cont", nil, nil)), "cannot resume the machine")
}

// Destroy ends QEMU and removes everything that the machine has. The machine must not be used afterwards.
func (m *Machine) Destroy(ctx context.Context) (err error) {
	m.once.Do(func() {
		m.host.step("kill")
		if m.pidfd != nil {
			if err := unix.PidfdSendSignal(int(m.pidfd.Fd()), unix.SIGKILL, nil, 0); err == nil {
				select {
				case <-m.done:
				case <-ctx.Done():
				case <-time.After(m.host.QEMUTime): // then killStrays says so
				}
			}
		}
		m.host.step("killed")
		if err = m.host.killStrays(ctx, m.dir, m.record, m.host.UIDs > 0); err == nil {
			err = m.host.removeMachine(m.dir, m.record)
		}
		m.closeFiles()
		if err == nil {
			m.host.freeUID(m.record.UID)
		}
	})
	return err
}

// Release gives up the machine, which continues to run. Another owner can open it.
func (m *Machine) Release() {
	m.once.Do(func() {
		m.closeFiles()
		m.host.freeUID(m.record.UID)
	})
}

func (m *Machine) closeFiles() {
	m.asking.Lock()
	if m.monitor != nil {
		m.monitor.conn.Close()
	}
	m.asking.Unlock()
	for _, f := range []*os.File{m.memory, m.pidfd, m.lock} {
		if f != nil {
			f.Close()
		}
	}
}

// Open adopts a machine whose owner has ended. If its QEMU does not run, the error is of kind NotFound, and Remove
// removes the rest.
func (h *Host) Open(ctx context.Context, dir string) (*Machine, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDirectory(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.NotFound.Wrap(err, "there is no machine in "+dir, "")
	}
	if err != nil {
		return nil, err
	}
	m := &Machine{host: h, dir: dir, lock: lock, done: make(chan struct{})}
	if err := m.adoptProcess(ctx); err != nil {
		m.closeFiles()
		return nil, err
	}
	h.mu.Lock()
	h.uids[m.record.UID] = true
	h.mu.Unlock()
	return m, nil
}

func (m *Machine) adoptProcess(ctx context.Context) (err error) {
	if m.record, err = readRecord(m.dir); err == nil {
		m.pidfd = openProcess(m.record)
	}
	if m.pidfd == nil {
		return bailey.NotFound.Wrap(errors.Join(errors.New("its process has ended, or was never started"), err),
			"the machine in "+m.dir+" does not run", "remove it")
	}
	for _, file := range []struct {
		into *(*os.File)
		fd   int
	}{{&m.log, 2}, {&m.memory, m.record.Memory}} {
		if file.fd == m.record.Memory && m.record.Spec.Private {
			continue
		}
		if *file.into, err = m.inheritedFile(file.fd); err != nil {
			return bailey.Unavailable.Wrap(err, "cannot open the memory of the machine in "+m.dir, "remove the machine")
		}
	}
	for _, dir := range m.record.Groups {
		for name := range limitSettings(m.record.Spec) {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				m.limited = append(m.limited, name)
			}
		}
	}
	pidfd, log := m.pidfd, m.log
	go func() {
		if waitEnd(pidfd) {
			m.end = explainEnd(nil, log)
			close(m.done)
		}
	}()
	return m.whileRunning(ctx, "cannot open the machine in "+m.dir, func(ctx context.Context, _ *Machine) error {
		return m.dialQEMU(ctx)
	})
}

// inheritedFile opens a descriptor of QEMU. The pidfd proves afterwards that it was QEMU's.
func (m *Machine) inheritedFile(fd int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(m.record.PID), "fd", strconv.Itoa(fd)), os.O_RDWR, 0)
	if err == nil && unix.PidfdSendSignal(int(m.pidfd.Fd()), 0, nil, 0) != nil {
		f.Close()
		return nil, errors.New("its process has ended")
	}
	return f, err
}

// Remove removes a machine or a template that no process owns, in whatever state it was left, with its processes. If
// nothing is there, it does nothing.
func (h *Host) Remove(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for _, suffix := range []string{flatSuffix, partialSuffix, ""} {
		lock, err := lockDirectory(dir + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		// Without a readable record, no process was started, or the lock of alive shows it.
		r, _ := readRecord(dir + suffix)
		if err = h.killStrays(ctx, dir+suffix, r, false); err == nil {
			err = h.removeMachine(dir+suffix, r)
		}
		lock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// removeMachine removes the files of a machine or a template, whose processes have ended. The record is removed last,
// so that it can be repeated after each step.
func (h *Host) removeMachine(dir string, r record) error {
	h.step("remove groups")
	if err := removeGroups(r.Groups); err != nil {
		return err
	}
	for _, name := range []string{guestFile, monitorFile, overlayFile, memoryFile, stateFile, templateFile, aliveFile,
		recordFile + ".new", recordFile} {
		err := os.Remove(filepath.Join(dir, name))
		if err == nil {
			h.step("removed " + name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(dir); errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return bailey.Conflict.Wrap(err, dir+" contains files that do not belong to a machine", "move them away")
	} else if err != nil {
		return err
	}
	return nil
}
