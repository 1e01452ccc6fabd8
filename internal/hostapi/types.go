// Package hostapi is the contract between the host of sandboxes (package vmhost, the program bailey-host) and its
// clients: typed requests and answers over a Unix socket, and a client that starts a host if none runs.
//
// A connection carries one operation, in frames of package peer. The client sends a query. The host answers with one
// result or error. During [Client.Exec] both sides send more frames before that: see stream.go.
//
// Every query names an [Owner]. A sandbox is visible to the agent that created it, as the same person's agent, and to
// that person. For others it does not exist.
package hostapi

import (
	"encoding/json"
	"time"

	"bailey"
)

// Protocol is the version of the protocol. Another version is refused.
const Protocol = 3

// An Owner is the caller of an operation and, once the sandbox is created, its owner.
type Owner struct {
	Person string `json:"person"`
	// Agent is the name of the agent. The unnamed agent is an agent, too.
	Agent   string `json:"agent,omitempty"`
	Session string `json:"session,omitempty"` // recorded, not compared
	// Operator is set if the person acts and not an agent. All sandboxes of the person are visible then.
	Operator bool `json:"operator,omitempty"`
}

// State is the state of a sandbox.
type State string

// States of a sandbox.
const (
	Creating   State = "creating"
	Running    State = "running"
	Paused     State = "paused"
	Stopped    State = "stopped" // its memory and disk are saved, and it has no process
	Failed     State = "failed"  // paused because its disk cannot be written
	Ended      State = "ended"   // its machine has ended by itself; it can only be restored or destroyed
	Destroying State = "destroying"
)

// Sandbox describes a sandbox. Image and ImageDigest, Accelerator and Machine belong into receipts.
type Sandbox struct {
	ID          string `json:"id"` // "sb-" and 26 characters of a-z2-7
	Name        string `json:"name"`
	Image       string `json:"image"`
	ImageDigest string `json:"imageDigest"`
	Owner       Owner  `json:"owner"`
	State       State  `json:"state"`
	Accelerator string `json:"accelerator"` // "kvm" or "emulated"
	CPUs        int    `json:"cpus"`
	MemoryMB    int    `json:"memoryMB"`
	DiskBytes   int64  `json:"diskBytes"` // size of the disk; 0 without disk
	Network     string `json:"network"`   // "none" or "names"
	// Egress are the places that it may reach.
	Egress  []bailey.Endpoint `json:"egress,omitempty"`
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires"`
	From    string            `json:"from,omitempty"` // id of the snapshot or sandbox from which it was made or restored
	Machine string            `json:"machine"`        // type of the machine, for example microvm
	Problem string            `json:"problem,omitempty"`
	Hint    string            `json:"hint,omitempty"`
}

// CreateRequest asks for a new sandbox from an image, or from a snapshot.
type CreateRequest struct {
	Name     string        `json:"name,omitempty"` // [a-z0-9][a-z0-9-]{0,31}; the default is chosen by the host
	Image    string        `json:"image,omitempty"`
	Snapshot string        `json:"snapshot,omitempty"` // id or name; instead of an image
	CPUs     int           `json:"cpus,omitempty"`     // the default is 1; that of the snapshot cannot be changed
	MemoryMB int           `json:"memoryMB,omitempty"` // the default is 256
	TTL      time.Duration `json:"ttl,omitempty"`      // nanoseconds; the default is 24 hours
	Network  *Network      `json:"network,omitempty"`  // none if it is not set
	// Digest, if set, is that of the image. If the image has another one meanwhile, the request is refused.
	Digest string `json:"digest,omitempty"`
	// Attended means that the sandbox ends with the connection: see [Client.Attend].
	Attended bool `json:"attended,omitempty"`
}

// Names of networks.
const (
	NoNetwork    = "none"
	NamesNetwork = "names" // the egress proxy of the host, which connects to the places of a [Network] only
)

// Network is what the programs of a sandbox may reach, through the egress proxy (package egress).
type Network struct {
	Endpoints []bailey.Endpoint `json:"endpoints"`
	Upstream  string            `json:"upstream,omitempty"` // the URL of the proxy of this machine
	ByName    bool              `json:"byName,omitempty"`   // the upstream resolves names
}

// ImageRequest names an image.
type ImageRequest struct {
	Image string `json:"image"`
}

// ImageInfo describes the machine that a sandbox from an image is.
type ImageInfo struct {
	Name        string `json:"name"`
	Digest      string `json:"digest"`      // SHA-256, hex
	MemoryMB    int    `json:"memoryMB"`    // the least with which it starts
	Accelerator string `json:"accelerator"` // "kvm" or "emulated"
	Machine     string `json:"machine"`     // type of the machine
}

