package guestclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"bailey"
	"bailey/internal/guestwire"
)

// Signal is the number that a signal has in Linux.
type Signal uint32

// Size is the size of a terminal.
type Size struct{ Rows, Cols uint32 }

// Command is a program to run in the guest. It does not inherit an environment.
type Command struct {
	Argv, Env []string
	Dir       string // absolute; the default is /
	UID, GID  uint32
	Timeout   time.Duration // until its process group is killed; 0 is no limit
	MaxOutput int64         // bytes of both outputs after which it is killed, with an error; 0 is no limit
	Terminal  *Size         // a terminal instead of pipes; its output goes to Stdout
	// Stdin may be nil. If it blocks, it may still be read after Exec has returned.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // may be nil
	Signals        <-chan Signal
	Sizes          <-chan Size
}

func (c Command) toMessage() (*guestwire.Command, error) {
	m := &guestwire.Command{Argv: c.Argv, Env: c.Env, Dir: c.Dir, UID: c.UID, GID: c.GID, Input: c.Stdin != nil}
	if c.Timeout > 0 {
		m.Millis = max(c.Timeout.Milliseconds(), 1)
	}
	if c.Terminal != nil {
		m.PTY, m.Rows, m.Cols = true, c.Terminal.Rows, c.Terminal.Cols
	}
	if fault := m.Fault(); fault != "" {
		return nil, bailey.Invalid.New("the command cannot be run: "+fault, "Correct the command.")
	}
	return m, nil
}

// Exec runs a program to its end. If ctx ends, its process group is killed. An exit code other than 0 is not an error.
func (s *Session) Exec(ctx context.Context, c Command) (guestwire.Exit, error) {
	m, err := c.toMessage()
	if err != nil {
		return guestwire.Exit{}, err
	}
	var exit guestwire.Exit
	left := newBudget(cmp.Or(c.MaxOutput, 1<<62), "the output of the command")
	o := operation{op: guestwire.OpExec, request: m, reply: &exit, stdin: c.Stdin, signals: c.Signals, sizes: c.Sizes,
		stdout: left.limitWriter(c.Stdout), stderr: left.limitWriter(c.Stderr)}
	if c.Timeout > 0 {
		o.time = c.Timeout + s.cfg.Grace
	}
	err = s.runOperation(ctx, o)
	return exit, err
}

// doOp performs an operation without data.
func (s *Session) doOp(ctx context.Context, op guestwire.Op, request, reply guestwire.Message) error {
	return s.runOperation(ctx, operation{op: op, request: request, reply: reply, time: s.cfg.OpTime})
}

// Start starts a program in the background and returns the id of the job. Its standard input is empty; both outputs are
// kept together, their last megabyte. Jobs outlive the session.
func (s *Session) Start(ctx context.Context, c Command) (string, error) {
	m, err := c.toMessage()
	switch {
	case err != nil:
		return "", err
	case c.Stdin != nil || c.Stdout != nil || c.Stderr != nil || c.Terminal != nil || c.MaxOutput != 0:
		return "", bailey.Invalid.New("a background job has neither streams nor a terminal", "Leave them out.")
	}
	var name guestwire.JobName
	err = s.doOp(ctx, guestwire.OpStart, m, &name)
	return name.ID, err
}

// Jobs returns the background jobs in the order of their start.
func (s *Session) Jobs(ctx context.Context) ([]guestwire.Job, error) {
	var list guestwire.JobList
	err := s.doOp(ctx, guestwire.OpJobs, &guestwire.Empty{}, &list)
	return list.Jobs, err
}

// Output returns the last bytes of a job's output, at most n, and the job.
func (s *Session) Output(ctx context.Context, id string, n uint32) ([]byte, guestwire.Job, error) {
	var out bytes.Buffer
	var job guestwire.Job
	err := s.runOperation(ctx, operation{op: guestwire.OpOutput, request: &guestwire.Tail{ID: id, Bytes: n}, reply: &job,
		stdout: newBudget(int64(n), "the end of the output").limitWriter(&out), time: s.cfg.OpTime})
	return out.Bytes(), job, err
}

