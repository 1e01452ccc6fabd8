package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

// This file makes calls of people on gateways. Each is an operation: it is in the ledger of the server before it is sent,
// its command runs at most once, and the gateway decides it by its own settings and policy, with the person as the caller.

func (s *Server) operationRoutes() {
	const one = "/api/v1/organisations/{organisation}"
	member, admin := Access{Role: store.Member}, Access{Role: store.Admin}
	addRoute(s, "GET", one+"/operations", "list-operations", "The calls on gateways that people have made here, the newest first",
		member, s.listOperations)
	addRoute(s, "GET", one+"/operations/{id}", "show-operation", "An operation; its input and result are for admins",
		member, s.showOperation)
	addRoute(s, "GET", one+"/sources", "list-sources", "The source hosts of the gateways that permit to look at them",
		member, s.listSources)
	addRoute(s, "POST", one+"/sources/run", "run-on-source", "Run a command line that only reads on a source host",
		admin, s.runOnSource)
	addRoute(s, "POST", one+"/sources/read", "read-source", "Read a file of a source host", admin, s.readSource)
	s.Hosts.OnEvent(fleet.CallBegun, s.beginOperation)
	s.Hosts.OnEvent(fleet.HostResources, s.storeResources)
	for _, kind := range []string{fleet.CallBegun, fleet.HostResources} {
		s.Hosts.AfterEvent(kind, func(_ context.Context, h store.Host, _ fleet.Event) { s.works.announceChange(h.Organisation) })
	}
}

// Times of operations.
const (
	settleEvery    = 15 * time.Second
	keepOperations = 90 * 24 * time.Hour // after their end
	callTime       = 10 * time.Minute    // of a call, unless the request says so
	createTime     = 20 * time.Minute    // the first boot of an image makes its template
	mostCallTime   = 6 * time.Hour
	mostWait       = 12 * time.Hour // for a gateway that is away
	atLeastWait    = time.Minute    // for a place among the commands of a gateway
)