// Target names a sandbox by its id or by its name.
type Target struct {
	Sandbox string `json:"sandbox"`
}

// SnapshotRequest asks for a snapshot of a sandbox with its memory.
type SnapshotRequest struct {
	Sandbox string `json:"sandbox"`
	Name    string `json:"name,omitempty"` // as of a sandbox
}

// Snapshot describes a snapshot. It outlives its sandbox.
type Snapshot struct {
	ID          string    `json:"id"` // "sn-" and 26 characters
	Name        string    `json:"name"`
	Sandbox     string    `json:"sandbox"` // id
	Image       string    `json:"image"`
	ImageDigest string    `json:"imageDigest"`
	Owner       Owner     `json:"owner"`
	CPUs        int       `json:"cpus"`
	MemoryMB    int       `json:"memoryMB"`
	Bytes       int64     `json:"bytes"` // on the host's disk
	Created     time.Time `json:"created"`
}

// RestoreRequest returns a sandbox to a snapshot, which may be that of another sandbox. It keeps its id and name.
type RestoreRequest struct {
	Sandbox  string `json:"sandbox"`
	Snapshot string `json:"snapshot"` // id or name
}

// BranchRequest asks for N clones of a running sandbox.
type BranchRequest struct {
	Sandbox string        `json:"sandbox"`
	N       int           `json:"n"`              // 1 to 16
	Name    string        `json:"name,omitempty"` // of the first one; the others get "-2", "-3" and so on
	TTL     time.Duration `json:"ttl,omitempty"`
}

// ExtendRequest sets when a sandbox expires: TTL from now.
type ExtendRequest struct {
	Sandbox string        `json:"sandbox"`
	TTL     time.Duration `json:"ttl"`
}

// Size is the size of a terminal.
type Size struct {
	Rows uint32 `json:"rows"`
	Cols uint32 `json:"cols"`
}

// Command is a program to run in a sandbox. It does not inherit an environment.
type Command struct {
	Sandbox   string        `json:"sandbox"`
	Argv      []string      `json:"argv"`
	Env       []string      `json:"env,omitempty"` // NAME=value
	Dir       string        `json:"dir,omitempty"` // absolute; the default is /
	UID       uint32        `json:"uid,omitempty"`
	GID       uint32        `json:"gid,omitempty"`
	Timeout   time.Duration `json:"timeout,omitempty"`   // until its process group is killed
	MaxOutput int64         `json:"maxOutput,omitempty"` // bytes after which it is killed, with an error
	Terminal  *Size         `json:"terminal,omitempty"`  // a terminal instead of pipes
	Input     bool          `json:"input,omitempty"`     // set by Exec
}

// Exit is how a command ended.
type Exit struct {
	Code     int  `json:"code"`
	Signal   int  `json:"signal,omitempty"` // the number of the signal that ended it
	TimedOut bool `json:"timedOut,omitempty"`
}

// Job is a command in the background.
type Job struct {
	ID      string    `json:"id"`
	Argv    []string  `json:"argv"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"` // by the clock of the sandbox
	Running bool      `json:"running"`
	Exit    Exit      `json:"exit"`
	Output  int64     `json:"output"` // bytes so far, of which the last ones are kept
}

// JobRequest names a job. Signal is for KillJob, Bytes for JobOutput: the most bytes from the end.
type JobRequest struct {
	Sandbox string `json:"sandbox"`
	ID      string `json:"id"`
	Signal  int    `json:"signal,omitempty"`
	Bytes   int    `json:"bytes,omitempty"`
}

// JobOutput is the end of the output of a job, and the job.
type JobOutput struct {
	Job    Job    `json:"job"`
	Output []byte `json:"output"`
}

// FileRequest names a file of a sandbox by its absolute path.
type FileRequest struct {
	Sandbox string `json:"sandbox"`
	Path    string `json:"path"`
	Limit   int64  `json:"limit,omitempty"` // of ReadFile: a larger file is refused; the default and maximum is 10 MiB
}

// WriteRequest replaces a file at once. Mode, UID, GID are for a new file.
type WriteRequest struct {
	Sandbox string `json:"sandbox"`
	Path    string `json:"path"`
	Data    []byte `json:"data"` // at most 10 MiB
	Mode    uint32 `json:"mode,omitempty"`
	UID     uint32 `json:"uid,omitempty"`
	GID     uint32 `json:"gid,omitempty"`
	Parents bool   `json:"parents,omitempty"` // create missing directories
}

