package control

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

func (s *Server) sandboxRoutes() {
	const one = "/api/v1/organisations/{organisation}"
	member, admin := Access{Role: store.Member}, Access{Role: store.Admin}
	addRoute(s, "GET", one+"/sandboxes", "list-sandboxes", "The sandboxes that were created here", member,
		s.listSandboxes)
	addRoute(s, "POST", one+"/sandboxes", "create-sandbox",
		"Create a sandbox, on the host with the most free memory of three that have room for it", admin,
		s.createSandbox)
	addRoute(s, "POST", one+"/sandboxes/{id}/exec", "exec-in-sandbox", "Run a command in a sandbox", admin,
		s.execInSandbox)
	addRoute(s, "DELETE", one+"/sandboxes/{id}", "destroy-sandbox", "Destroy a sandbox with all its files", admin,
		s.destroySandbox)
	addRoute(s, "POST", one+"/hosts/{id}/sandboxes", "refresh-sandboxes",
		"Ask a host for the sandboxes that were created here, and correct the list by its answer", admin,
		s.refreshSandboxes)
	addRoute(s, "GET", one+"/resources", "list-resources", "What the hosts have, and permit to call here", member,
		s.listResources)
}

type sandboxItem struct {
	store.SandboxBox
	HostName  string `json:"hostName"`
	Connected bool   `json:"connected" doc:"whether its gateway is connected"`
}

func (s *Server) listSandboxes(ctx context.Context, _ *Caller, in *struct {
	InOrganisation
	All bool `query:"all" doc:"also those that have ended"`
}) (*output[list[sandboxItem]], error) {
	names, err := s.hostNames(ctx, in.Organisation)
	if err != nil {
		return nil, err
	}
	all, err := s.Store.Sandboxes(ctx, in.Organisation, in.All)
	out := answerWith(list[sandboxItem]{Items: []sandboxItem{}})
	for _, b := range all {
		out.Body.Items = append(out.Body.Items, sandboxItem{b, names[b.Host], s.Hosts.Connected(b.Host)})
	}
	return out, err
}

// NewSandbox describes a sandbox to create.
type NewSandbox struct {
	Host     string `json:"host,omitempty" maxLength:"40" doc:"the id of a host; without it the server chooses one"`
	Image    string `json:"image" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"`
	Name     string `json:"name,omitempty" pattern:"^[a-z0-9][a-z0-9-]{0,31}$"`
	CPUs     int    `json:"cpus,omitempty" minimum:"1" maximum:"64" doc:"default: 1"`
	MemoryMB int    `json:"memoryMB,omitempty" minimum:"64" maximum:"262144" doc:"default: 256"`
	Network  string `json:"network,omitempty" pattern:"^[a-z0-9][a-z0-9_-]{0,31}$" doc:"default: none"`
	TTL      string `json:"ttl,omitempty" pattern:"^[1-9][0-9]{0,3}[mh]$" doc:"for how long it lives, for example 90m; default: 24h"`
}

// createdSandbox is the answer to a creation.
type createdSandbox struct {
	Operation operationItem `json:"operation"`
	Sandbox   sandboxItem   `json:"sandbox"`
}

func (s *Server) createSandbox(ctx context.Context, c *Caller, in *struct {
	InOrganisation
	IdempotencyKey
	Body NewSandbox
}) (*output[createdSandbox], error) {
	r, err := newOnceOnly(in.Organisation, in.IdempotencyKey, "sandbox.create", in.Body)
	if err != nil {
		return nil, err
	}
	o, box, err := s.startOnce(ctx, c, r, func() (newCall, error) {
		candidates, err := s.candidateHosts(ctx, in.Organisation, in.Body.Host)
		n := in.Body.newCall()
		n.place.Candidates, n.place.Box.Person = candidates, c.Account.Email
		return n, err
	})
	if err != nil {
		return nil, err
	}
	return answerWith(
		createdSandbox{newOperationItem(o, c, true), sandboxItem{box, o.HostName, s.Hosts.Connected(box.Host)}}), nil
}