// settleOld ends operations that got no result in time, and tells gateways what others have spent.
func (s *Server) settleOld(ctx context.Context) {
	for {
		s.tellSpent(ctx)
		if err := s.Store.SettleOperations(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error("operations whose time is over were not ended; that is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settleEvery):
		}
	}
}

// IdempotencyKey makes a request that is sent twice one operation.
type IdempotencyKey struct {
	Key string `header:"Idempotency-Key" maxLength:"200" doc:"the same key gives the same operation; for 90 days after its end"`
}

// Waiting says how long an operation waits for a gateway that is away.
type Waiting struct {
	Wait int `query:"wait" minimum:"0" maximum:"43200" doc:"seconds to wait for a gateway that is not connected; 0: it is refused"`
}

func (w Waiting) limit() time.Duration { return time.Duration(w.Wait) * time.Second }

// operationItem is an operation in an answer.
type operationItem struct {
	store.Operation
	Input  json.RawMessage   `json:"input,omitempty" doc:"for admins"`
	Result *fleet.CallResult `json:"result,omitempty" doc:"for admins: what the gate of the gateway said"`
	Error  *operationFault   `json:"error,omitempty" doc:"why it failed, or why its outcome is unknown"`
}

type operationFault struct {
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// newOperationItem describes an operation. A member does not see what was called with, and what came of it.
func newOperationItem(o store.Operation, c *Caller, whole bool) operationItem {
	i := operationItem{Operation: o}
	var f fleet.Fault
	if o.Fault != "" && json.Unmarshal([]byte(o.Fault), &f) == nil {
		i.Error = &operationFault{Kind: f.Kind, Detail: f.Message, Hint: f.Hint}
	}
	if !whole || c.Role < store.Admin {
		return i
	}
	i.Input = o.Input
	if r := (fleet.CallResult{}); len(o.Result) > 0 && json.Unmarshal(o.Result, &r) == nil {
		i.Result = &r
	}
	return i
}

func (s *Server) listOperations(ctx context.Context, c *Caller, in *struct {
	InOrganisation
	State   string `query:"state" enum:"queued,sent,running,done,failed,unknown" doc:"only those; default: all"`
	Host    string `query:"host" maxLength:"40"`
	Sandbox string `query:"sandbox" maxLength:"40"`
}) (*output[list[operationItem]], error) {
	for _, text := range []string{in.Host, in.Sandbox} {
		if strings.Contains(text, "\x00") {
			return nil, bailey.Invalid.New("a filter has a character that no id has", "")
		}
	}
	all, err := s.Store.Operations(ctx, in.Organisation,
		store.OperationFilter{State: in.State, Host: in.Host, Sandbox: in.Sandbox})
	out := answerWith(list[operationItem]{Items: []operationItem{}})
	for _, o := range all {
		out.Body.Items = append(out.Body.Items, newOperationItem(o, c, false))
	}
	return out, err
}

func (s *Server) showOperation(ctx context.Context, c *Caller, in *struct {
	InOrganisationByID
	Wait bool `query:"wait" doc:"wait up to 25 s for its end"`
}) (*output[operationItem], error) {
	late := time.After(waitForNews)
	for {
		_, changed := s.works.watchChanges(in.Organisation)
		o, err := s.Store.OperationByID(ctx, in.Organisation, in.ID)
		if err != nil {
			return nil, err
		}
		if !in.Wait || o.HasEnded() {
			return answerWith(newOperationItem(o, c, true)), nil
		}
		select {
		case <-changed:
		case <-late:
			in.Wait = false
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// newCall is a call that a person asks for.
type newCall struct {
	host       string // its id; "" lets the server choose
	sandbox    string // the id of a sandbox, or ""
	capability bailey.CapabilityID
	input      map[string]any
	timeout    time.Duration
	wait       time.Duration
	place      *store.Placement
}

// onceOnly identifies a request, so that it is not carried out twice.
type onceOnly struct{ organisation, key, digest string }

// newOnceOnly returns the identity of a request. The digest is of the parts that must be the same in a repetition.
func newOnceOnly(organisation string, key IdempotencyKey, parts ...any) (onceOnly, error) {
	text, err := json.Marshal(parts)
	return onceOnly{organisation, key.Key, store.Hash(string(text))}, err
}

// answerOperation makes the call that prepare returns, and answers with its operation. A repeated request gets the
// operation of the first one, whatever has changed meanwhile.
func (s *Server) answerOperation(ctx context.Context, c *Caller, r onceOnly,
	prepare func() (newCall, error)) (*output[operationItem], error) {
	o, _, err := s.startOnce(ctx, c, r, prepare)
	if err != nil {
		return nil, err
	}
	return answerWith(newOperationItem(o, c, true)), nil
}

func (s *Server) startOnce(ctx context.Context, c *Caller, r onceOnly, prepare func() (newCall, error)) (store.Operation,
	store.SandboxBox, error) {
	if strings.Contains(r.key, "\x00") {
		return store.Operation{}, store.SandboxBox{}, bailey.Invalid.New("the Idempotency-Key has a character that it must not have", "")
	}
	if r.key != "" {
		o, box, err := s.Store.RepeatedOperation(ctx, r.organisation, c.Account.ID, r.key, r.digest)
		if !errors.Is(err, bailey.NotFound) {
			return o, box, err
		}
	}
	n, err := prepare()
	if err != nil {
		return store.Operation{}, store.SandboxBox{}, err
	}
	return s.startOperation(ctx, c, r, n)
}

// startOperation records a call, in the ledger also, and then sends it.
func (s *Server) startOperation(ctx context.Context, c *Caller, r onceOnly, n newCall) (o store.Operation,
	box store.SandboxBox, err error) {
	if n.place == nil {
		if err := s.checkReachable(ctx, r.organisation, n); err != nil {
			return o, box, err
		}
	}
	input, err := json.Marshal(n.input)
	if err != nil {
		return o, box, err
	}
	o = store.Operation{ID: store.OperationPrefix + fleet.NewID(), Host: n.host, Sandbox: n.sandbox, Capability: string(n.capability),
		Account: c.Account.ID, Person: c.Account.Email, Input: input, Key: r.key, Digest: r.digest,
		Deadline: s.Now().Add(max(n.wait, atLeastWait) + n.timeout)}
	o, box, again, err := s.Store.AddOperation(ctx, r.organisation, o, n.place)
	if err != nil || again {
		return o, box, err
	}
	if err := s.sendOperation(ctx, c, r.organisation, o, n); err != nil {
		return o, box, s.cancelOperation(ctx, o, err)
	}
	s.works.announceChange(r.organisation)
	return o, box, nil
}

// checkReachable refuses a call early, if the server knows that the gateway would. The gateway decides in any case.
func (s *Server) checkReachable(ctx context.Context, organisation string, n newCall) error {
	all, err := s.Store.ResourcesOf(ctx, organisation)
	if err != nil {
		return err
	}
	for _, r := range all {
		if has := readResources(r.Body); r.Host == n.host && !slices.Contains(has.Calls, n.capability) {
			return bailey.Denied.Errorf("its operator lists it in settings.yaml: fleet: {calls: ["+string(n.capability)+
				"]}, then bailey init --apply", "the settings of that gateway do not permit that people call %s here", n.capability)
		}
	}
	if n.wait == 0 && !s.Hosts.Connected(n.host) {
		hosts, err := s.Store.Hosts(ctx, organisation)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(hosts, func(h store.Host) bool { return h.ID == n.host }) {
			return bailey.NotFound.New("there is no such host", "list them: GET /api/v1/organisations/ID/hosts")
		}
		return bailey.Unavailable.New("the gateway is not connected, so it cannot make the call now",
			"try again when it is connected, or say how long to wait for it")
	}
	return nil
}

// operationEvent is the entry of the ledger before an operation is sent, and after its end.
type operationEvent struct {
	Operation    string `json:"operation"`
	Organisation string `json:"organisation"`
	Host         string `json:"host"`
	Sandbox      string `json:"sandbox,omitempty"`
	Capability   string `json:"capability"`
	Account      string `json:"account"`
	Email        string `json:"email"`
	Input        string `json:"input"` // SHA-256 of its JSON, hex
	State        string `json:"state"`
	Receipt      string `json:"receipt,omitempty"` // in the ledger of the host
}

// OperationEvent is the kind of the ledger entries of operations.
const OperationEvent = "operation"

func (s *Server) noteOperation(ctx context.Context, organisation string, o store.Operation) error {
	return s.Ledger.Note(ctx, OperationEvent, operationEvent{Operation: o.ID, Organisation: organisation, Host: o.Host,
		Sandbox: o.Sandbox, Capability: o.Capability, Account: o.Account, Email: o.Person, Input: store.Hash(string(o.Input)),
		State: o.State, Receipt: o.Receipt})
}

// sendOperation writes the entry of the ledger, and then stores and sends the command.
func (s *Server) sendOperation(ctx context.Context, c *Caller, organisation string, o store.Operation, n newCall) error {
	if err := s.noteOperation(ctx, organisation, o); err != nil {
		return bailey.Unavailable.Wrap(err, "the call cannot be recorded, so it was not made", "see the log of bailey-server")
	}
	body, err := json.Marshal(fleet.CallOrder{Operation: o.ID, Capability: n.capability, Input: n.input, Timeout: n.timeout,
		By: fleet.CallPerson{Account: c.Account.ID, Email: c.Account.Email, Name: c.Account.Name, Role: c.Role.String(),
			Organisation: organisation}})
	if err != nil {
		return err
	}
	m := &fleet.Command{ID: strings.TrimPrefix(o.ID, store.OperationPrefix), Kind: fleet.Call, Body: body, Deadline: o.Deadline}
	err = s.Store.AddCommand(ctx, organisation, store.Command{ID: m.ID, Host: o.Host, Kind: m.Kind, Body: string(body),
		Deadline: m.Deadline})
	if err != nil {
		return err
	}
	s.Hosts.deliver(context.WithoutCancel(ctx), m, o.Host)
	return nil
}

// cancelOperation ends an operation that was not sent. It returns why.
func (s *Server) cancelOperation(ctx context.Context, o store.Operation, why error) error {
	ctx = context.WithoutCancel(ctx)
	p := asProblem(why)
	fault, err := json.Marshal(fleet.Fault{Kind: p.Title, Message: p.Detail, Hint: p.Hint})
	if err == nil {
		err = s.Store.Change(ctx, func(tx *store.Tx) error {
			o.State, o.Fault = store.OperationFailed, string(fault)
			if err := s.Store.FinishOperation(ctx, tx, o.Host, o); err != nil {
				return err
			}
			return s.Store.SetBoxState(ctx, tx, o.Host, o.Sandbox, store.BoxFailed)
		})
	}
	if err != nil {
		s.Log.Error("an operation that was not sent stays open until its deadline", "operation", o.ID, "error", err)
	}
	return why
}

// beginOperation stores that a gateway has begun an operation.
func (s *Server) beginOperation(ctx context.Context, tx *store.Tx, h store.Host, e fleet.Event) error {
	var b fleet.CallBegin
	if err := json.Unmarshal(e.Body, &b); err != nil || !operationForm.MatchString(b.Operation) {
		return bailey.Invalid.Wrap(err, "the event names no operation", "")
	}
	return s.Store.BeginOperation(ctx, tx, h.ID, b.Operation)
}

var (
	operationForm = regexp.MustCompile(`^op-[a-z2-7]{26}$`)
	machineForm   = regexp.MustCompile(`^sb-[a-z2-7]{26}$`)
)

// endOperation stores the result of a command, if it is that of an operation. The first result stays.
func (s *Server) endOperation(ctx context.Context, h store.Host, r fleet.Result) error {
	o, err := s.Store.OperationByID(ctx, h.Organisation, store.OperationPrefix+r.ID)
	if errors.Is(err, bailey.NotFound) || err == nil && o.Host != h.ID {
		return nil
	}
	if err != nil {
		return err
	}
	result, err := readCallResult(&o, r)
	if err != nil {
		return err
	}
	err = s.Store.Change(ctx, func(tx *store.Tx) error {
		if err := s.Store.FinishOperation(ctx, tx, h.ID, o); err != nil {
			return err
		}
		return s.followSandbox(ctx, tx, h, o, result)
	})
	if errors.Is(err, bailey.NotFound) { // it has ended before
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.noteOperation(context.WithoutCancel(ctx), h.Organisation, o); err != nil {
		s.Log.Error("the end of an operation is not recorded", "operation", o.ID, "error", err)
	}
	s.works.announceChange(h.Organisation)
	return nil
}

// readCallResult sets how an operation has ended.
func readCallResult(o *store.Operation, r fleet.Result) (result fleet.CallResult, err error) {
	fault := r.Error
	if fault == nil && json.Unmarshal(r.Body, &result) != nil {
		fault = &fleet.Fault{Kind: string(bailey.Invalid), Message: "the gateway sent a result that cannot be read",
			Hint: "use versions that understand each other"}
	}
	o.State = store.OperationDone
	switch {
	case fault != nil && fault.Unknown:
		o.State = store.OperationUnknown
	case fault != nil:
		o.State = store.OperationFailed
	case result.Status != bailey.OK || result.Error != "":
		o.State = store.OperationFailed
		fault = &fleet.Fault{Kind: cmp.Or(result.Error, string(bailey.Unavailable)),
			Message: cmp.Or(result.Message, "the call ended as "+string(result.Status)), Hint: result.Hint}
	}
	if r.Error == nil {
		o.Receipt, o.Result = indexText(result.Receipt), r.Body
	}
	if fault == nil {
		return result, nil
	}
	text, err := json.Marshal(fault)
	o.Fault = string(text)
	return result, err
}

// storeResources stores what a gateway says that it has.
func (s *Server) storeResources(ctx context.Context, tx *store.Tx, h store.Host, e fleet.Event) error {
	var r fleet.ResourceReport
	if err := json.Unmarshal(e.Body, &r); err != nil || len(e.Body) > 4*maxBody {
		return bailey.Invalid.Wrap(err, "the resources of the host cannot be read", "")
	}
	return s.Store.SetResources(ctx, tx, h.ID, e.Body)
}

// readResources reads what storeResources has checked.
func readResources(body []byte) (r fleet.ResourceReport) {
	json.Unmarshal(body, &r)
	return r
}

// sourceItem is a source host in a list.
type sourceItem struct {
	Host      string `json:"host" doc:"the gateway"`
	HostName  string `json:"hostName"`
	Connected bool   `json:"connected" doc:"whether the gateway is connected"`
	fleet.SourceReport
}

func (s *Server) listSources(ctx context.Context, _ *Caller, in *InOrganisation) (*output[list[sourceItem]], error) {
	names, err := s.hostNames(ctx, in.Organisation)
	if err != nil {
		return nil, err
	}
	all, err := s.Store.ResourcesOf(ctx, in.Organisation)
	out := answerWith(list[sourceItem]{Items: []sourceItem{}})
	for _, r := range all {
		for _, one := range readResources(r.Body).Sources {
			out.Body.Items = append(out.Body.Items, sourceItem{r.Host, names[r.Host], s.Hosts.Connected(r.Host), one})
		}
	}
	return out, err
}

// OnSource names a source host of a gateway.
type OnSource struct {
	Host string `json:"host" minLength:"1" maxLength:"40" doc:"the id of the gateway"`
	Name string `json:"name" minLength:"1" maxLength:"64" doc:"the source host, as its gateway knows it"`
}

func (s *Server) runOnSource(ctx context.Context, c *Caller, in *struct {
	InOrganisation
	IdempotencyKey
	Waiting
	Body struct {
		OnSource
		Command string `json:"command" minLength:"1" maxLength:"16384" doc:"a line that only reads, for example: journalctl -n 100"`
	}
}) (*output[operationItem], error) {
	return s.lookAtSource(ctx, c, in.InOrganisation, in.IdempotencyKey, in.Waiting, in.Body.Host, "source.run",
		map[string]any{"host": in.Body.Name, "command": in.Body.Command})
}

func (s *Server) readSource(ctx context.Context, c *Caller, in *struct {
	InOrganisation
	IdempotencyKey
	Waiting
	Body struct {
		OnSource
		Path string `json:"path" minLength:"1" maxLength:"4096" doc:"the absolute path"`
	}
}) (*output[operationItem], error) {
	return s.lookAtSource(ctx, c, in.InOrganisation, in.IdempotencyKey, in.Waiting, in.Body.Host, "source.read_file",
		map[string]any{"host": in.Body.Name, "path": in.Body.Path})
}

func (s *Server) lookAtSource(ctx context.Context, c *Caller, of InOrganisation, key IdempotencyKey, w Waiting, host string,
	id bailey.CapabilityID, input map[string]any) (*output[operationItem], error) {
	r, err := newOnceOnly(of.Organisation, key, id, host, input)
	if err != nil {
		return nil, err
	}
	return s.answerOperation(ctx, c, r, func() (newCall, error) {
		return newCall{host: host, capability: id, input: input, timeout: callTime, wait: w.limit()}, nil
	})
}
