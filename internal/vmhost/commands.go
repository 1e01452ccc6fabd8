//go:build linux

package vmhost

import (
	"cmp"
	"context"
	"time"

	"bailey"
	"bailey/internal/guestclient"
	"bailey/internal/guestwire"
	"bailey/internal/hostapi"
)

// openGuest returns the session with the guest of a sandbox that the caller sees.
func (h *Host) openGuest(ctx context.Context, c caller, ref string) (*guestclient.Session, error) {
	b, err := h.findBox(c, ref)
	if err != nil {
		return nil, err
	}
	if now := b.describeBox(ctx); now.State == hostapi.Failed {
		return nil, bailey.Unavailable.Errorf(now.Hint, "the sandbox %s does not run: %s", now.Name, now.Problem)
	}
	return b.openSession(ctx)
}

// openCommand returns a command as the agent's client has it, without streams, and the session that runs it. In a sandbox
// with a network, the environment leads programs to it.
func (h *Host) openCommand(ctx context.Context, c caller, r hostapi.Command) (*guestclient.Session, guestclient.Command,
	error) {
	command, err := toCommand(r)
	if err != nil {
		return nil, command, err
	}
	b, err := h.findBox(c, r.Sandbox)
	if err != nil {
		return nil, command, err
	}
	s, err := h.openGuest(ctx, c, r.Sandbox)
	if err == nil {
		command.Env = b.withNetwork(command.Env)
	}
	return s, command, err
}

func toCommand(r hostapi.Command) (guestclient.Command, error) {
	if r.Timeout < 0 || r.MaxOutput < 0 {
		return guestclient.Command{}, bailey.Invalid.New("a limit of the command is negative", "use 0 for no limit")
	}
	c := guestclient.Command{Argv: r.Argv, Env: r.Env, Dir: r.Dir, UID: r.UID, GID: r.GID, Timeout: r.Timeout,
		MaxOutput: r.MaxOutput}
	if r.Terminal != nil {
		c.Terminal = &guestclient.Size{Rows: r.Terminal.Rows, Cols: r.Terminal.Cols}
	}
	return c, nil
}

func fromExit(e guestwire.Exit) hostapi.Exit {
	return hostapi.Exit{Code: int(e.Code), Signal: int(e.Signal), TimedOut: e.TimedOut}
}

func fromJob(j guestwire.Job) hostapi.Job {
	return hostapi.Job{ID: j.ID, Argv: j.Argv, PID: int(j.PID), Started: time.Unix(0, j.Started).UTC(),
		Running: j.Running,
		Exit:    fromExit(j.Exit), Output: j.Output}
}

func fromFile(f guestwire.FileInfo) hostapi.File {
	return hostapi.File{Name: f.Name, Size: f.Size, Mode: f.Mode, UID: f.UID, GID: f.GID, Target: f.Target,
		Modified: time.Unix(0, f.Modified).UTC()}
}

func (h *Host) startJob(ctx context.Context, c caller, r hostapi.Command) (hostapi.Job, error) {
	s, command, err := h.openCommand(ctx, c, r)
	if err != nil {
		return hostapi.Job{}, err
	}
	id, err := s.Start(ctx, command)
	if err != nil {
		return hostapi.Job{}, err
	}
	_, job, err := s.Output(ctx, id, 0)
	return fromJob(job), err
}

func (h *Host) listJobs(ctx context.Context, c caller, r hostapi.Target) ([]hostapi.Job, error) {
	s, err := h.openGuest(ctx, c, r.Sandbox)
	if err != nil {
		return nil, err
	}
	all, err := s.Jobs(ctx)
	list := []hostapi.Job{}
	for _, j := range all {
		list = append(list, fromJob(j))
	}
	return list, err
}

const maxTail = 1 << 20 // bytes of a job's output, as many as the guest keeps

func (h *Host) readOutput(ctx context.Context, c caller, r hostapi.JobRequest) (hostapi.JobOutput, error) {
	s, err := h.openGuest(ctx, c, r.Sandbox)
	if err != nil {
		return hostapi.JobOutput{}, err
	}
	n := cmp.Or(r.Bytes, maxTail)
	if n < 0 || n > maxTail {
		return hostapi.JobOutput{}, bailey.Invalid.Errorf("use 1 to 1048576", "the output cannot have %d bytes", n)
	}
	out, job, err := s.Output(ctx, r.ID, uint32(n))
	return hostapi.JobOutput{Job: fromJob(job), Output: out}, err
}

func (h *Host) killJob(ctx context.Context, c caller, r hostapi.JobRequest) (hostapi.Job, error) {
	s, err := h.openGuest(ctx, c, r.Sandbox)
	if err != nil {
		return hostapi.Job{}, err
	}
	signal := cmp.Or(r.Signal, 15)
	if signal < 1 || signal > 64 {
		return hostapi.Job{}, bailey.Invalid.Errorf("use 1 to 64", "%d is not the number of a signal", signal)
	}
	job, err := s.Kill(ctx, r.ID, guestclient.Signal(signal))
	return fromJob(job), err
}

func (h *Host) readFile(ctx context.Context, c caller, r hostapi.FileRequest) (hostapi.Content, error) {
	s, err := h.openGuest(ctx, c, r.Sandbox)
	if err != nil {
		return hostapi.Content{}, err
	}
	b, err := s.ReadFile(ctx, r.Path, r.Limit)
	return hostapi.Content{Data: b}, err
}

func (h *Host) writeFile(ctx context.Context, c caller, r hostapi.WriteRequest) (hostapi.File, error) {
	s, err := h.openGuest(ctx, c, r.Sandbox)
	if err != nil {
		return hostapi.File{}, err
	}
	info, err := s.WriteFile(ctx, r.Path, r.Data, guestclient.NewFile{Mode: r.Mode, UID: r.UID, GID: r.GID,
		Parents: r.Parents})
	return fromFile(info), err
}

func (h *Host) editFile(ctx context.Context, c caller, r hostapi.EditRequest) (hostapi.Edited, error) {
	s, err := h.openGuest(ctx, c, r.Sandbox)
	if err != nil {
		return hostapi.Edited{}, err
	}
	n, err := s.EditFile(ctx, r.Path, r.Before, r.After, r.All)
	return hostapi.Edited{Count: n}, err
}

func (h *Host) listFiles(ctx context.Context, c caller, r hostapi.FileRequest) ([]hostapi.File, error) {
	s, err := h.openGuest(ctx, c, r.Sandbox)
	if err != nil {
		return nil, err
	}
	all, err := s.List(ctx, r.Path)
	list := []hostapi.File{}
	for _, f := range all {
		list = append(list, fromFile(f))
	}
	return list, err
}
