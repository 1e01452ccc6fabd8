// Package sandbox runs calls on sandboxes, the virtual machines of the host of sandboxes. A sandbox belongs to the
// person
// and the agent of the call that created it; a call of others does not find it. The machine is the isolation of these
// calls, so they have no cage of their own.
package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/shellparse"
)

// CageKind is the kind of the cage of these calls, as policy and receipts see it.
const CageKind = "sandbox"

// Hidden stands in the commands of a request for programs that the call hides, for example behind a variable.
const Hidden = "?"

// Runner runs calls on sandboxes. The arguments of a job are a verb, its operands, and settings of the form NAME=value;
// the word "command" precedes the words of a command.
type Runner struct {
	bailey.PlainRunner
	// Host returns the client of the host of sandboxes. It connects to nothing.
	Host func() (*hostapi.Client, error)
	// Network returns the places that the settings open for sandboxes with the network names. If there are none, a
	// sandbox cannot have that network.
	Network func() hostapi.Network
	// Inventories is the directory for the inventories of images, by digest. It is created at the first need.
	Inventories string
}

// action is the parsed form of the arguments of a job.
type action struct {
	verb     string
	operands []string
	settings map[string]string
	env      []string
	command  []string
}

// parseAction parses the arguments of a job.
func parseAction(args []string) (a action, err error) {
	if len(args) == 0 {
		return a, bailey.Internal.New("a call of a sandbox has no verb", "")
	}
	a = action{verb: args[0], settings: map[string]string{}}
	for i, word := range args[1:] {
		if word == "command" {
			a.command = args[i+2:]
			break
		}
		name, value, isSetting := strings.Cut(word, "=")
		switch {
		case !isSetting || strings.HasPrefix(word, "/"):
			a.operands = append(a.operands, word)
		case name == "env":
			a.env = append(a.env, value)
		default:
			a.settings[name] = value
		}
	}
	return a, nil
}

// numberOf returns a setting as a number, or 0 if it is absent.
func (a action) numberOf(name string) (int, error) {
	text := a.settings[name]
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, bailey.Invalid.Errorf("write a whole number", "%s is %q, which is not a number", name, text)
	}
	return n, nil
}

// parseLifetime returns a time such as 90m, or 0 for no text.
func parseLifetime(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, bailey.Invalid.Errorf("write a time such as 90m or 24h", "the time %q is not one", text)
	}
	return d, nil
}

// Plan finds the sandbox that the call names, as its caller, and describes the run.
func (r *Runner) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	a, err := parseAction(job.Args)
	if err != nil {
		return nil, err
	}
	v, ok := allVerbs()[a.verb]
	if !ok || len(a.operands) != v.operands || v.command != (len(a.command) > 0) {
		return nil, bailey.Internal.Errorf("", "sandboxes have no verb %q with %d operands", a.verb, len(a.operands))
	}
	if job.Principal.Agent == "" {
		return nil, bailey.Internal.New("the call names no agent that could own a sandbox", "")
	}
	client, err := r.Host()
	if err != nil {
		return nil, err
	}
	run := &machineRun{client: client, network: r.Network, inventories: r.Inventories, action: a, verb: v,
		timeout: cmp.Or(job.Timeout, bailey.DefaultTimeout),
		owner:   hostapi.Owner{Person: job.Principal.Person, Agent: job.Principal.Agent, Session: string(job.Session)}}
	if err := run.findMachine(ctx); err != nil {
		return nil, err
	}
	run.describeCage()
	return run, nil
}

// machineRun is a planned operation.
type machineRun struct {
	bailey.PlainRun
	client      *hostapi.Client
	network     func() hostapi.Network
	inventories string
	owner       hostapi.Owner
	action      action
	verb        verb
	timeout     time.Duration
	box         hostapi.Sandbox  // of the call; the one to create has no id
	reach       *hostapi.Network // of the sandbox to create
	told        *bailey.EgressReport
	cage        bailey.Cage
	large       bool   // the call makes a large machine
	hidden      string // why a command hides programs
}

// findMachine finds the sandbox of the call, or describes the one that it creates.
func (r *machineRun) findMachine(ctx context.Context) (err error) {
	switch {
	case r.action.verb == "create":
		return r.planCreation(ctx)
	case r.verb.target:
		r.box, err = hostapi.Show.Ask(ctx, r.client, r.owner, hostapi.Target{Sandbox: r.action.operands[0]})
		if err == nil && r.box.ID != r.action.operands[0] {
			return bailey.Internal.New("the host of sandboxes answered with another sandbox", "restart bailey-host")
		}
		if err == nil && r.action.verb == "restore" {
			var from hostapi.Snapshot
			from, err = r.findSnapshot(ctx, r.action.operands[1])
			r.action.operands[1] = from.ID // another one can get the name until the call starts
			r.large = isLarge(from.CPUs, from.MemoryMB) && !isLarge(r.box.CPUs, r.box.MemoryMB)
		}
		r.large = r.large || r.action.verb == "branch" && isLarge(r.box.CPUs, r.box.MemoryMB)
		return err
	}
	return nil
}

