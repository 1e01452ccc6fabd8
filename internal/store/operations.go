package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"bailey"
)

// States of an operation. The last three are ends, but a result that arrives late replaces unknown.
const (
	OperationQueued  = "queued"
	OperationSent    = "sent"    // it may run
	OperationRunning = "running" // its gateway said so
	OperationDone    = "done"
	OperationFailed  = "failed"
	OperationUnknown = "unknown" // it was sent, and its gateway has not answered in time, or has lost the outcome
)

// OperationPrefix is the beginning of the id of an operation. The id of its command follows.
const OperationPrefix = "op-"

// An Operation is a call that a person has made on a gateway through the server.
type Operation struct {
	ID         string          `json:"id"`
	Host       string          `json:"host"`
	HostName   string          `json:"hostName"`
	Sandbox    string          `json:"sandbox,omitempty"`
	Capability string          `json:"capability"`
	Account    string          `json:"account"`
	Person     string          `json:"person"`
	State      string          `json:"state" enum:"queued,sent,running,done,failed,unknown"`
	Created    time.Time       `json:"created"`
	Sent       time.Time       `json:"sent,omitzero"`
	Begun      time.Time       `json:"begun,omitzero"`
	Ended      time.Time       `json:"ended,omitzero"`
	Deadline   time.Time       `json:"deadline"`
	Receipt    string          `json:"receipt,omitempty" doc:"in the ledger of the host"`
	Input      json.RawMessage `json:"-"`
	Result     json.RawMessage `json:"-"`
	Fault      string          `json:"-"` // JSON, or ""
	Key        string          `json:"-"` // of the request
	Digest     string          `json:"-"` // of the request
}

// HasEnded reports whether the operation is at an end.
func (o Operation) HasEnded() bool {
	return o.State == OperationDone || o.State == OperationFailed || o.State == OperationUnknown
}

// lostAfter is how long after its deadline the result of an operation is still expected.
const lostAfter = time.Minute

const operationColumns = "id, host, host_name, sandbox, capability, account, person, state, created, sent, begun, ended, " +
	"deadline, receipt, input, result, fault, request_key, digest"

// scanOperation also ends what SettleOperations has not ended yet.
func (s *Store) scanOperation(scan func(...any) error) (o Operation, err error) {
	var created, sent, begun, ended, deadline int64
	var input, result string
	err = scan(&o.ID, &o.Host, &o.HostName, &o.Sandbox, &o.Capability, &o.Account, &o.Person, &o.State, &created, &sent,
		&begun, &ended, &deadline, &o.Receipt, &input, &result, &o.Fault, &o.Key, &o.Digest)
	o.Created, o.Sent, o.Begun, o.Ended = fromMicros(created), fromMicros(sent), fromMicros(begun), fromMicros(ended)
	o.Deadline, o.Input, o.Result = fromMicros(deadline), json.RawMessage(input), json.RawMessage(result)
	switch now := s.now(); {
	case o.State == OperationQueued && now.After(o.Deadline):
		o.State, o.Fault, o.Ended = OperationFailed, notRunFault, o.Deadline
	case (o.State == OperationSent || o.State == OperationRunning) && now.After(o.Deadline.Add(lostAfter)):
		o.State, o.Fault, o.Ended = OperationUnknown, lostFault, o.Deadline.Add(lostAfter)
	}
	return o, err
}

const (
	notRunFault = `{"Kind":"unavailable","Message":"the gateway was not connected in time, so the call was not made",` +
		`"Hint":"see whether it runs, and try again"}`
	lostFault = `{"Kind":"unavailable","Message":"the gateway has not answered in time: the outcome of the call is unknown",` +
		`"Hint":"look at the state of the host before you make the call again"}`
)

// Resources of a host, for placement. A limit of 0 is one that the host has not named, which fits nothing.
type Resources struct {
	CPUs      int   `json:"cpus,omitempty"`
	MemoryMB  int64 `json:"memoryMB,omitempty"` // for sandboxes, in all
	FreeMB    int64 `json:"freeMB,omitempty"`   // that a new sandbox may have now
	Sandboxes int   `json:"sandboxes,omitempty"`
}

