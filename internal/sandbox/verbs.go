package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"bailey"
	"bailey/internal/hostapi"
)

// maxFile limits the content of a file that a call reads or writes, in bytes.
const maxFile = 10 << 20

// verb is one operation.
type verb struct {
	operands int
	target   bool // the first operand names a sandbox
	command  bool // it has a command
	do       operation
}

// allVerbs returns the operations by name.
func allVerbs() map[string]verb {
	return map[string]verb{
		"create":     {do: createBox},
		"list":       {do: listOf("sandboxes", hostapi.List, nothingOf)},
		"show":       {operands: 1, target: true, do: answerOf(hostapi.Show, boxOf)},
		"exec":       {operands: 1, target: true, command: true, do: execCommand},
		"read_file":  {operands: 2, target: true, do: readFile},
		"write_file": {operands: 2, target: true, do: writeFile},
		"edit_file":  {operands: 2, target: true, do: answerOf(hostapi.EditFile, editOf)},
		"list_files": {operands: 2, target: true, do: listOf("files", hostapi.ListFiles, fileOf)},
		"start_job": {operands: 1, target: true, command: true, do: answerOf(hostapi.StartJob,
			(*machineRun).commandOf)},
		"jobs":            {operands: 1, target: true, do: listOf("jobs", hostapi.Jobs, boxOf)},
		"job_output":      {operands: 2, target: true, do: jobOutput},
		"kill_job":        {operands: 2, target: true, do: answerOf(hostapi.KillJob, jobOf)},
		"snapshot":        {operands: 2, target: true, do: answerOf(hostapi.TakeSnapshot, snapshotOf)},
		"snapshots":       {do: listOf("snapshots", hostapi.Snapshots, nothingOf)},
		"remove_snapshot": {operands: 1, do: removeSnapshot},
		"restore":         {operands: 2, target: true, do: answerOf(hostapi.Restore, restoreOf)},
		"branch":          {operands: 2, target: true, do: listOf("sandboxes", hostapi.Branch, branchOf)},
		"start":           {operands: 1, target: true, do: startBox},
		"stop":            {operands: 1, target: true, do: answerOf(hostapi.Stop, boxOf)},
		"pause":           {operands: 1, target: true, do: answerOf(hostapi.Pause, boxOf)},
		"diff":            {operands: 1, target: true, do: printDifference},
		"export":          {operands: 2, target: true, do: exportDifference},
		"verify":          {operands: 2, target: true, do: verifyExport},
		"extend":          {operands: 2, target: true, do: answerOf(hostapi.Extend, extendOf)},
		"destroy":         {operands: 1, target: true, do: destroyBox},
	}
}

type operation = func(context.Context, *machineRun, bailey.Streams) (bailey.Exit, error)

// answerOf returns an operation that sends one request and prints its answer, an object, as JSON.
func answerOf[Request, Answer any](e hostapi.Endpoint[Request, Answer], request func(*machineRun) (Request,
	error)) operation {
	return listOf("", e, request)
}

// listOf is answerOf for an answer that is a list, which becomes the only member of an object.
func listOf[Request, Answer any](name string, e hostapi.Endpoint[Request, Answer],
	request func(*machineRun) (Request, error)) operation {
	return func(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
		q, err := request(r)
		if err != nil {
			return bailey.Exit{}, err
		}
		answer, err := e.Ask(ctx, r.client, r.owner, q)
		if err != nil {
			return bailey.Exit{}, err
		}
		hideSession(&answer)
		if name != "" {
			return bailey.Exit{}, printJSON(s.Stdout, map[string]Answer{name: answer})
		}
		return bailey.Exit{}, printJSON(s.Stdout, answer)
	}
}