// isLarge reports whether a machine is one about which the policies to begin with ask.
func isLarge(cpus, memoryMB int) bool { return cpus > 2 || memoryMB > 2048 }

// planCreation checks what is asked against what the host has free.
func (r *machineRun) planCreation(ctx context.Context) error {
	image, from := r.action.settings["image"], r.action.settings["snapshot"]
	if (image == "") == (from == "") {
		return bailey.Invalid.New("a sandbox is made from an image or from a snapshot",
			"name one of them, for example image: debian")
	}
	cpus, err := r.action.numberOf("cpus")
	if err != nil {
		return err
	}
	memory, err := r.action.numberOf("memory_mb")
	if err != nil {
		return err
	}
	status, err := hostapi.HostStatus.Ask(ctx, r.client, r.owner, hostapi.None{})
	if err != nil {
		return err
	}
	r.box = hostapi.Sandbox{Image: image, CPUs: cpus, MemoryMB: memory, Accelerator: status.Accelerator,
		Network: cmp.Or(r.action.settings["network"], hostapi.NoNetwork)}
	if err := r.planNetwork(); err != nil {
		return err
	}
	if from != "" {
		found, err := r.findSnapshot(ctx, from)
		if err != nil {
			return err
		}
		r.action.settings["snapshot"] = found.ID // another one can get the name until the call starts
		r.box.Image, r.box.ImageDigest = found.Image, found.ImageDigest
		cpus, memory = max(cpus, found.CPUs), max(memory, found.MemoryMB)
	}
	r.large = isLarge(cpus, memory)
	return nil
}

// planNetwork finds the places that the sandbox to create may reach.
func (r *machineRun) planNetwork() error {
	switch r.box.Network {
	case hostapi.NoNetwork:
		return nil
	case hostapi.NamesNetwork:
	default:
		return bailey.Invalid.Errorf("use none, or names", "there is no network %.40q for sandboxes", r.box.Network)
	}
	reach := r.network()
	if len(reach.Endpoints) == 0 {
		return bailey.Denied.New("the settings open no places for the network of sandboxes",
			"a person can add them to settings.yaml, under network, endpoints, for sandbox.create; then bailey init --apply")
	}
	r.reach, r.box.Egress = &reach, reach.Endpoints
	return nil
}

// Reaches returns the places that a machine made by the call may reach. Other calls do not open any: policy decided about
// the network when the machine was made, and sees it as a label.
func (r *machineRun) Reaches() []bailey.Endpoint {
	if r.action.verb != "create" && r.action.verb != "branch" {
		return nil
	}
	return r.box.Egress
}

// Connections returns the connections of the machine since the last call on it, after Start has returned. It returns nil if
// the machine has no network.
func (r *machineRun) Connections() *bailey.EgressReport { return r.told }

// findSnapshot finds a snapshot of the caller.
func (r *machineRun) findSnapshot(ctx context.Context, from string) (hostapi.Snapshot, error) {
	all, err := hostapi.Snapshots.Ask(ctx, r.client, r.owner, hostapi.None{})
	if err != nil {
		return hostapi.Snapshot{}, err
	}
	i := slices.IndexFunc(all, func(s hostapi.Snapshot) bool { return s.ID == from || s.Name == from })
	if i < 0 {
		return hostapi.Snapshot{}, bailey.NotFound.Errorf("sandbox.snapshots lists them", "there is no snapshot %s", from)
	}
	return all[i], nil
}