// Kill sends a signal to the process group of a job.
func (s *Session) Kill(ctx context.Context, id string, signal Signal) (guestwire.Job, error) {
	var job guestwire.Job
	err := s.doOp(ctx, guestwire.OpKill, &guestwire.Kill{ID: id, Signal: uint32(signal)}, &job)
	return job, err
}

func checkPath(name string) error {
	if fault := guestwire.PathFault(name); fault != "" {
		return bailey.Invalid.Errorf("Name the file by its absolute path in the sandbox.", "cannot use %q: %s", name, fault)
	}
	return nil
}

// ReadFile returns the content of a regular file of at most limit bytes; the default and maximum is guestwire.MaxFile.
func (s *Session) ReadFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	if err := checkPath(name); err != nil {
		return nil, err
	}
	if limit <= 0 || limit > guestwire.MaxFile {
		limit = guestwire.MaxFile
	}
	var out bytes.Buffer
	var info guestwire.FileInfo
	err := s.runOperation(ctx, operation{op: guestwire.OpRead, request: &guestwire.File{Path: name, Limit: limit}, reply: &info,
		stdout: newBudget(limit, "the file").limitWriter(&out), time: s.cfg.OpTime})
	if err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// NewFile sets the properties of a file that WriteFile creates. An existing file keeps its own.
type NewFile struct {
	Mode     uint32 // permission bits; the default is 0644
	UID, GID uint32
	Parents  bool // create missing directories
}

// WriteFile replaces a file at once: whatever happens, the file has its former content or all of data.
func (s *Session) WriteFile(ctx context.Context, name string, data []byte, n NewFile) (guestwire.FileInfo, error) {
	var info guestwire.FileInfo
	if err := checkPath(name); err != nil {
		return info, err
	}
	if len(data) > guestwire.MaxFile {
		return info, bailey.Invalid.Errorf("Write it in parts, with a command.", "cannot write %s: %d bytes are more than %d",
			name, len(data), guestwire.MaxFile)
	}
	request := &guestwire.File{Path: name, Limit: int64(len(data)), Mode: cmp.Or(n.Mode, 0o644), UID: n.UID, GID: n.GID,
		Parents: n.Parents}
	err := s.runOperation(ctx, operation{op: guestwire.OpWrite, request: request, reply: &info, stdin: bytes.NewReader(data),
		time: s.cfg.OpTime})
	return info, err
}

// EditFile replaces before, which must be in the file exactly once, or all of its occurrences if all is set. It returns
// how many it replaced. The file and its new content have at most guestwire.MaxFile bytes.
func (s *Session) EditFile(ctx context.Context, name, before, after string, all bool) (int, error) {
	if err := checkPath(name); err != nil {
		return 0, err
	}
	if before == "" || len(before) > guestwire.MaxFile || len(after) > guestwire.MaxFile {
		return 0, bailey.Invalid.Errorf("Name a text of the file.",
			"cannot edit %s: the text to replace is empty, or a text is larger than %d bytes", name, guestwire.MaxFile)
	}
	var edited guestwire.Edited
	request := &guestwire.Edit{Path: name, Old: uint32(len(before)), New: uint32(len(after)), All: all}
	err := s.runOperation(ctx, operation{op: guestwire.OpEdit, request: request, reply: &edited,
		stdin: strings.NewReader(before + after), time: s.cfg.OpTime})
	return int(edited.Count), err
}

// Stat describes a file. It does not follow a symbolic link.
func (s *Session) Stat(ctx context.Context, name string) (guestwire.FileInfo, error) {
	var info guestwire.FileInfo
	if err := checkPath(name); err != nil {
		return info, err
	}
	err := s.doOp(ctx, guestwire.OpStat, &guestwire.File{Path: name}, &info)
	return info, err
}

// maxListBytes bounds a listed directory: MaxList names of 255 bytes, and targets of some.
const maxListBytes = 8 << 20

// List describes the entries of a directory, sorted by name, at most guestwire.MaxList.
func (s *Session) List(ctx context.Context, name string) ([]guestwire.FileInfo, error) {
	if err := checkPath(name); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := s.runOperation(ctx, operation{op: guestwire.OpList, request: &guestwire.File{Path: name}, reply: &guestwire.Empty{},
		stdout: newBudget(maxListBytes, "the list").limitWriter(&out), time: s.cfg.OpTime})
	if err != nil {
		return nil, err
	}
	list, err := parseList(out.Bytes())
	if err != nil {
		s.endWith(err)
		return nil, s.Err()
	}
	return list, nil
}