// hideSession removes the session of the owner from an answer: agents need no identifier of another session.
func hideSession(answer any) {
	switch a := answer.(type) {
	case *hostapi.Sandbox:
		a.Owner.Session = ""
	case *[]hostapi.Sandbox:
		for i := range *a {
			(*a)[i].Owner.Session = ""
		}
	case *hostapi.Snapshot:
		a.Owner.Session = ""
	case *[]hostapi.Snapshot:
		for i := range *a {
			(*a)[i].Owner.Session = ""
		}
	}
}

func nothingOf(*machineRun) (hostapi.None, error) { return hostapi.None{}, nil }

// printJSON writes an answer, with one line for each field, so that people and redaction see words.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// withWriters returns the streams with a writer for each.
func withWriters(s bailey.Streams) bailey.Streams {
	if s.Stdout == nil {
		s.Stdout = io.Discard
	}
	if s.Stderr == nil {
		s.Stderr = io.Discard
	}
	return s
}

func boxOf(r *machineRun) (hostapi.Target, error) { return hostapi.Target{Sandbox: r.box.ID}, nil }

func fileOf(r *machineRun) (hostapi.FileRequest, error) {
	return hostapi.FileRequest{Sandbox: r.box.ID, Path: r.action.operands[1], Limit: maxFile}, nil
}

func editOf(r *machineRun) (hostapi.EditRequest, error) {
	return hostapi.EditRequest{Sandbox: r.box.ID, Path: r.action.operands[1], Before: r.action.settings["old"],
		After: r.action.settings["new"], All: r.action.settings["all"] == "true"}, nil
}

func jobOf(r *machineRun) (hostapi.JobRequest, error) {
	return hostapi.JobRequest{Sandbox: r.box.ID, ID: r.action.operands[1]}, nil
}

func snapshotOf(r *machineRun) (hostapi.SnapshotRequest, error) {
	return hostapi.SnapshotRequest{Sandbox: r.box.ID, Name: r.action.operands[1]}, nil
}

func restoreOf(r *machineRun) (hostapi.RestoreRequest, error) {
	return hostapi.RestoreRequest{Sandbox: r.box.ID, Snapshot: r.action.operands[1]}, nil
}

func branchOf(r *machineRun) (hostapi.BranchRequest, error) {
	n, err := strconv.Atoi(r.action.operands[1])
	return hostapi.BranchRequest{Sandbox: r.box.ID, N: n}, err
}

func extendOf(r *machineRun) (hostapi.ExtendRequest, error) {
	ttl, err := parseLifetime(r.action.operands[1])
	return hostapi.ExtendRequest{Sandbox: r.box.ID, TTL: ttl}, err
}

// createBox creates the sandbox. The receipt then names it.
func createBox(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	ttl, err := parseLifetime(r.action.settings["ttl"])
	if err != nil {
		return bailey.Exit{}, err
	}
	q := hostapi.CreateRequest{Name: r.action.settings["name"], Snapshot: r.action.settings["snapshot"],
		CPUs:     r.box.CPUs,
		MemoryMB: r.box.MemoryMB, TTL: ttl, Network: r.reach}
	if q.Snapshot == "" {
		q.Image = r.box.Image
	}
	box, err := hostapi.Create.Ask(ctx, r.client, r.owner, q)
	if err != nil {
		return bailey.Exit{}, err
	}
	hideSession(&box)
	r.box = box
	r.recordMachine()
	return bailey.Exit{}, printJSON(s.Stdout, box)
}

// startBox starts a stopped sandbox, and lets a paused one continue.
func startBox(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	e := hostapi.Start
	if r.box.State == hostapi.Paused {
		e = hostapi.Resume
	}
	return answerOf(e, boxOf)(ctx, r, s)
}

func destroyBox(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	if _, err := hostapi.Destroy.Ask(ctx, r.client, r.owner, hostapi.Target{Sandbox: r.box.ID}); err != nil {
		return bailey.Exit{}, err
	}
	return bailey.Exit{}, printJSON(s.Stdout, map[string]string{"destroyed": r.box.ID})
}