// EditRequest replaces Before, which must be in the file exactly once unless All is set, by After.
type EditRequest struct {
	Sandbox string `json:"sandbox"`
	Path    string `json:"path"`
	Before  string `json:"before"`
	After   string `json:"after"`
	All     bool   `json:"all,omitempty"`
}

// Edited says how often a text was replaced.
type Edited struct {
	Count int `json:"count"`
}

// File describes a file of a sandbox.
type File struct {
	Name     string    `json:"name"`
	Size     int64     `json:"size"`
	Mode     uint32    `json:"mode"` // bits of stat(2)
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"` // of a symbolic link
}

// Content is the content of a file.
type Content struct {
	Data []byte `json:"data"`
}

// Status describes the host. Policies can compare a request with what is free.
type Status struct {
	Version     string `json:"version"`
	PID         int    `json:"pid"`
	Dir         string `json:"dir"`
	Accelerator string `json:"accelerator"` // "kvm" or "emulated"
	Reason      string `json:"reason"`      // why it is emulated
	Sandboxes   int    `json:"sandboxes"`   // of all owners
	Running     int    `json:"running"`
	Snapshots   int    `json:"snapshots"`
	Templates   int    `json:"templates"`  // warm ones
	CPUs        int    `json:"cpus"`       // of the host
	MemoryMB    int    `json:"memoryMB"`   // of the host
	FreeMB      int    `json:"freeMB"`     // memory that new sandboxes may have
	DiskBytes   int64  `json:"diskBytes"`  // of the file system of the sandboxes
	FreeBytes   int64  `json:"freeBytes"`  // of it, for this user
	PerOwner    int    `json:"perOwner"`   // how many sandboxes an owner may have
	MaxMemoryMB int    `json:"maxMemory"`  // of one sandbox
	Unsupported string `json:"notes"`      // features that this version lacks
	UptimeSec   int64  `json:"uptimeSecs"` // seconds
}

// None is the request or the answer of an operation that has none.
type None struct{}

// Query is the first frame of a connection.
type Query struct {
	Protocol int             `json:"protocol"`
	Verb     string          `json:"verb"`
	Owner    Owner           `json:"owner"`
	Request  json.RawMessage `json:"request,omitempty"`
}

// An Endpoint is an operation with one request and one answer.
type Endpoint[Request, Answer any] struct{ Verb string }

// ExecVerb runs a [Command]; the connection then carries streams. StopVerb ends the host, but not its sandboxes.
const (
	ExecVerb = "exec"
	StopVerb = "stop-host"
)

// Endpoints returns all operations with one answer. Package vmhost has a handler for each.
var (
	Create         = Endpoint[CreateRequest, Sandbox]{"create"}
	List           = Endpoint[None, []Sandbox]{"list"}
	Show           = Endpoint[Target, Sandbox]{"show"}
	Destroy        = Endpoint[Target, None]{"destroy"}
	Start          = Endpoint[Target, Sandbox]{"start"}
	Stop           = Endpoint[Target, Sandbox]{"stop"}
	Pause          = Endpoint[Target, Sandbox]{"pause"}
	Resume         = Endpoint[Target, Sandbox]{"resume"}
	TakeSnapshot   = Endpoint[SnapshotRequest, Snapshot]{"snapshot"}
	Snapshots      = Endpoint[None, []Snapshot]{"snapshots"}
	RemoveSnapshot = Endpoint[Target, None]{"remove-snapshot"} // Target.Sandbox is the snapshot's id or name
	Restore        = Endpoint[RestoreRequest, Sandbox]{"restore"}
	Branch         = Endpoint[BranchRequest, []Sandbox]{"branch"}
	Extend         = Endpoint[ExtendRequest, Sandbox]{"extend"}
	StartJob       = Endpoint[Command, Job]{"start-job"}
	Jobs           = Endpoint[Target, []Job]{"jobs"}
	ReadOutput     = Endpoint[JobRequest, JobOutput]{"job-output"}
	KillJob        = Endpoint[JobRequest, Job]{"kill-job"}
	ReadFile       = Endpoint[FileRequest, Content]{"read-file"}
	WriteFile      = Endpoint[WriteRequest, File]{"write-file"}
	EditFile       = Endpoint[EditRequest, Edited]{"edit-file"}
	// TakeEgress returns the connections of a sandbox since the last answer.
	TakeEgress = Endpoint[Target, bailey.EgressReport]{"take-egress"}
	ListFiles  = Endpoint[FileRequest, []File]{"list-files"}
	HostStatus = Endpoint[None, Status]{"status"}
	ShowImage  = Endpoint[ImageRequest, ImageInfo]{"image"}
)

// AgentProgram, as the program of a command, is the agent of the sandbox itself.
const AgentProgram = "bailey-guest"
