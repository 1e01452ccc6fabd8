package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/hostapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/source"
)

// This file has the calls that people make through the control plane, and the report of what is there for them. A call
// passes the gate of this gateway as every other call does: the settings must name its capability, and the policy
// decides.
//
// bailey-host has no gate, no policy and no ledger. So it never talks to the control plane: a machine of sandboxes is
// enrolled as a gateway is (bailey enroll --kind host), and its gateway, which owns the bailey-host, makes the calls.

// maxCallText limits the output in the result of a call, in bytes of JSON. The control plane refuses larger results.
const maxCallText = 48 << 10

// makeFleetCall makes a call for a person of the control plane.
func (s *Server) makeFleetCall(ctx context.Context, o fleet.CallOrder) (fleet.CallResult, error) {
	call, err := s.readFleetCall(o)
	if err != nil {
		return fleet.CallResult{}, err
	}
	if end, ok := ctx.Deadline(); ok { // a person can be asked until then
		call.Patience = max(time.Until(end)-time.Minute, 0)
	}
	s.reportEvent(fleet.CallBegun, fleet.CallBegin{Operation: o.Operation})
	defer s.endSingleSession(call.Session.ID)
	return newCallResult(s.limit.Do(ctx, call)), nil
}

// readFleetCall returns the call that an order asks for, if the settings permit it.
func (s *Server) readFleetCall(o fleet.CallOrder) (c bailey.Call, err error) {
	e := s.enrolled.Load()
	switch {
	case e == nil || e.Organisation == "" || o.By.Organisation != e.Organisation:
		return c, bailey.Denied.New("the caller is not of the organisation that this gateway is enrolled in",
			"compare bailey enroll status with the control plane")
	case o.By.Account == "" || printableWords(o.By.Email, maxCaller) != o.By.Email || o.By.Email == "" ||
		len(o.By.Account) > maxCaller || len(o.By.Role) > maxCaller || o.Timeout < 0:
		return c, bailey.Invalid.New("the call does not name an account with its address", "")
	case !s.settings.Applied().Fleet.Permits(o.Capability):
		return c, bailey.Denied.Errorf(
			"its operator lists it: fleet: {calls: ["+printableWords(string(o.Capability), 100)+
				"]} in settings.yaml, then bailey init --apply",
			"the settings of the gateway do not permit that the control plane calls %.100q",
			o.Capability,
		)
	}
	if o.Input == nil {
		o.Input = map[string]any{}
	}
	return bailey.Call{Capability: o.Capability, Input: o.Input, Timeout: o.Timeout, Door: "control-plane", Dir: "/",
		Client: "operation " + o.Operation,
		Principal: bailey.Principal{Agent: apitype.ControlPlaneAgent, Person: o.By.Email, Organisation: e.Organisation,
			Roles: []string{"account:" + o.By.Account, o.By.Role}},
		Session: bailey.Session{ID: bailey.NewSessionID(), Single: true}}, nil
}

// maxCaller limits each name of a caller, in bytes.
const maxCaller = 254

// endSingleSession releases what the session of one call holds.
func (s *Server) endSingleSession(id bailey.SessionID) {
	s.workspaces.End(id)
	if err := s.limit.EndSession(context.Background(), id); err != nil {
		s.Log.Error("cannot end a session", "session", id, "err", err)
	}
}

// newCallResult returns what the control plane learns about a call. It bounds the output.
func newCallResult(r bailey.Result) fleet.CallResult {
	out := fleet.CallResult{Receipt: r.Receipt, Status: r.Status, Executed: r.Executed, ExitCode: r.ExitCode,
		Truncated: r.Truncated, Approval: r.Approval}
	if r.Err != nil {
		out.Error = string(bailey.KindOf(r.Err))
		out.Message, _ = clipJSON(r.Err.Error(), maxCallText/12)
		out.Hint, _ = clipJSON(bailey.HintOf(r.Err), maxCallText/12)
	}
	if !r.Executed || r.NotDurable {
		return out
	}
	if len(r.Structured) > 0 && len(r.Structured) <= maxCallText && !r.Truncated {
		out.Structured = r.Structured
		return out
	}
	var cut bool
	out.Stderr, cut = clipJSON(string(r.Stderr), maxCallText/4)
	out.Truncated = out.Truncated || cut
	out.Stdout, cut = clipJSON(string(r.Stdout), maxCallText*3/4)
	out.Truncated = out.Truncated || cut
	return out
}

// clipWords returns the beginning of a text.
func clipWords(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// clipJSON returns the beginning of a text that has at most so many bytes as JSON.
func clipJSON(text string, most int) (clipped string, cut bool) {
	text = strings.ToValidUTF8(text, "\ufffd")
	for size := min(len(text), most); ; size /= 2 {
		clipped = clipWords(text, size)
		if b, err := json.Marshal(clipped); err == nil && len(b) <= most {
			return clipped, len(clipped) < len(text)
		}
	}
}

// localPerson is the person for whom the sandboxes of the control plane count on this machine, so that its operator
// sees and ends them.
func localPerson() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "uid:" + strconv.Itoa(os.Geteuid())
}