// A Placement chooses the host of a new sandbox.
type Placement struct {
	// Candidates are hosts that may create it.
	Candidates []string
	// Fits returns what a host has, and whether it can hold such a sandbox. body is what the host reported.
	Fits func(body []byte) (Resources, bool)
	Box  SandboxBox
}

// SandboxBox is a sandbox that was created through the server.
type SandboxBox struct {
	ID        string    `json:"id"`
	Host      string    `json:"host"`
	Machine   string    `json:"machine,omitempty" doc:"its id at the host"`
	Name      string    `json:"name,omitempty"`
	Image     string    `json:"image"`
	Network   string    `json:"network,omitempty"`
	CPUs      int       `json:"cpus"`
	MemoryMB  int       `json:"memoryMB"`
	State     string    `json:"state" doc:"creating, the state at its host, unknown, or how it ended: failed, gone"`
	Person    string    `json:"person" doc:"who created it"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires,omitzero"`
	Seen      time.Time `json:"seen,omitzero" doc:"when its host last said something about it"`
	Operation string    `json:"operation" doc:"that creates it"`
}

// States of a sandbox that only the server knows. The others are those of its host.
const (
	BoxCreating   = "creating"
	BoxDestroying = "destroying"
	BoxUnknown    = "unknown" // whether it was created
	BoxFailed     = "failed"  // it was not created
	BoxGone       = "gone"
)

const boxColumns = "id, host, machine, name, image, network, cpus, memory_mb, state, person, created, expires, seen, operation"

func scanBox(scan func(...any) error) (b SandboxBox, err error) {
	var created, expires, seen int64
	err = scan(&b.ID, &b.Host, &b.Machine, &b.Name, &b.Image, &b.Network, &b.CPUs, &b.MemoryMB, &b.State, &b.Person,
		&created, &expires, &seen, &b.Operation)
	b.Created, b.Expires, b.Seen = fromMicros(created), fromMicros(expires), fromMicros(seen)
	return b, err
}

// bestOf is how many hosts that can hold a sandbox are compared.
const bestOf = 3

// AddOperation stores an operation, which is not sent before its command is stored. With a placement, it also chooses
// the host, and stores the sandbox, which reserves its share. If the account has used the key of the request before,
// again is true, and made is the operation of then; the error is Conflict if that was for another request.
func (s *Store) AddOperation(ctx context.Context, organisation string, o Operation, p *Placement) (made Operation,
	box SandboxBox, again bool, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		made, box = o, SandboxBox{}
		if p != nil {
			if box, err = s.placeBox(ctx, tx, organisation, o, *p); err != nil {
				return err
			}
			made.Host, made.Sandbox = box.Host, box.ID
		}
		return s.insertOperation(ctx, tx, organisation, &made)
	})
	if errors.Is(err, bailey.Conflict) && o.Key != "" { // of the unique key
		made, box, err = s.RepeatedOperation(ctx, organisation, o.Account, o.Key, o.Digest)
		return made, box, true, err
	}
	return made, box, false, err
}

// RepeatedOperation returns the operation, and its sandbox, of a request with this key. If there is none, the error is
// NotFound. If that was another request, it is Conflict.
func (s *Store) RepeatedOperation(ctx context.Context,
	organisation, account, key, digest string) (o Operation, box SandboxBox,
	err error) {
	o, err = oneRow(ctx, s, s.db, "operation", s.scanOperation, "SELECT "+operationColumns+
		" FROM operations WHERE organisation = ? AND account = ? AND request_key = ?", organisation, account, key)
	if err != nil {
		return o, box, err
	}
	if o.Digest != digest {
		return o, box, bailey.Conflict.New("the Idempotency-Key was used for another request",
			"use a new key for each request")
	}
	if o.Sandbox != "" {
		box, err = s.SandboxByID(ctx, organisation, o.Sandbox)
		if errors.Is(err, bailey.NotFound) { // it has ended long ago, or its host was removed
			box, err = SandboxBox{ID: o.Sandbox, Host: o.Host, State: BoxGone, Operation: o.ID}, nil
		}
	}
	return o, box, err
}

