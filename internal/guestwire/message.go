package guestwire

import (
	"net/netip"
	"path"
	"strings"
)

// Hello is the host's first frame.
type Hello struct {
	Version   uint32
	Nonce     [MarkerSize]byte // the agent's answer begins with it
	Marker    [MarkerSize]byte // begins the next session if the agent does not see the end of this one
	MustRenew bool             // the guest is a clone: no operation but Renew, Identity and PowerOff before a renewal
}

// Fields implements Message.
func (m *Hello) Fields(c *Codec) {
	c.Uint32(&m.Version)
	c.Marker(&m.Nonce)
	c.Marker(&m.Marker)
	c.Bool(&m.MustRenew)
}

// Welcome is the agent's first frame.
type Welcome struct {
	Version uint32
	Arch    string // GOARCH
	Init    bool   // the agent is pid 1 of the guest
}

// Fields implements Message.
func (m *Welcome) Fields(c *Codec) {
	c.Uint32(&m.Version)
	c.Text(&m.Arch)
	c.Bool(&m.Init)
}

// Listener names a TCP socket in the guest that accepts one connection for the host. The guest listens from the first
// request for an address until the session ends. Stdin has the bytes to the client, Stdout those from it after the first
// one. An empty data frame on Stdout is the end of what the client sends.
type Listener struct{ Address string }

// Fields implements Message.
func (m *Listener) Fields(c *Codec) { c.Text(&m.Address) }

// Fault returns the reason why nothing can listen there, or "". Only loopback addresses are permitted.
func (m *Listener) Fault() string {
	at, err := netip.ParseAddrPort(m.Address)
	switch {
	case err != nil:
		return "it is not an address with a port"
	case !at.Addr().Is4() || !at.Addr().IsLoopback() || at.Port() == 0:
		return "it is not a port of 127.0.0.0/8"
	}
	return ""
}

// Connected is the first byte on Stdout of OpAccept.
const Connected = 'C'

// MaxListeners is how many addresses a session may listen on.
const MaxListeners = 24

// Op is the first byte of a request. The message of the operation follows.
type Op byte

const (
	OpExec     Op = iota + 1 // Command; replies Exit
	OpStart                  // Command; replies JobName
	OpJobs                   // Empty; replies JobList
	OpOutput                 // Tail; sends the tail on Stdout and replies Job
	OpKill                   // Kill; replies Job
	OpRead                   // File; sends the content on Stdout and replies FileInfo
	OpWrite                  // File; receives the content on Stdin and replies FileInfo
	OpEdit                   // Edit; receives both texts on Stdin and replies Edited
	OpStat                   // File; replies FileInfo
	OpList                   // File; sends each FileInfo after its length on Stdout and replies Empty
	OpRenew                  // Renewal; replies Identity
	OpIdentity               // Empty; replies Identity
	OpSync                   // Empty; replies Empty
	OpSnapshot               // Empty; replies Empty
	OpPowerOff               // Empty; replies Empty, then the guest ends
	OpAccept                 // Listener; Stdout begins with a byte when a client has connected; replies Empty
)

// Before says whether an operation may precede the renewal of a clone.
func (o Op) Before() bool { return o == OpRenew || o == OpIdentity || o == OpPowerOff }

// Empty is a message without fields.
type Empty struct{}

// Fields implements Message.
func (m *Empty) Fields(*Codec) {}

// Failure is what a reply has instead of its message. Kind is the text of a bailey.Kind.
type Failure struct{ Kind, Message, Hint string }

// Fields implements Message.
func (m *Failure) Fields(c *Codec) {
	c.Text(&m.Kind)
	c.Text(&m.Message)
	c.Text(&m.Hint)
}

// AgentProgram, as the program of a command, is the agent itself: "bailey-guest unpack PATH..." for example.
const AgentProgram = "bailey-guest"

// Command is a program to run.
type Command struct {
	Argv, Env  []string
	Dir        string // absolute, or "" for /
	UID, GID   uint32
	Millis     int64 // the time until its process group is killed, or 0
	Input      bool  // its standard input is Stdin; otherwise it is empty
	PTY        bool  // a terminal instead of three pipes: its output is on Stdout
	Rows, Cols uint32
}

// Fields implements Message.
func (m *Command) Fields(c *Codec) {
	c.Raws(&m.Argv)
	c.Raws(&m.Env)
	c.Raw(&m.Dir)
	c.Uint32(&m.UID)
	c.Uint32(&m.GID)
	c.Int64(&m.Millis)
	c.Bool(&m.Input)
	c.Bool(&m.PTY)
	c.Uint32(&m.Rows)
	c.Uint32(&m.Cols)
}

const maxTerminal = 10_000 // rows or columns