// ownerOfFleet returns the owner of the sandboxes that people make through the control plane: the organisation, as an
// agent of the local person. An admin can so end what another one has made.
func ownerOfFleet(p bailey.Principal) (hostapi.Owner, bool) {
	if p.Agent != apitype.ControlPlaneAgent || p.Organisation == "" {
		return hostapi.Owner{}, false
	}
	return hostapi.Owner{Person: localPerson(), Agent: apitype.ControlPlaneAgent + " " + p.Organisation}, true
}

// How often the report of what is there is composed. It is sent if it has changed.
const resourcesEvery = 30 * time.Second

// followResources reports what is there for the control plane, whenever that changes.
func (s *Server) followResources(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.resources.ask:
		case <-time.After(resourcesEvery):
		}
		if s.enrolled.Load() != nil {
			s.reportResources(ctx)
		}
	}
}

// resourceReports remembers what was reported.
type resourceReports struct {
	ask chan struct{} // has a value if a report is due

	mu   sync.Mutex
	last []byte
	host *hostapi.Status // of the host of sandboxes when it ran last
}

// forgetLast has the next report sent, whether it has changed or not.
func (r *resourceReports) forgetLast() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = nil
}

// knownHost returns the state of the host of sandboxes when it ran last, or nil.
func (r *resourceReports) knownHost() *hostapi.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.host
}

func (r *resourceReports) keepHost(s hostapi.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.host = &s
}

// askResources has the report sent soon, for example when an enrolment begins.
func (s *Server) askResources() {
	select {
	case s.resources.ask <- struct{}{}:
	default:
	}
}

func (s *Server) reportResources(ctx context.Context) {
	r := s.describeResources(ctx)
	text, err := json.Marshal(r)
	if err != nil {
		return
	}
	s.resources.mu.Lock()
	same := bytes.Equal(text, s.resources.last)
	s.resources.last = text
	s.resources.mu.Unlock()
	if !same {
		s.reportEvent(fleet.HostResources, r)
	}
}

// Limits of a report.
const (
	maxReported = 1000
	roundMB     = 256 // free memory is rounded down to these steps, so that not every change is one
)

func (s *Server) describeResources(ctx context.Context) fleet.ResourceReport {
	permitted := s.settings.Applied().Fleet
	r := fleet.ResourceReport{Calls: slices.Clone(permitted.Calls)}
	if r.Calls == nil {
		r.Calls = []bailey.CapabilityID{}
	}
	if permitted.Permits("sandbox.create") && hostapi.Installed() {
		s.describeHost(ctx, &r)
	}
	if slices.ContainsFunc(permitted.Calls,
		func(id bailey.CapabilityID) bool { return strings.HasPrefix(string(id), "source.") }) {
		hosts, err := (&source.Registry{Dir: string(s.home)}).List()
		if err != nil {
			s.Log.Warn("the control plane is not told of the source hosts", "err", err)
		}
		for _, h := range hosts[:min(len(hosts), maxReported)] {
			r.Sources = append(r.Sources,
				fleet.SourceReport{Name: h.Name, Labels: h.Labels, System: h.System, Prepared: h.Prepared()})
		}
	}
	return r
}

// describeHost adds the capacity of the host of sandboxes. It starts the host once: only the host knows its limits.
func (s *Server) describeHost(ctx context.Context, r *fleet.ResourceReport) {
	client, err := hostapi.Here(s.home)
	if err != nil {
		s.Log.Warn("the control plane is not told of the host of sandboxes", "err", err)
		return
	}
	known := s.resources.knownHost()
	if known != nil {
		client.Start = nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	owner, _ := ownerOfFleet(bailey.Principal{Agent: apitype.ControlPlaneAgent, Organisation: "any"})
	now, err := hostapi.HostStatus.Ask(ctx, client, owner, hostapi.None{})
	switch {
	case err == nil:
		s.resources.keepHost(now)
		known = &now
	case known == nil || !errors.Is(err, hostapi.ErrUnreachable):
		s.Log.Warn("the control plane is not told of the host of sandboxes", "err", err)
		return
	}
	h := known
	r.Accelerator, r.Networks = h.Accelerator, []string{}
	if len(s.networkSettings().For("sandbox.create")) > 0 {
		r.Networks = append(r.Networks, hostapi.NamesNetwork)
	}
	r.Capacity = fleet.Capacity{CPUs: h.CPUs, Memory: int64(h.MemoryMB) << 20, Disk: h.DiskBytes, Sandboxes: h.PerOwner}
	free := min(h.FreeMB, cmp.Or(h.MaxMemoryMB, h.FreeMB)) / roundMB * roundMB
	r.Free = fleet.Capacity{Memory: int64(free) << 20, Disk: h.FreeBytes >> 30 << 30}
	if os.Getenv(hostapi.SocketVariable) == "" { // the images of a host for several users are not here
		r.Images = imageNames(hostapi.ImagesOf(s.home))
	}
}

func imageNames(dir string) (names []string) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range all {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && len(names) < maxReported {
			names = append(names, e.Name())
		}
	}
	return names
}