// newCall returns the call that creates the sandbox.
func (n NewSandbox) newCall() newCall {
	n.CPUs, n.MemoryMB = cmp.Or(n.CPUs, 1), cmp.Or(n.MemoryMB, 256)
	input := map[string]any{"image": n.Image, "cpus": n.CPUs, "memory_mb": n.MemoryMB}
	for name, value := range map[string]string{"name": n.Name, "network": n.Network, "ttl": n.TTL} {
		if value != "" {
			input[name] = value
		}
	}
	return newCall{host: n.Host, capability: "sandbox.create", input: input, timeout: createTime,
		place: &store.Placement{Fits: n.fitsOn, Box: store.SandboxBox{Name: n.Name, Image: n.Image, Network: n.Network,
			CPUs: n.CPUs, MemoryMB: n.MemoryMB}}}
}

// candidateHosts lists the connected hosts of an organisation, or the one that the request names.
func (s *Server) candidateHosts(ctx context.Context, organisation, only string) (ids []string, err error) {
	all, err := s.Store.Hosts(ctx, organisation)
	if err != nil {
		return nil, err
	}
	known := false
	for _, h := range all {
		if only != "" && h.ID != only {
			continue
		}
		if known = true; s.Hosts.Connected(h.ID) {
			ids = append(ids, h.ID)
		}
	}
	switch {
	case only != "" && !known:
		return nil, bailey.NotFound.New("there is no such host", "list them: GET /api/v1/organisations/ID/hosts")
	case len(ids) == 0:
		return nil, bailey.Unavailable.New("no host is connected that could create the sandbox",
			"try again when one is")
	}
	return ids, nil
}

// fitsOn returns what a host has, and whether it permits such a sandbox at all. A host that does not tell its images
// may have any.
func (n NewSandbox) fitsOn(body []byte) (store.Resources, bool) {
	r := readResources(body)
	fits := slices.Contains(r.Calls, "sandbox.create") && (len(r.Images) == 0 || slices.Contains(r.Images, n.Image)) &&
		(n.Network == "" || n.Network == "none" || slices.Contains(r.Networks, n.Network))
	return store.Resources{CPUs: r.Capacity.CPUs, MemoryMB: r.Capacity.Memory >> 20, FreeMB: r.Free.Memory >> 20,
		Sandboxes: r.Capacity.Sandboxes}, fits
}

// NewExec is a command to run in a sandbox.
type NewExec struct {
	Command []string `json:"command" minItems:"1" maxItems:"256" doc:"the program and its arguments; no shell is involved"`
	Dir     string   `json:"dir,omitempty" maxLength:"4096" doc:"the working directory; default: /"`
	Env     []string `json:"env,omitempty" maxItems:"64" doc:"variables, NAME=value"`
	Stdin   string   `json:"stdin,omitempty" maxLength:"32768"`
	UID     int      `json:"uid,omitempty" minimum:"0" maximum:"4294967294"`
	GID     int      `json:"gid,omitempty" minimum:"0" maximum:"4294967294"`
	Seconds int      `json:"seconds,omitempty" minimum:"1" maximum:"600" doc:"until it is ended; default: 600"`
}

func (n NewExec) inputFor(machine string) map[string]any {
	input := map[string]any{"sandbox": machine, "command": n.Command}
	if n.Dir != "" {
		input["dir"] = n.Dir
	}
	if len(n.Env) > 0 {
		input["env"] = n.Env
	}
	if n.Stdin != "" {
		input["stdin"] = n.Stdin
	}
	if n.UID != 0 {
		input["uid"] = n.UID
	}
	if n.GID != 0 {
		input["gid"] = n.GID
	}
	return input
}