func (s *Store) insertOperation(ctx context.Context, tx *sql.Tx, organisation string, o *Operation) error {
	h, err := oneRow(ctx, s, tx, "host", scanHost,
		"SELECT "+hostColumns+" FROM hosts WHERE id = ? AND organisation = ?", o.Host, organisation)
	if err != nil {
		return err
	}
	o.HostName, o.State, o.Created = h.Name, OperationQueued, s.now()
	_, err = s.execChange(ctx, tx, "INSERT INTO operations (organisation, "+operationColumns+
		") VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, 0, 0, 0, ?, '', ?, '', '', ?, ?)",
		organisation, o.ID, o.Host, o.HostName, o.Sandbox, o.Capability, o.Account, o.Person, toMicros(o.Created),
		toMicros(o.Deadline), string(o.Input), o.Key, o.Digest)
	return err
}

// placeBox compares up to three hosts, chosen at random, that can hold the sandbox, and takes the one with the most
// free memory. All in one transaction, so that two requests do not reserve the same share.
func (s *Store) placeBox(ctx context.Context, tx *sql.Tx, organisation string, o Operation,
	p Placement) (SandboxBox, error) {
	box := p.Box
	if err := s.settleOperations(ctx, tx); err != nil {
		return box, err
	}
	hosts := slices.Clone(p.Candidates)
	rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	best, compared := int64(-1), 0
	for _, host := range hosts {
		free, fits, err := s.freeOf(ctx, tx, organisation, host, p)
		if err != nil {
			return box, err
		}
		if !fits {
			continue
		}
		if free > best {
			box.Host, best = host, free
		}
		if compared++; compared == bestOf {
			break
		}
	}
	if compared == 0 {
		return box, bailey.Unavailable.Errorf(
			"ask for less, destroy a sandbox, or see that a host is connected and permits "+
				"sandbox.create in its settings",
			"none of %d connected hosts has room for such a sandbox",
			len(hosts),
		)
	}
	box.ID, box.State, box.Created, box.Operation = newID("x-"), BoxCreating, s.now(), o.ID
	_, err := s.execChange(ctx, tx, "INSERT INTO sandboxes (organisation, "+boxColumns+
		") VALUES (?, ?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?)",
		organisation, box.ID, box.Host, box.Name, box.Image, box.Network, box.CPUs, box.MemoryMB, box.State, box.Person,
		toMicros(box.Created), box.Operation)
	return box, err
}

// freeOf returns the memory that a host has left for the sandboxes of the server, in MiB, and whether it can hold one
// more.
func (s *Store) freeOf(ctx context.Context, tx *sql.Tx, organisation, host string, p Placement) (int64, bool, error) {
	bodies, err := queryRows(ctx, s, tx, scanText, "SELECT r.body FROM host_resources r JOIN hosts h ON h.id = r.host "+
		"WHERE r.host = ? AND h.organisation = ?", host, organisation)
	if err != nil || len(bodies) == 0 {
		return 0, false, err
	}
	has, fits := p.Fits([]byte(bodies[0]))
	if !fits {
		return 0, false, nil
	}
	type share struct{ n, memory int64 }
	reserved, err := oneRow(ctx, s, tx, "host", func(scan func(...any) error) (r share, err error) {
		err = scan(&r.n, &r.memory)
		return r, err
	}, "SELECT count(*), COALESCE(SUM(memory_mb), 0) FROM sandboxes WHERE host = ? AND state NOT IN ('failed', 'gone')", host)
	need := int64(p.Box.MemoryMB)
	free := has.MemoryMB - reserved.memory
	return free, free >= need && has.FreeMB >= need && has.CPUs >= p.Box.CPUs && reserved.n < int64(has.Sandboxes), err
}

