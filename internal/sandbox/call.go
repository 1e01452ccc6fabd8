package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/hostapi"
)

// CallKind is the kind of the cage of a call that has a machine of its own, as policy and receipts see it.
const CallKind = "microvm"

// The tool of a call runs as this user of its machine. The files that it gets belong to the user.
const callUser = 65534

// Directories in the machine of a call. Neither exists in the image.
const (
	callHome    = "/run/bailey/home" // HOME and TMPDIR
	callSecrets = "/run/bailey/secrets"
)

// A MachineChoice says in which machine the calls of a capability run.
type MachineChoice struct {
	Image    string
	MemoryMB int // 0: defaultMemory, or what the image needs
}

const (
	defaultMemory = 512 // MiB
	// packedShare is the part of the memory that the files of a call may have: without a disk, they are in memory.
	packedShare = 4
	// attendedTime is how long the machine of a call lives beyond the time of its tool, if everything else fails.
	attendedTime = 10 * time.Minute
)

// CallRunner runs the tool of a call in a machine of its own, which is a clone of a warm template and destroyed
// afterwards. The tool comes from the image. The machine has copies of the files that the call may read, and no
// network.
type CallRunner struct {
	bailey.PlainRunner
	// Host returns the client of the host of sandboxes. It connects to nothing.
	Host func() (*hostapi.Client, error)
	// Choose returns the machine for a capability; "" as its image means that the settings name none.
	Choose func(id bailey.CapabilityID) MachineChoice
	// Masks are absolute paths that no call may read: what is at or below them is left out.
	Masks []string
}

// Plan refuses what a machine cannot give, and finds the image.
func (r *CallRunner) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	if err := r.refuseJob(job); err != nil {
		return nil, err
	}
	choice := r.Choose(job.Capability)
	if choice.Image == "" {
		return nil, bailey.Unavailable.Errorf("build an image with the tool, for example with bailey image import, and "+
			"name it in settings.yaml: microvm: {image: NAME}; then bailey init --apply",
			"%s requires isolation microvm, and the settings name no image for its machine", job.Capability)
	}
	client, err := r.Host()
	if err != nil {
		return nil, err
	}
	// The machine belongs to no agent, so no other call finds it.
	run := &callRun{client: client, job: job, masks: r.Masks,
		owner: hostapi.Owner{
			Person:  job.Principal.Person,
			Agent:   "call/" + job.Principal.Agent,
			Session: string(job.Session),
		}}
	run.image, err = hostapi.ShowImage.Ask(ctx, client, run.owner, hostapi.ImageRequest{Image: choice.Image})
	if err != nil {
		if bailey.KindOf(err) == bailey.NotFound {
			err = bailey.NotFound.Wrapf(err, "bailey image list shows the images; the settings name the one for calls",
				"%s has no machine", job.Capability)
		}
		return nil, err
	}
	run.memoryMB = cmp.Or(choice.MemoryMB, max(defaultMemory, run.image.MemoryMB))
	run.describeCage()
	return run, nil
}

// refuseJob returns an error if the call needs what a machine of its own does not have.
func (r *CallRunner) refuseJob(job bailey.Job) error {
	const hint = "use isolation: jail for this capability"
	switch {
	case job.TTY:
		return bailey.Invalid.Errorf(hint, "%s cannot have a terminal in a microvm", job.Capability)
	case job.Network != nil:
		return bailey.Invalid.Errorf(hint, "%s cannot use the network: a microvm has none", job.Capability)
	case job.Wall != nil:
		return bailey.Invalid.Errorf(
			hint,
			"%s needs rights of a build tool, which a microvm does not give",
			job.Capability,
		)
	case job.Principal.Person == "" && job.Principal.Agent == "":
		return bailey.Internal.New("the call names no person and no agent that could own its machine", "")
	}
	for _, p := range job.Places {
		if p.Write {
			return bailey.Invalid.Errorf(
				hint,
				"%s cannot write %s: the files in a microvm are copies",
				job.Capability,
				p.Path,
			)
		}
		if top, _, _ := strings.Cut(strings.TrimPrefix(p.Path, "/"), "/"); slices.Contains(imageDirs(), top) {
			return bailey.Denied.Errorf(hint, "%s cannot be in a microvm, whose image has that directory", p.Path)
		}
		if r.isMasked(p.Path) {
			return bailey.Denied.Errorf("name another path", "%s is hidden from every tool", p.Path)
		}
	}
	return nil
}

// imageDirs are directories of the image into which no file of a call is copied.
func imageDirs() []string {
	return []string{
		"",
		"bin",
		"boot",
		"dev",
		"etc",
		"lib",
		"lib32",
		"lib64",
		"libx32",
		"proc",
		"run",
		"sbin",
		"sys",
		"usr",
	}
}

func (r *CallRunner) isMasked(name string) bool { return isBelow(r.Masks, name) }

// isBelow reports whether a path is one of list, or below one.
func isBelow(list []string, name string) bool {
	return slices.ContainsFunc(list, func(m string) bool { return name == m || strings.HasPrefix(name, m+"/") })
}

// callRun is a planned call.
type callRun struct {
	bailey.PlainRun
	client   *hostapi.Client
	owner    hostapi.Owner
	job      bailey.Job
	masks    []string
	image    hostapi.ImageInfo
	memoryMB int
	cage     bailey.Cage
}