// describeCage describes the machine as policy and the receipt see it.
func (r *machineRun) describeCage() {
	var text strings.Builder
	lines := []string{""}
	fmt.Fprintf(&text, "bailey sandbox plan 1\n")
	add := func(layer, format string, args ...any) {
		fmt.Fprintf(&text, format+"\n", args...)
		lines = append(lines, layer)
	}
	add("", "operation %q", r.action.verb)
	r.cage = bailey.Cage{Kind: CageKind, Enforced: true, Layers: []string{"owner"}}
	add("owner", "owner person %q agent %q", r.owner.Person, r.owner.Agent)
	if r.box.Accelerator != "" {
		r.cage.Layers = append(r.cage.Layers, "machine")
		r.cage.Labels = r.machineLabels()
		add("machine", "machine %q image %q sha256 %q accelerator %q network %q", r.box.ID, r.box.Image,
			r.box.ImageDigest,
			r.box.Accelerator, cmp.Or(r.box.Network, hostapi.NoNetwork))
		for _, place := range r.box.Egress {
			add("machine", "egress %q", place.Words())
		}
	}
	if len(r.action.command) > 0 {
		var names []string
		names, r.hidden = shellparse.Programs(r.action.command)
		if r.hidden != "" {
			names = append(names, Hidden)
		}
		r.cage.Commands = names
		add("", "programs %q", names)
	}
	sum := sha256.Sum256([]byte(text.String()))
	r.cage.Plan, r.cage.PlanLayers, r.cage.PlanDigest = text.String(), lines, hex.EncodeToString(sum[:])
	r.recordMachine()
}

// machineLabels returns the facts about the machine that rules can test.
func (r *machineRun) machineLabels() []string {
	labels := []string{"accelerator=" + r.box.Accelerator, "image=" + r.box.Image,
		"network=" + cmp.Or(r.box.Network, hostapi.NoNetwork)}
	if r.large {
		labels = append(labels, "size=large")
	}
	slices.Sort(labels)
	return labels
}

// recordMachine names the machine for the receipt.
func (r *machineRun) recordMachine() {
	if r.box.Accelerator == "" {
		return
	}
	r.cage.Machine = &bailey.Machine{Sandbox: r.box.ID, Image: r.box.Image, ImageDigest: r.box.ImageDigest,
		Accelerator: r.box.Accelerator, Machine: r.box.Machine}
}

// Cage returns the machine. After a creation it names the sandbox that was created.
func (r *machineRun) Cage() bailey.Cage { return r.cage }

// Close releases nothing: the sandbox outlives the call.
func (r *machineRun) Close() error { return nil }

// Describe tells a person which machine the call acts on, and which programs its command names.
func (r *machineRun) Describe() (check []string, text string) {
	var b strings.Builder
	check = []string{"bailey", "sandbox", "list"}
	if r.box.ID != "" {
		check = []string{"bailey", "sandbox", "show", r.box.ID}
		fmt.Fprintf(&b, "sandbox %s (%s) of %s, network %s\n", r.box.Name, r.box.ID, r.box.Image,
			cmp.Or(r.box.Network, hostapi.NoNetwork))
	}
	for _, place := range r.box.Egress {
		fmt.Fprintf(&b, "it can reach %s\n", place.Words())
	}
	if len(r.cage.Commands) > 0 {
		fmt.Fprintf(&b, "programs: %s\n", strings.Join(r.cage.Commands, " "))
	}
	if r.hidden != "" {
		fmt.Fprintf(&b, "there may be others: %s\n", r.hidden)
	}
	return check, b.String()
}

// Start performs the operation once.
func (r *machineRun) Start(ctx context.Context, _ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	exit, err := r.verb.do(ctx, r, withWriters(s))
	r.takeConnections(ctx)
	if err == nil {
		return exit, nil
	}
	// The host refuses before it acts. If it fails or vanishes, it may have acted.
	exit = bailey.Exit{Code: 255}
	switch bailey.KindOf(err) {
	case bailey.NotFound, bailey.Invalid, bailey.Denied, bailey.Conflict:
		exit.Code = bailey.NeverRan
	}
	return exit, r.addHint(err)
}

// takeConnections asks the host what the machine connected to. The answer is for the receipt only, so a call does not fail
// without it.
func (r *machineRun) takeConnections(ctx context.Context) {
	if r.box.Network != hostapi.NamesNetwork || !r.verb.target {
		return
	}
	report, err := hostapi.TakeEgress.Ask(ctx, r.client, r.owner, hostapi.Target{Sandbox: r.box.ID})
	if err != nil {
		report.Events = []bailey.EgressEvent{{Time: time.Now(), Kind: bailey.EgressFailed, Via: "sandbox",
			Reason: "the host did not report the connections of the sandbox: " + err.Error()}}
	}
	r.told = &report
}

// addHint adds the cure to an error of the host that has none.
func (r *machineRun) addHint(err error) error {
	if bailey.HintOf(err) != "" || bailey.KindOf(err) != bailey.NotFound || r.action.verb != "create" {
		return err
	}
	return bailey.NotFound.Wrap(err, "cannot create the sandbox",
		"bailey image list shows the images; to build one: bailey image build "+r.box.Image)
}
