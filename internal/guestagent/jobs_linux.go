package guestagent

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/guestwire"
)

// maxTail is how much of a job's output is kept.
const maxTail = 1 << 20

// jobs are the background jobs in the order of their start.
type jobs struct {
	mu     sync.Mutex
	all    []*job
	number int // of the last job
}

type job struct {
	id      string
	argv    []string
	process *process
	started time.Time

	mu       sync.Mutex
	tail     []byte // at most twice maxTail
	total    int64
	timedOut bool
}

const maxShownArgv = 512 // bytes of a job's arguments in a list

// Write adds output.
func (j *job) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.total += int64(len(b))
	if j.tail = append(j.tail, b...); len(j.tail) > 2*maxTail {
		j.tail = slices.Clone(j.tail[len(j.tail)-maxTail:])
	}
	return len(b), nil
}

func (j *job) isRunning() bool {
	select {
	case <-j.process.done:
		return false
	default:
		return true
	}
}

func (j *job) describeJob() *guestwire.Job {
	m := &guestwire.Job{ID: j.id, PID: uint32(j.process.pid), Started: j.started.UnixNano(), Running: j.isRunning()}
	left := maxShownArgv
	for _, a := range j.argv {
		if left -= len(a) + 4; left < 0 {
			m.Argv = append(m.Argv, "…")
			break
		}
		m.Argv = append(m.Argv, a)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	m.Output = j.total
	if !m.Running {
		m.Exit = exitOf(j.process.status)
		m.Exit.TimedOut = j.timedOut
	}
	return m
}

func (a *Agent) startJob(c *guestwire.Command) (guestwire.Message, error) {
	if c.PTY || c.Input {
		return nil, bailey.Invalid.New("a background job has neither a terminal nor an input", "Leave them out.")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		r.Close()
		return nil, err
	}
	defer null.Close()
	a.jobs.mu.Lock()
	defer a.jobs.mu.Unlock()
	if !a.jobs.makeRoom() {
		r.Close()
		return nil, bailey.Unavailable.Errorf("Kill one first.", "%d background jobs are running", guestwire.MaxJobs)
	}
	p, err := a.procs.startProcess(c, [3]*os.File{null, w, w}, nil)
	if err != nil {
		r.Close()
		return nil, err
	}
	a.jobs.number++
	j := &job{id: fmt.Sprintf("job-%d", a.jobs.number), argv: c.Argv, process: p, started: time.Now()}
	a.jobs.all = append(a.jobs.all, j)
	go func() {
		defer r.Close()
		buf := make([]byte, 16<<10)
		for {
			n, err := r.Read(buf)
			j.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go a.limitJob(j, deadlineOf(c))
	return &guestwire.JobName{ID: j.id}, nil
}

func (a *Agent) limitJob(j *job, deadline <-chan time.Time) {
	select {
	case <-j.process.done:
	case <-deadline:
		j.mu.Lock()
		j.timedOut = true
		j.mu.Unlock()
		a.procs.signalGroup(j.process, uint32(unix.SIGKILL))
	}
}

// makeRoom forgets the first job that has ended if there are too many. It requires j.mu.
func (j *jobs) makeRoom() bool {
	if len(j.all) < guestwire.MaxJobs {
		return true
	}
	i := slices.IndexFunc(j.all, func(one *job) bool { return !one.isRunning() })
	if i >= 0 {
		j.all = slices.Delete(j.all, i, i+1)
	}
	return i >= 0
}

func (j *jobs) listJobs() *guestwire.JobList {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := &guestwire.JobList{}
	for _, one := range j.all {
		list.Jobs = append(list.Jobs, *one.describeJob())
	}
	return list
}

func (j *jobs) findJob(id string) (*job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, one := range j.all {
		if one.id == id {
			return one, nil
		}
	}
	return nil, bailey.NotFound.Errorf("List the jobs of the sandbox.", "there is no job %q", shortText(id))
}

func (a *Agent) killJob(m *guestwire.Kill) (guestwire.Message, error) {
	j, err := a.jobs.findJob(m.ID)
	if err != nil {
		return nil, err
	}
	if err := a.procs.signalGroup(j.process, m.Signal); err != nil {
		return nil, err
	}
	if m.Signal == uint32(unix.SIGKILL) {
		<-j.process.done // so that the answer says how it ended
	}
	return j.describeJob(), nil
}

func (st *stream) sendTail(m *guestwire.Tail) (guestwire.Message, error) {
	j, err := st.s.a.jobs.findJob(m.ID)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	tail := slices.Clone(j.tail[max(0, len(j.tail)-min(int(m.Bytes), maxTail)):])
	j.mu.Unlock()
	return j.describeJob(), st.sendBytes(tail)
}

// sendBytes sends b on Stdout.
func (st *stream) sendBytes(b []byte) error {
	head := []byte{byte(guestwire.Stdout)}
	return st.out[guestwire.Stdout].Send(b, func(b []byte) error { return st.s.sendFrame(guestwire.KindData, st.id, head, b) })
}