// describeCage describes the machine as policy and the receipt see it.
func (r *callRun) describeCage() {
	var text strings.Builder
	var lines []string
	add := func(layer, format string, args ...any) {
		fmt.Fprintf(&text, format+"\n", args...)
		lines = append(lines, layer)
	}
	add("", "bailey microvm plan 1")
	add("machine", "machine %q image %q sha256 %q accelerator %q memory %d MiB", r.image.Machine, r.image.Name,
		r.image.Digest, r.image.Accelerator, r.memoryMB)
	add("network", "network %q", hostapi.NoNetwork)
	add("machine", "program %q of the image, as user %d, in %q", r.job.Command, callUser, r.workDir())
	for _, p := range r.job.Places {
		add("copies", "copy %q, read-only", p.Path)
	}
	for _, name := range r.job.Hide {
		add("masks", "empty %q", name)
	}
	r.cage = bailey.Cage{Kind: CallKind, Enforced: true, Layers: []string{"machine", "network", "copies", "masks"},
		Plan: text.String(), PlanLayers: lines,
		Labels: []string{"accelerator=" + r.image.Accelerator, "image=" + r.image.Name, "network=" + hostapi.NoNetwork}}
	sum := sha256.Sum256([]byte(r.cage.Plan))
	r.cage.PlanDigest = hex.EncodeToString(sum[:])
	r.recordMachine(hostapi.Sandbox{Image: r.image.Name, ImageDigest: r.image.Digest, Accelerator: r.image.Accelerator,
		Machine: r.image.Machine})
}

func (r *callRun) recordMachine(s hostapi.Sandbox) {
	r.cage.Machine = &bailey.Machine{
		Sandbox:     s.ID,
		Image:       s.Image,
		ImageDigest: s.ImageDigest,
		Accelerator: s.Accelerator,
		Machine:     s.Machine,
	}
}

// Cage returns the machine. After the start it names the sandbox.
func (r *callRun) Cage() bailey.Cage { return r.cage }

// Close releases nothing: the machine ends with Start.
func (r *callRun) Close() error { return nil }

func (r *callRun) workDir() string { return cmp.Or(r.job.Dir, callHome) }

// Start makes the machine, copies the files into it, runs the tool, and destroys the machine.
func (r *callRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (exit bailey.Exit, err error) {
	never := bailey.Exit{Code: bailey.NeverRan}
	if lent.Way != nil || s.TTY != nil {
		return never, bailey.Internal.New("a microvm has neither a network nor a terminal", "")
	}
	if r.job.Timeout == bailey.Endless {
		return never, bailey.Invalid.New("a microvm cannot run without end", "give the capability a timeout")
	}
	timeout := cmp.Or(r.job.Timeout, bailey.DefaultTimeout)
	made, end, err := r.client.Attend(ctx, r.owner, hostapi.CreateRequest{Image: r.image.Name, Digest: r.image.Digest,
		MemoryMB: r.memoryMB, TTL: timeout + attendedTime})
	if err != nil {
		return never, err
	}
	defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx))) }()
	r.recordMachine(made)
	if made.ImageDigest != r.image.Digest {
		return never, bailey.Conflict.New(
			"the machine has another image than the one that was decided about",
			"call again",
		)
	}
	if err := r.copyFiles(ctx, made.ID, lent); err != nil {
		return never, err
	}
	return r.runTool(ctx, made.ID, timeout, lent, withWriters(s))
}

// copyFiles unpacks the files of the call in the machine.
func (r *callRun) copyFiles(ctx context.Context, id string, lent bailey.Lent) error {
	command := hostapi.Command{Sandbox: id, Argv: []string{hostapi.AgentProgram, "unpack"}, MaxOutput: 64 << 10}
	for _, p := range r.job.Places {
		command.Argv = append(command.Argv, p.Path)
	}
	out, in := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := r.packFiles(in, lent)
		in.CloseWithError(err)
		packed <- err
	}()
	var said strings.Builder
	exit, err := r.client.Exec(ctx, r.owner, command, hostapi.Streams{Stdin: out, Stderr: &said})
	out.CloseWithError(errors.New("the machine takes no more files"))
	packErr := <-packed
	switch {
	case bailey.KindOf(packErr) != "" && bailey.KindOf(packErr) != bailey.Internal:
		return packErr // the reason for all else
	case err != nil:
		return err
	case exit.Code != 0 || exit.Signal != 0:
		return bailey.Unavailable.Errorf(
			"if it has no room, raise microvm.memoryMB in settings.yaml",
			"the files cannot be copied into the machine: exit code %d, signal %d: %.500q",
			exit.Code,
			exit.Signal,
			said.String(),
		)
	}
	return packErr
}

// runTool runs the tool. What the machine says about it is only output.
func (r *callRun) runTool(ctx context.Context, id string, timeout time.Duration, lent bailey.Lent,
	s bailey.Streams) (bailey.Exit, error) {
	env := slices.Concat([]string{"HOME=" + callHome, "TMPDIR=" + callHome, "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC"},
		r.job.Env, lent.Env)
	for _, f := range lent.Files {
		env = append(env, f.Env+"="+path.Join(callSecrets, f.Env))
	}
	exit, err := r.client.Exec(
		ctx,
		r.owner,
		hostapi.Command{Sandbox: id, Argv: append([]string{r.job.Command}, r.job.Args...),
			Env: env, Dir: r.workDir(), UID: callUser, GID: callUser, Timeout: timeout},
		hostapi.Streams{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr},
	)
	result := bailey.Exit{Code: exit.Code, TimedOut: exit.TimedOut}
	if exit.Signal > 0 {
		result.Code = 128 + exit.Signal
	}
	if err == nil {
		return result, nil
	}
	switch bailey.KindOf(err) {
	case bailey.NotFound, bailey.Invalid:
		result.Code = bailey.NeverRan
		err = fmt.Errorf("in the image %s: %w", r.image.Name, err)
	default:
		result.Code = 255
	}
	return result, err
}