// SendOperation records that the command of an operation is about to be sent. If the operation has ended before, the
// error is NotFound, and it must not be sent.
func (s *Store) SendOperation(ctx context.Context, id string) error {
	now := toMicros(s.now())
	return s.changeOne(
		ctx,
		s.db,
		"operation that waits",
		"UPDATE operations SET state = CASE WHEN state = 'queued' THEN 'sent' "+
			"ELSE state END, sent = CASE WHEN sent = 0 THEN ? ELSE sent END WHERE id = ? AND "+
			"(state IN ('sent', 'running') OR state = 'queued' AND deadline > ?)",
		now,
		id,
		now,
	)
}

// BeginOperation records that a host has begun an operation.
func (s *Store) BeginOperation(ctx context.Context, tx *Tx, host, id string) error {
	_, err := s.execChange(ctx, tx.tx,
		"UPDATE operations SET state = 'running', begun = ? WHERE id = ? AND host = ? AND state = 'sent'",
		toMicros(s.now()), id, host)
	return err
}

// FinishOperation records the end of an operation of a host. The first end stays, unless it is unknown. The error is
// NotFound if it has ended before, or the host has no such operation.
func (s *Store) FinishOperation(ctx context.Context, tx *Tx, host string, o Operation) error {
	return s.changeOne(
		ctx,
		tx.tx,
		"open operation",
		"UPDATE operations SET state = ?, ended = ?, receipt = ?, result = ?, "+
			"fault = ? WHERE id = ? AND host = ? AND state NOT IN ('done', 'failed')",
		o.State,
		toMicros(s.now()),
		o.Receipt,
		string(o.Result),
		o.Fault,
		o.ID,
		host,
	)
}

// SettleOperations ends operations whose deadline has passed: they were not made if they were not sent, and their
// outcome is unknown otherwise.
func (s *Store) SettleOperations(ctx context.Context) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error { return s.settleOperations(ctx, tx) })
}

func (s *Store) settleOperations(ctx context.Context, tx *sql.Tx) error {
	now := s.now()
	lost := toMicros(now.Add(-lostAfter))
	for _, change := range []struct {
		query string
		args  []any
	}{
		{"UPDATE sandboxes SET state = 'failed' WHERE state = 'creating' AND operation IN " +
			"(SELECT id FROM operations WHERE state = 'queued' AND deadline < ?)", []any{toMicros(now)}},
		{"UPDATE sandboxes SET state = 'unknown' WHERE state IN ('creating', 'destroying') AND id IN " +
			"(SELECT sandbox FROM operations WHERE state IN ('sent', 'running') AND deadline < ?)", []any{lost}},
		{"UPDATE operations SET state = 'failed', ended = ?, fault = ? WHERE state = 'queued' AND deadline < ?",
			[]any{toMicros(now), notRunFault, toMicros(now)}},
		{"UPDATE operations SET state = 'unknown', ended = ?, fault = ? WHERE state IN ('sent', 'running') AND deadline < ?",
			[]any{toMicros(now), lostFault, lost}},
	} {
		if _, err := s.execChange(ctx, tx, change.query, change.args...); err != nil {
			return err
		}
	}
	return nil
}

// mostOperations limits the operations of a list.
const mostOperations = 500

// An OperationFilter selects operations. A zero field selects all.
type OperationFilter struct{ State, Host, Sandbox string }

// Operations lists the operations of an organisation, the newest first.
func (s *Store) Operations(ctx context.Context, organisation string, f OperationFilter) ([]Operation, error) {
	query, args := "SELECT "+operationColumns+" FROM operations WHERE organisation = ?", []any{organisation}
	for _, c := range []struct{ column, value string }{{"host", f.Host}, {"sandbox", f.Sandbox}} {
		if c.value != "" {
			query, args = query+" AND "+c.column+" = ?", append(args, c.value)
		}
	}
	all, err := queryRows(ctx, s, s.db, s.scanOperation, query+" ORDER BY created DESC, id DESC LIMIT ?",
		append(args, mostOperations)...)
	if f.State != "" {
		all = slices.DeleteFunc(all, func(o Operation) bool { return o.State != f.State })
	}
	return all, err
}

// OperationByID finds an operation of an organisation.
func (s *Store) OperationByID(ctx context.Context, organisation, id string) (Operation, error) {
	return oneRow(ctx, s, s.db, "operation", s.scanOperation,
		"SELECT "+operationColumns+" FROM operations WHERE organisation = ? AND id = ?", organisation, id)
}