// Fault returns the reason why the command cannot be run, or "". Both sides ask it.
func (m *Command) Fault() string {
	nul := func(s string) bool { return strings.ContainsRune(s, 0) }
	switch {
	case len(m.Argv) == 0 || m.Argv[0] == "":
		return "it has no program"
	case m.Dir != "" && !path.IsAbs(m.Dir):
		return "its directory is not absolute"
	case m.Millis < 0:
		return "its time is negative"
	case m.Rows > maxTerminal || m.Cols > maxTerminal:
		return "its terminal is too large"
	case nul(m.Dir):
		return "its directory contains a NUL"
	}
	for _, a := range m.Argv {
		if nul(a) {
			return "an argument contains a NUL"
		}
	}
	for _, e := range m.Env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !isEnvName(name) || nul(value) {
			return "a name in its environment is not of the form [A-Za-z_][A-Za-z0-9_]*, or a value contains a NUL"
		}
	}
	return ""
}

func isEnvName(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// Exit is how a command ended.
type Exit struct {
	Code     uint32
	Signal   uint32 // the number of the signal that ended it, or 0
	TimedOut bool
}

// Fields implements Message.
func (m *Exit) Fields(c *Codec) {
	c.Uint32(&m.Code)
	c.Uint32(&m.Signal)
	c.Bool(&m.TimedOut)
}

// JobName names a background job.
type JobName struct{ ID string }

// Fields implements Message.
func (m *JobName) Fields(c *Codec) { c.Text(&m.ID) }

// Job is a background job.
type Job struct {
	ID      string
	Argv    []string
	PID     uint32
	Started int64 // nanoseconds since 1970, by the guest's clock
	Running bool
	Exit    Exit
	Output  int64 // bytes of output so far, of which the guest keeps the last ones
}

// Fields implements Message.
func (m *Job) Fields(c *Codec) {
	c.Text(&m.ID)
	c.Raws(&m.Argv)
	c.Uint32(&m.PID)
	c.Int64(&m.Started)
	c.Bool(&m.Running)
	m.Exit.Fields(c)
	c.Int64(&m.Output)
}

// JobList is a list of jobs. So that it fits a frame, an agent has at most MaxJobs and shortens their arguments.
type JobList struct{ Jobs []Job }

// MaxJobs is how many jobs a guest keeps. If there are more, it forgets those that ended first.
const MaxJobs = 64

// Fields implements Message.
func (m *JobList) Fields(c *Codec) { List(c, &m.Jobs, func(c *Codec, j *Job) { j.Fields(c) }) }

// Tail asks for the last bytes of a job's output.
type Tail struct {
	ID    string
	Bytes uint32
}

// Fields implements Message.
func (m *Tail) Fields(c *Codec) {
	c.Text(&m.ID)
	c.Uint32(&m.Bytes)
}

// Kill sends a signal to the process group of a job.
type Kill struct {
	ID     string
	Signal uint32
}

// Fields implements Message.
func (m *Kill) Fields(c *Codec) {
	c.Text(&m.ID)
	c.Uint32(&m.Signal)
}

// File names a file and, if it is written, its properties.
type File struct {
	Path     string
	Limit    int64  // of a read: a larger file is refused
	Mode     uint32 // of a new file
	UID, GID uint32 // of a new file
	Parents  bool   // create missing directories
}

// Fields implements Message.
func (m *File) Fields(c *Codec) {
	c.Raw(&m.Path)
	c.Int64(&m.Limit)
	c.Uint32(&m.Mode)
	c.Uint32(&m.UID)
	c.Uint32(&m.GID)
	c.Bool(&m.Parents)
}

// PathFault returns the reason why a path is not the name of a file, or "".
func PathFault(name string) string {
	switch {
	case !path.IsAbs(name):
		return "the path is not absolute"
	case strings.ContainsRune(name, 0):
		return "the path contains a NUL"
	}
	return ""
}

const (
	// MaxFile is the maximum size of a file that is read, written or edited as a whole.
	MaxFile = 10 << 20
	// MaxList is the maximum number of entries of a listed directory.
	MaxList = 10_000
)

// FileInfo describes a file. Mode has the bits of stat(2).
type FileInfo struct {
	Name     string
	Size     int64
	Mode     uint32
	UID, GID uint32
	Modified int64  // nanoseconds since 1970
	Target   string // of a symbolic link
}

// Fields implements Message.
func (m *FileInfo) Fields(c *Codec) {
	c.Raw(&m.Name)
	c.Int64(&m.Size)
	c.Uint32(&m.Mode)
	c.Uint32(&m.UID)
	c.Uint32(&m.GID)
	c.Int64(&m.Modified)
	c.Raw(&m.Target)
}

// Edit replaces a text in a file. Old bytes of what follows on Stdin are the text to find, the rest is the new one.
type Edit struct {
	Path     string
	Old, New uint32 // lengths
	All      bool   // if it is false, the text must be in the file exactly once
}

// Fields implements Message.
func (m *Edit) Fields(c *Codec) {
	c.Raw(&m.Path)
	c.Uint32(&m.Old)
	c.Uint32(&m.New)
	c.Bool(&m.All)
}

// Edited says how often a text was replaced.
type Edited struct{ Count uint32 }

// Fields implements Message.
func (m *Edited) Fields(c *Codec) { c.Uint32(&m.Count) }

// HostKey is a key of the guest's SSH server: OpenSSH's files NAME, NAME.pub and NAME-cert.pub in /etc/ssh.
type HostKey struct{ Name, Private, Public, Certificate string }

// Fields implements Message.
func (m *HostKey) Fields(c *Codec) {
	c.Text(&m.Name)
	c.Text(&m.Private)
	c.Text(&m.Public)
	c.Text(&m.Certificate)
}

// Interface is a network interface with its new addresses.
type Interface struct {
	Name    string
	MAC     string   // of the form 52:54:00:12:34:56
	Prefix  []string // addresses with the length of the network: 192.0.2.7/24
	Gateway string   // or ""
}

// Fields implements Message.
func (m *Interface) Fields(c *Codec) {
	c.Text(&m.Name)
	c.Text(&m.MAC)
	List(c, &m.Prefix, (*Codec).Text)
	c.Text(&m.Gateway)
}

// Renewal makes another machine of a clone.
type Renewal struct {
	Seed      []byte // at least 32 bytes for the random number generator
	Clock     int64  // nanoseconds since 1970
	MachineID string // 32 hexadecimal digits, machine-id(5)
	Hostname  string
	HostKeys  []HostKey // if there are none, the guest makes one
	Network   []Interface
	All       bool // each interface but lo must be in Network
}

// Fields implements Message.
func (m *Renewal) Fields(c *Codec) {
	c.Bytes(&m.Seed)
	c.Int64(&m.Clock)
	c.Text(&m.MachineID)
	c.Text(&m.Hostname)
	List(c, &m.HostKeys, func(c *Codec, k *HostKey) { k.Fields(c) })
	List(c, &m.Network, func(c *Codec, i *Interface) { i.Fields(c) })
	c.Bool(&m.All)
}

// Identity is what distinguishes a guest from its clones.
type Identity struct {
	Hostname  string
	MachineID string
	Clock     int64 // nanoseconds since 1970
	Kernel    string
	HostKeys  []string // public keys
	Network   []Interface
	Renewed   bool // since the session began
}

// Fields implements Message.
func (m *Identity) Fields(c *Codec) {
	c.Text(&m.Hostname)
	c.Text(&m.MachineID)
	c.Int64(&m.Clock)
	c.Text(&m.Kernel)
	List(c, &m.HostKeys, (*Codec).Text)
	List(c, &m.Network, func(c *Codec, i *Interface) { i.Fields(c) })
	c.Bool(&m.Renewed)
}

// Request returns the message of an operation to read into, or nil if the operation is unknown.
func (o Op) Request() Message {
	switch o {
	case OpExec, OpStart:
		return &Command{}
	case OpOutput:
		return &Tail{}
	case OpKill:
		return &Kill{}
	case OpRead, OpWrite, OpStat, OpList:
		return &File{}
	case OpEdit:
		return &Edit{}
	case OpRenew:
		return &Renewal{}
	case OpAccept:
		return &Listener{}
	case OpJobs, OpIdentity, OpSync, OpSnapshot, OpPowerOff:
		return &Empty{}
	}
	return nil
}

// ParseRequest reads the payload of a request.
func ParseRequest(payload []byte) (Op, Message, error) {
	if len(payload) == 0 {
		return 0, nil, Violation("a request is empty")
	}
	op := Op(payload[0])
	m := op.Request()
	if m == nil {
		return 0, nil, Violation("the operation %d is unknown", payload[0])
	}
	return op, m, Unmarshal(payload[1:], m)
}

const replyGood, replyFailed = 0, 1

// ReplyPayload is the payload of a reply: m, or f if it is not nil.
func ReplyPayload(m Message, f *Failure) []byte {
	if f != nil {
		return Marshal([]byte{replyFailed}, f)
	}
	return Marshal([]byte{replyGood}, m)
}

// ParseReply reads the payload of a reply into m, or returns the failure.
func ParseReply(payload []byte, m Message) (*Failure, error) {
	switch {
	case len(payload) > 0 && payload[0] == replyGood:
		return nil, Unmarshal(payload[1:], m)
	case len(payload) > 0 && payload[0] == replyFailed:
		f := &Failure{}
		return f, Unmarshal(payload[1:], f)
	}
	return nil, Violation("a reply has no known outcome")
}

// Number is the content of a signal frame.
type Number struct{ N uint32 }

// Fields implements Message.
func (m *Number) Fields(c *Codec) { c.Uint32(&m.N) }

// Size is the content of a resize frame.
type Size struct{ Rows, Cols uint32 }

// Fields implements Message.
func (m *Size) Fields(c *Codec) {
	c.Uint32(&m.Rows)
	c.Uint32(&m.Cols)
}