func removeSnapshot(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	name := r.action.operands[0]
	if _, err := hostapi.RemoveSnapshot.Ask(ctx, r.client, r.owner, hostapi.Target{Sandbox: name}); err != nil {
		return bailey.Exit{}, err
	}
	return bailey.Exit{}, printJSON(s.Stdout, map[string]string{"removed": name})
}

// commandOf returns the command of the call.
func (r *machineRun) commandOf() (c hostapi.Command, err error) {
	uid, err := r.action.numberOf("uid")
	if err != nil {
		return c, err
	}
	gid, err := r.action.numberOf("gid")
	if err != nil {
		return c, err
	}
	return hostapi.Command{Sandbox: r.box.ID, Argv: r.action.command, Env: r.action.env, Dir: r.action.settings["dir"],
		UID: uint32(uid), GID: uint32(gid)}, nil
}

// execCommand runs the command on the streams of the call.
func execCommand(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	command, err := r.commandOf()
	if err != nil {
		return bailey.Exit{}, err
	}
	command.Timeout = r.timeout
	exit, err := r.client.Exec(ctx, r.owner, command, hostapi.Streams{Stdin: s.Stdin, Stdout: s.Stdout,
		Stderr: s.Stderr})
	if exit.Signal > 0 {
		exit.Code = 128 + exit.Signal
	}
	return bailey.Exit{Code: exit.Code, TimedOut: exit.TimedOut}, err
}

func readFile(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	q, err := fileOf(r)
	if err != nil {
		return bailey.Exit{}, err
	}
	content, err := hostapi.ReadFile.Ask(ctx, r.client, r.owner, q)
	if err != nil {
		return bailey.Exit{}, err
	}
	_, err = s.Stdout.Write(content.Data)
	return bailey.Exit{}, err
}

// writeFile writes standard input to a file.
func writeFile(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	mode, err := strconv.ParseUint(r.action.settings["mode"], 8, 12)
	if r.action.settings["mode"] == "" {
		mode, err = 0o644, nil
	}
	if err != nil {
		return bailey.Exit{}, bailey.Invalid.Wrapf(err, "write an octal mode such as 755", "the mode is %q",
			r.action.settings["mode"])
	}
	if s.Stdin == nil {
		s.Stdin = strings.NewReader("")
	}
	data, err := io.ReadAll(io.LimitReader(s.Stdin, maxFile+1))
	switch {
	case err != nil:
		return bailey.Exit{}, err
	case len(data) > maxFile:
		return bailey.Exit{}, bailey.Invalid.Errorf("write it in parts, or fetch it in the sandbox",
			"the content has more than %d bytes", maxFile)
	}
	q := hostapi.WriteRequest{Sandbox: r.box.ID, Path: r.action.operands[1], Data: data, Mode: uint32(mode),
		Parents: true}
	file, err := hostapi.WriteFile.Ask(ctx, r.client, r.owner, q)
	if err != nil {
		return bailey.Exit{}, err
	}
	return bailey.Exit{}, printJSON(s.Stdout, file)
}

// jobOutput prints the output of a job, and to the other stream how the job is.
func jobOutput(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	q, err := jobOf(r)
	if err != nil {
		return bailey.Exit{}, err
	}
	out, err := hostapi.ReadOutput.Ask(ctx, r.client, r.owner, q)
	if err != nil {
		return bailey.Exit{}, err
	}
	if _, err := s.Stdout.Write(out.Output); err != nil {
		return bailey.Exit{}, err
	}
	state := "runs"
	if !out.Job.Running {
		state = fmt.Sprintf("ended with exit code %d", out.Job.Exit.Code)
		if out.Job.Exit.Signal > 0 {
			state = fmt.Sprintf("was ended by signal %d", out.Job.Exit.Signal)
		}
	}
	_, err = fmt.Fprintf(s.Stderr, "job %s %s; it has written %d bytes\n", out.Job.ID, state, out.Job.Output)
	return bailey.Exit{}, err
}