func (s *Server) execInSandbox(ctx context.Context, c *Caller, in *struct {
	InOrganisationByID
	IdempotencyKey
	Waiting
	Body NewExec
}) (*output[operationItem], error) {
	r, err := newOnceOnly(in.Organisation, in.IdempotencyKey, "sandbox.exec", in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	return s.answerOperation(ctx, c, r, func() (newCall, error) {
		box, err := s.usableSandbox(ctx, in.Organisation, in.ID)
		n := newCall{host: box.Host, sandbox: box.ID, capability: "sandbox.exec", input: in.Body.inputFor(box.Machine),
			timeout: callTime, wait: in.Waiting.waitTime()}
		if in.Body.Seconds > 0 {
			n.timeout = time.Duration(in.Body.Seconds) * time.Second
		}
		return n, err
	})
}

// usableSandbox returns a sandbox that its host knows.
func (s *Server) usableSandbox(ctx context.Context, organisation, id string) (store.SandboxBox, error) {
	box, err := s.Store.SandboxByID(ctx, organisation, id)
	switch {
	case err != nil:
		return box, err
	case box.State == store.BoxFailed || box.State == store.BoxGone:
		return box, bailey.Conflict.Errorf("create another one", "the sandbox is %s", box.State)
	case box.Machine == "":
		return box, bailey.Conflict.Errorf(
			"wait for the operation "+box.Operation+"; if its outcome is unknown, ask the host: "+
				"POST /api/v1/organisations/ID/hosts/HOST/sandboxes",
			"the sandbox is %s, and its id at the host is not known",
			box.State,
		)
	}
	return box, nil
}

func (s *Server) destroySandbox(ctx context.Context, c *Caller, in *struct {
	InOrganisationByID
	IdempotencyKey
	Waiting
}) (*output[operationItem], error) {
	r, err := newOnceOnly(in.Organisation, in.IdempotencyKey, "sandbox.destroy", in.ID)
	if err != nil {
		return nil, err
	}
	return s.answerOperation(ctx, c, r, func() (newCall, error) {
		box, err := s.usableSandbox(ctx, in.Organisation, in.ID)
		return newCall{host: box.Host, sandbox: box.ID, capability: "sandbox.destroy",
			input: map[string]any{"sandbox": box.Machine}, timeout: callTime, wait: in.Waiting.waitTime()}, err
	})
}

func (s *Server) refreshSandboxes(ctx context.Context, c *Caller, in *struct {
	InOrganisationByID
	IdempotencyKey
}) (*output[operationItem], error) {
	r, err := newOnceOnly(in.Organisation, in.IdempotencyKey, "sandbox.list", in.ID)
	if err != nil {
		return nil, err
	}
	return s.answerOperation(ctx, c, r, func() (newCall, error) {
		return newCall{host: in.ID, capability: "sandbox.list", input: map[string]any{}, timeout: callTime}, nil
	})
}

// machine is a sandbox as a host describes it.
type machine struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Image    string    `json:"image"`
	State    string    `json:"state"`
	CPUs     int       `json:"cpus"`
	MemoryMB int       `json:"memoryMB"`
	Network  string    `json:"network"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
}

// machineStates are the states that a host may report.
var machineStates = []string{"creating", "running", "paused", "stopped", "failed", "ended", "destroying"}

// describeBox copies what a host says about its sandbox. A host that says nonsense only describes its own sandbox
// wrongly.
func (m machine) describeBox(b store.SandboxBox) store.SandboxBox {
	b.Machine, b.Name, b.Network, b.Expires = m.ID, indexText(m.Name), indexText(m.Network), m.Expires
	b.CPUs, b.MemoryMB = max(m.CPUs, 1), max(m.MemoryMB, 1)
	b.State = "running"
	if slices.Contains(machineStates, m.State) && m.State != store.BoxFailed {
		b.State = m.State
	}
	if m.State == store.BoxFailed { // at a host, a failed sandbox exists
		b.State = "paused"
	}
	return b
}

// followSandbox changes the sandbox of an operation by its end.
func (s *Server) followSandbox(ctx context.Context, tx *store.Tx, h store.Host, o store.Operation,
	r fleet.CallResult) error {
	switch o.Capability {
	case "sandbox.create":
		return s.followCreation(ctx, tx, h, o, r)
	case "sandbox.destroy":
		if o.State == store.OperationDone || o.State == store.OperationFailed && r.Error == string(bailey.NotFound) {
			return s.Store.SetBoxState(ctx, tx, h.ID, o.Sandbox, store.BoxGone)
		}
	case "sandbox.list":
		var all []machine
		if o.State == store.OperationDone && readStructured(r, &all) == nil && !r.Truncated {
			return s.compareSandboxes(ctx, tx, h, all)
		}
	}
	return nil
}

func (s *Server) followCreation(ctx context.Context, tx *store.Tx, h store.Host, o store.Operation,
	r fleet.CallResult) error {
	boxes, err := s.Store.BoxesOf(ctx, tx, h.ID)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(boxes, func(b store.SandboxBox) bool { return b.ID == o.Sandbox })
	if i < 0 {
		return nil
	}
	var m machine
	switch {
	case o.State == store.OperationFailed:
		return s.Store.SetBoxState(ctx, tx, h.ID, o.Sandbox, store.BoxFailed)
	case o.State == store.OperationDone && readStructured(r, &m) == nil && machineForm.MatchString(m.ID):
		return s.Store.SeeBox(ctx, tx, h.ID, m.describeBox(boxes[i]))
	}
	return s.Store.SetBoxState(ctx, tx, h.ID, o.Sandbox, store.BoxUnknown)
}

// readStructured reads the output of a call that promises JSON.
func readStructured(r fleet.CallResult, into any) error {
	text := []byte(r.Structured)
	if len(text) == 0 {
		text = []byte(r.Stdout)
	}
	return json.Unmarshal(text, into)
}

// compareSandboxes corrects the list by that of a host. A sandbox that the host does not list is gone. One whose
// creation had an unknown outcome is found again by its name and image, if it has a name.
func (s *Server) compareSandboxes(ctx context.Context, tx *store.Tx, h store.Host, all []machine) error {
	boxes, err := s.Store.BoxesOf(ctx, tx, h.ID)
	if err != nil {
		return err
	}
	for _, b := range boxes {
		i := slices.IndexFunc(all, func(m machine) bool {
			return machineForm.MatchString(m.ID) &&
				(m.ID == b.Machine || b.Machine == "" && b.State == store.BoxUnknown &&
					b.Name != "" && m.Name == b.Name && m.Image == b.Image)
		})
		switch {
		case i >= 0:
			err = s.Store.SeeBox(ctx, tx, h.ID, all[i].describeBox(b))
		case b.Machine != "" || b.State == store.BoxUnknown:
			err = s.Store.SetBoxState(ctx, tx, h.ID, b.ID, store.BoxGone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resourceItem is what a host has.
type resourceItem struct {
	Host      string    `json:"host"`
	HostName  string    `json:"hostName"`
	Connected bool      `json:"connected"`
	Changed   time.Time `json:"changed" doc:"when the host last reported"`
	fleet.ResourceReport
}

func (s *Server) listResources(ctx context.Context, _ *Caller,
	in *InOrganisation) (*output[list[resourceItem]], error) {
	names, err := s.hostNames(ctx, in.Organisation)
	if err != nil {
		return nil, err
	}
	all, err := s.Store.ResourcesOf(ctx, in.Organisation)
	out := answerWith(list[resourceItem]{Items: []resourceItem{}})
	for _, r := range all {
		out.Body.Items = append(out.Body.Items,
			resourceItem{r.Host, names[r.Host], s.Hosts.Connected(r.Host), r.Changed, readResources(r.Body)})
	}
	return out, err
}