// ForgetOperations removes operations that ended before a time, with the sandboxes that ended.
func (s *Store) ForgetOperations(ctx context.Context, before time.Time) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		_, err := s.execChange(ctx, tx, "DELETE FROM operations WHERE ended > 0 AND ended < ?", toMicros(before))
		if err == nil {
			_, err = s.execChange(ctx, tx, "DELETE FROM sandboxes WHERE state IN ('failed', 'gone') AND created < ?",
				toMicros(before))
		}
		return err
	})
}

// Sandboxes lists the sandboxes of an organisation that may exist, the oldest first, and if all is set also the others.
func (s *Store) Sandboxes(ctx context.Context, organisation string, all bool) ([]SandboxBox, error) {
	query := "SELECT " + boxColumns + " FROM sandboxes WHERE organisation = ?"
	if !all {
		query += " AND state NOT IN ('failed', 'gone')"
	}
	return queryRows(ctx, s, s.db, scanBox, query+" ORDER BY created, id LIMIT 5000", organisation)
}

// SandboxByID finds a sandbox of an organisation.
func (s *Store) SandboxByID(ctx context.Context, organisation, id string) (SandboxBox, error) {
	return oneRow(ctx, s, s.db, "sandbox", scanBox,
		"SELECT "+boxColumns+" FROM sandboxes WHERE organisation = ? AND id = ?", organisation, id)
}

// SeeBox records what a host says about a sandbox of its own.
func (s *Store) SeeBox(ctx context.Context, tx *Tx, host string, b SandboxBox) error {
	_, err := s.execChange(
		ctx,
		tx.tx,
		"UPDATE sandboxes SET machine = ?, name = ?, network = ?, cpus = ?, memory_mb = ?, "+
			"state = ?, expires = ?, seen = ? WHERE id = ? AND host = ?",
		b.Machine,
		b.Name,
		b.Network,
		b.CPUs,
		b.MemoryMB,
		b.State,
		toMicros(b.Expires),
		toMicros(s.now()),
		b.ID,
		host,
	)
	return err
}

// SetBoxState changes the state of a sandbox of a host. An ended one stays as it is.
func (s *Store) SetBoxState(ctx context.Context, tx *Tx, host, id, state string) error {
	_, err := s.execChange(ctx, tx.tx,
		"UPDATE sandboxes SET state = ? WHERE id = ? AND host = ? AND state NOT IN ('failed', 'gone')", state, id, host)
	return err
}

// BoxesOf lists the sandboxes of a host that may exist.
func (s *Store) BoxesOf(ctx context.Context, tx *Tx, host string) ([]SandboxBox, error) {
	return queryRows(ctx, s, tx.tx, scanBox,
		"SELECT "+boxColumns+" FROM sandboxes WHERE host = ? AND state NOT IN ('failed', 'gone') ORDER BY id", host)
}

// SetResources stores what a host reports that it has.
func (s *Store) SetResources(ctx context.Context, tx *Tx, host string, body []byte) error {
	_, err := s.execChange(ctx, tx.tx, "INSERT INTO host_resources (host, body, changed) VALUES (?, ?, ?) "+
		"ON CONFLICT (host) DO UPDATE SET body = excluded.body, changed = excluded.changed", host, string(body), toMicros(s.now()))
	return err
}

// HostResources is what a host reported.
type HostResources struct {
	Host    string
	Body    []byte // JSON
	Changed time.Time
}

// ResourcesOf lists what the hosts of an organisation reported.
func (s *Store) ResourcesOf(ctx context.Context, organisation string) ([]HostResources, error) {
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (r HostResources, err error) {
		var changed int64
		var body string
		err = scan(&r.Host, &body, &changed)
		r.Body, r.Changed = []byte(body), fromMicros(changed)
		return r, err
	}, "SELECT r.host, r.body, r.changed FROM host_resources r JOIN hosts h ON h.id = r.host "+
		"WHERE h.organisation = ? ORDER BY h.name", organisation)
}