func parseList(b []byte) ([]guestwire.FileInfo, error) {
	var list []guestwire.FileInfo
	for len(b) > 0 {
		if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) || len(list) == guestwire.MaxList {
			return nil, guestwire.Violation("a list of files is malformed")
		}
		n := 4 + binary.BigEndian.Uint32(b)
		var info guestwire.FileInfo
		if err := guestwire.Unmarshal(b[4:n], &info); err != nil {
			return nil, err
		}
		if info.Name == "" || info.Name == "." || info.Name == ".." || strings.ContainsAny(info.Name, "/\x00") {
			return nil, guestwire.Violation("a directory has an entry %q", info.Name)
		}
		list, b = append(list, info), b[n:]
	}
	return list, nil
}

// Renew makes another machine of a clone: new random numbers, clock, machine id, SSH host keys, names and addresses. If
// Seed, Clock or MachineID are not set, they are chosen here. A session with MustRenew requires a host name, and that
// each network interface of the guest gets a new address.
func (s *Session) Renew(ctx context.Context, r guestwire.Renewal) (guestwire.Identity, error) {
	var id guestwire.Identity
	if s.cfg.MustRenew {
		r.All = true
		if r.Hostname == "" {
			return id, bailey.Invalid.New("the renewal of a clone has no host name", "Set the host name.")
		}
	}
	if len(r.Seed) == 0 {
		r.Seed = make([]byte, 64)
		rand.Read(r.Seed)
	}
	if r.MachineID == "" {
		var b [16]byte
		rand.Read(b[:])
		r.MachineID = hex.EncodeToString(b[:])
	}
	if r.Clock == 0 {
		r.Clock = time.Now().UnixNano()
	}
	if err := s.doOp(ctx, guestwire.OpRenew, &r, &id); err != nil {
		return id, err
	}
	if err := checkRenewal(r, id); err != nil {
		return id, bailey.Unavailable.Wrap(err, "the sandbox is not renewed: "+err.Error(), "Destroy it and create another.")
	}
	s.renewed.Store(true)
	return id, nil
}

// checkRenewal compares the answer with what was asked for. It finds faults of an agent; a hostile one can lie.
func checkRenewal(r guestwire.Renewal, id guestwire.Identity) error {
	if !id.Renewed || id.MachineID != r.MachineID || r.Hostname != "" && id.Hostname != r.Hostname {
		return fmt.Errorf("it answers with the name %q and the machine id %q", id.Hostname, id.MachineID)
	}
	for _, want := range r.Network {
		found := false
		for _, got := range id.Network {
			found = found || got.Name == want.Name && (want.MAC == "" || strings.EqualFold(got.MAC, want.MAC))
		}
		if !found {
			return fmt.Errorf("its interface %q has another address than %s", want.Name, want.MAC)
		}
	}
	return nil
}

// Identity returns what the guest says of itself.
func (s *Session) Identity(ctx context.Context) (guestwire.Identity, error) {
	var id guestwire.Identity
	err := s.doOp(ctx, guestwire.OpIdentity, &guestwire.Empty{}, &id)
	return id, err
}

// Sync writes the guest's file systems to its disks.
func (s *Session) Sync(ctx context.Context) error {
	return s.doOp(ctx, guestwire.OpSync, &guestwire.Empty{}, &guestwire.Empty{})
}

// Snapshot prepares the guest for a snapshot: it writes its file systems and drops its caches, so that the memory is
// small. The sessions of clones must begin with the marker that it returns.
func (s *Session) Snapshot(ctx context.Context) (Marker, error) {
	err := s.doOp(ctx, guestwire.OpSnapshot, &guestwire.Empty{}, &guestwire.Empty{})
	return s.marker, err
}

// PowerOff ends the guest. The reply comes before it does.
func (s *Session) PowerOff(ctx context.Context) error {
	return s.doOp(ctx, guestwire.OpPowerOff, &guestwire.Empty{}, &guestwire.Empty{})
}
