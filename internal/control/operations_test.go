package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

type operation struct {
	ID, State, Host, Sandbox, Capability, Person, Receipt string
	Input                                                 object
	Result                                                *fleet.CallResult
	Error                                                 *struct{ Kind, Detail, Hint string }
}

type box struct{ ID, Host, HostName, Machine, State, Person, Operation, Image string }

type created struct {
	Operation operation
	Sandbox   box
}

// wait waits until an operation has ended.
func (c *client) wait(shop, id string) (o operation) {
	c.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		o = want[operation](c, "GET", "/api/v1/organisations/"+shop+"/operations/"+id+"?wait=true", nil)
		if o.State == "done" || o.State == "failed" || o.State == "unknown" {
			return o
		}
	}
	c.t.Fatalf("the operation does not end: %+v", o)
	return o
}

// resources is a report of a host that permits everything.
func resources(memory int64, sandboxes int, images ...string) fleet.ResourceReport {
	return fleet.ResourceReport{Calls: []bailey.CapabilityID{"sandbox.create", "sandbox.exec", "sandbox.destroy", "sandbox.list", "source.run"},
		Capacity: fleet.Capacity{CPUs: 4, Memory: memory << 20, Disk: 10 << 30, Sandboxes: sandboxes},
		Free:     fleet.Capacity{Memory: memory << 20, Disk: 10 << 30}, Images: images,
		Sources: []fleet.SourceReport{{Name: "web-1", Prepared: true}}}
}

// report tells the server what a gateway has, and waits until it knows.
func (g *gateway) report(t *testing.T, f *fixture, r fleet.ResourceReport) {
	t.Helper()
	g.tell(t, fleet.HostResources, r)
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	f.until(t, "the report arrives", func() bool {
		all, err := f.Store.ResourcesOf(t.Context(), g.host.Organisation)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if one.Host == g.host.ID && string(one.Body) == string(body) {
				return true
			}
		}
		return false
	})
}

// machines answers calls as a gateway with sandboxes does.
type machines struct {
	t     *testing.T
	f     *fixture
	made  atomic.Int64
	mu    sync.Mutex
	calls []fleet.CallOrder
}

func (m *machines) handle(_ context.Context, body []byte) ([]byte, error) {
	var o fleet.CallOrder
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.calls = append(m.calls, o)
	m.mu.Unlock()
	if m.f != nil && !strings.Contains(ledgerText(m.t, m.f), o.Operation) {
		m.t.Errorf("%s runs, and the ledger of the server does not name it", o.Operation)
	}
	r := fleet.CallResult{Receipt: "r-1", Status: bailey.OK, Executed: true}
	switch o.Capability {
	case "sandbox.create":
		id := fmt.Sprintf("sb-%026d", m.made.Add(1))
		id = strings.NewReplacer("0", "a", "1", "b", "8", "c", "9", "d").Replace(id)
		r.Structured, _ = json.Marshal(object{"id": id, "name": "box", "image": o.Input["image"], "state": "running",
			"cpus": o.Input["cpus"], "memoryMB": o.Input["memory_mb"], "network": "none", "expires": time.Now().Add(time.Hour)})
	case "sandbox.exec":
		r.Stdout = fmt.Sprint(o.Input["command"])
	case "sandbox.list":
		r.Structured = []byte("[]")
	case "source.run":
		r = fleet.CallResult{Receipt: "r-2", Status: bailey.Refused, Error: "denied", Message: "a rule forbids it", Hint: "ask"}
	}
	return json.Marshal(r)
}

func ledgerText(t *testing.T, f *fixture) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(f.dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestSandboxThroughServer creates, uses and destroys a sandbox on a gateway. Each call is in the ledger of the server
// before it runs, names the person, and runs once, also if the request is repeated.
func TestSandboxThroughServer(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, f *fixture) {
		owner, shop := f.setUp(t)
		base := "/api/v1/organisations/" + shop
		m := &machines{t: t, f: f}
		g := f.connectGateway(t, owner.addGateway(shop, "big"), t.TempDir(), fleet.Handlers{fleet.Call: m.handle})
		g.report(t, f, resources(8192, 4, "debian"))
		body := object{"image": "debian", "name": "box", "ttl": "90m"}
		var made created
		for i := range 3 {
			status, text := owner.send("POST", base+"/sandboxes", body, "Idempotency-Key", "k-1")
			var again created
			if err := json.Unmarshal(text, &again); err != nil || status != http.StatusOK {
				t.Fatalf("%d %s", status, text)
			}
			if i > 0 && (again.Operation.ID != made.Operation.ID || again.Sandbox.ID != made.Sandbox.ID) {
				t.Errorf("the same key gave %+v and %+v", made, again)
			}
			made = again
		}
		if status, text := owner.send("POST", base+"/sandboxes", object{"image": "debian"}, "Idempotency-Key", "k-1"); status != http.StatusConflict {
			t.Errorf("another request with the same key: %d %s", status, text)
		}
		if o := owner.wait(shop, made.Operation.ID); o.State != "done" || o.Receipt != "r-1" || o.Host != g.host.ID {
			t.Fatalf("%+v", o)
		}
		list := want[struct{ Items []box }](owner, "GET", base+"/sandboxes", nil)
		if len(list.Items) != 1 || list.Items[0].State != "running" || !strings.HasPrefix(list.Items[0].Machine, "sb-") ||
			list.Items[0].HostName != "big" || list.Items[0].Person != "ann@example.com" {
			t.Fatalf("%+v", list)
		}
		id := list.Items[0].ID
		ran := want[operation](owner, "POST", base+"/sandboxes/"+id+"/exec", object{"command": []string{"echo", "hi"}})
		if o := owner.wait(shop, ran.ID); o.State != "done" || o.Result == nil || o.Result.Stdout != "[echo hi]" ||
			o.Input["sandbox"] != list.Items[0].Machine {
			t.Errorf("%+v", o)
		}
		member := owner.join(shop, "member@example.com", "member")
		if o := want[operation](member, "GET", base+"/operations/"+ran.ID, nil); o.State != "done" || o.Result != nil || o.Input != nil {
			t.Errorf("a member sees %+v", o)
		}
		ended := want[operation](owner, "DELETE", base+"/sandboxes/"+id, nil)
		owner.wait(shop, ended.ID)
		if list := want[struct{ Items []box }](owner, "GET", base+"/sandboxes", nil); len(list.Items) != 0 {
			t.Errorf("after the end: %+v", list)
		}
		if status, _ := owner.send("POST", base+"/sandboxes/"+id+"/exec", object{"command": []string{"true"}}); status != http.StatusConflict {
			t.Errorf("a command in a sandbox that is gone: %d", status)
		}
		denied := want[operation](owner, "POST", base+"/sources/run", object{"host": g.host.ID, "name": "web-1", "command": "uptime"})
		if o := owner.wait(shop, denied.ID); o.State != "failed" || o.Error == nil || o.Error.Detail != "a rule forbids it" || o.Receipt != "r-2" {
			t.Errorf("a call that policy refuses: %+v", o)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.calls) != 4 {
			t.Errorf("%d calls", len(m.calls))
		}
		for _, o := range m.calls {
			if o.By.Email != "ann@example.com" || o.By.Organisation != shop || o.By.Account != owner.account.ID || o.By.Role != "owner" {
				t.Errorf("called by %+v", o.By)
			}
		}
	})
}

// TestOperationRefusals: what the server refuses before anything is sent, and a result that is too large.
func TestOperationRefusals(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	base := "/api/v1/organisations/" + shop
	admin := owner.join(shop, "admin@example.com", "admin")
	away := owner.addGateway(shop, "away")
	large := func(context.Context, []byte) ([]byte, error) {
		return json.Marshal(fleet.CallResult{Status: bailey.OK, Stdout: strings.Repeat("x", 70<<10)})
	}
	g := f.connectGateway(t, owner.addGateway(shop, "here"), t.TempDir(), fleet.Handlers{fleet.Call: large})
	look := func(host string) object { return object{"host": host, "name": "web-1", "command": "uptime"} }
	if o := admin.wait(shop, want[operation](admin, "POST", base+"/sources/run", look(g.host.ID)).ID); o.State != "failed" ||
		o.Error == nil || !strings.Contains(o.Error.Detail, "too large") || o.Result != nil {
		t.Errorf("a result that is too large: %+v", o)
	}
	g.report(t, f, fleet.ResourceReport{Calls: []bailey.CapabilityID{"sandbox.create"}})
	other := owner.join(shop, "other@example.com", "member")
	want[object](other, "POST", "/api/v1/organisations", object{"name": "Elsewhere"})
	elsewhere := want[itemList](other, "GET", "/api/v1/organisations", nil).Items
	for _, o := range elsewhere {
		if o.ID == shop {
			continue
		}
		foreign := "/api/v1/organisations/" + o.ID
		other.wantStatus(http.StatusNotFound, "POST", foreign+"/sources/run", look(g.host.ID))
		other.wantStatus(http.StatusNotFound, "POST", foreign+"/sandboxes", object{"image": "debian", "host": g.host.ID})
		other.wantStatus(http.StatusServiceUnavailable, "POST", foreign+"/sandboxes", object{"image": "debian"})
	}
	admin.wantStatus(http.StatusForbidden, "POST", base+"/sources/run", look(g.host.ID))
	admin.wantStatus(http.StatusServiceUnavailable, "POST", base+"/sources/run", look(away.ID))
	admin.wantStatus(http.StatusNotFound, "POST", base+"/sources/run", look("h-none"))
	other.wantStatus(http.StatusForbidden, "POST", base+"/sources/run", look(g.host.ID))
	admin.wantStatus(http.StatusServiceUnavailable, "POST", base+"/sandboxes", object{"image": "debian"}) // no capacity
	admin.wantStatus(http.StatusServiceUnavailable, "POST", base+"/sandboxes", object{"image": "debian", "host": away.ID})
	for _, wrong := range []object{{"image": "../x"}, {"image": "a", "ttl": "1d"}, {"image": "a", "cpus": 0.5}, {"image": "a", "x": 1}} {
		admin.wantStatus(http.StatusUnprocessableEntity, "POST", base+"/sandboxes", wrong)
	}
	admin.wantStatus(http.StatusNotFound, "DELETE", base+"/sandboxes/x-none", nil)
}

// TestOperationWaits: a call waits for a gateway that is away as long as the request says. After that it is never made.
func TestOperationWaits(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	base := "/api/v1/organisations/" + shop
	h := owner.addGateway(shop, "laptop")
	body := object{"host": h.ID, "name": "web-1", "command": "uptime"}
	late := want[operation](owner, "POST", base+"/sources/run?wait=60", body)
	if late.State != "queued" {
		t.Errorf("%+v", late)
	}
	f.advance(20 * time.Minute)
	if o := owner.wait(shop, late.ID); o.State != "failed" || !strings.Contains(o.Error.Detail, "not made") {
		t.Errorf("%+v", o)
	}
	soon := want[operation](owner, "POST", base+"/sources/run?wait=3600", body)
	m := &machines{t: t}
	f.connectGateway(t, h, t.TempDir(), fleet.Handlers{fleet.Call: m.handle})
	if o := owner.wait(shop, soon.ID); o.Receipt != "r-2" {
		t.Errorf("%+v", o)
	}
	if len(m.calls) != 1 || m.calls[0].Operation != soon.ID {
		t.Errorf("calls %+v", m.calls)
	}
}

// TestLostGateway: if a gateway ends while it makes a call, the outcome is unknown, also after it has come back, and the
// call is not made again.
func TestLostGateway(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	base := "/api/v1/organisations/" + shop
	dir, h := t.TempDir(), owner.addGateway(shop, "laptop")
	began, calls := make(chan string, 10), atomic.Int64{}
	stuck := fleet.Handlers{fleet.Call: func(ctx context.Context, body []byte) ([]byte, error) {
		var o fleet.CallOrder
		err := json.Unmarshal(body, &o)
		calls.Add(1)
		began <- o.Operation
		<-ctx.Done()
		return nil, errNeverStored{err}
	}}
	g := f.connectGateway(t, h, dir, stuck)
	o := want[operation](owner, "POST", base+"/sources/run", object{"host": h.ID, "name": "web-1", "command": "uptime"})
	id := <-began
	g.tell(t, fleet.CallBegun, fleet.CallBegin{Operation: id})
	f.until(t, "the server knows that it runs", func() bool {
		return want[operation](owner, "GET", base+"/operations/"+o.ID, nil).State == "running"
	})
	before := copyOf(t, dir)
	g.stop()
	f.connectGateway(t, h, before, stuck) // as after kill -9: the command was begun, and has no result
	if o := owner.wait(shop, o.ID); o.State != "unknown" || !strings.Contains(o.Error.Detail, "unknown") {
		t.Errorf("%+v", o)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
	lost := want[operation](owner, "POST", base+"/sources/run", object{"host": h.ID, "name": "web-1", "command": "uptime"})
	<-began
	f.advance(time.Hour)
	if o := owner.wait(shop, lost.ID); o.State != "unknown" {
		t.Errorf("without an answer: %+v", o)
	}
}

type errNeverStored struct{ error }

func (errNeverStored) Error() string { return "the process has ended" }

// copyOf returns a copy of a directory.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestPlacement: many requests at once reserve no more than the hosts have, and fill the emptiest first.
func TestPlacement(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, f *fixture) {
		owner, shop := f.setUp(t)
		base := "/api/v1/organisations/" + shop
		admin := owner.program(shop, "admin")
		m := &machines{t: t}
		for i, r := range []fleet.ResourceReport{resources(2048, 4), resources(1024, 10), resources(4096, 1), resources(100, 10),
			resources(9000, 9, "alpine"), {Calls: []bailey.CapabilityID{}}} {
			g := f.connectGateway(t, owner.addGateway(shop, fmt.Sprint("host ", i)), t.TempDir(), fleet.Handlers{fleet.Call: m.handle})
			g.report(t, f, r)
		}
		var all sync.WaitGroup
		var ok, refused atomic.Int64
		for range 12 {
			all.Go(func() {
				switch status, text := admin.send("POST", base+"/sandboxes", object{"image": "debian", "memoryMB": 512}); status {
				case http.StatusOK:
					ok.Add(1)
				case http.StatusServiceUnavailable:
					refused.Add(1)
				default:
					t.Errorf("%d %s", status, text)
				}
			})
		}
		all.Wait()
		// 4 on the first, 2 on the second, 1 on the third.
		if ok.Load() != 7 || refused.Load() != 5 {
			t.Errorf("%d created, %d refused", ok.Load(), refused.Load())
		}
		n := map[string]int{}
		for _, b := range want[struct{ Items []box }](owner, "GET", base+"/sandboxes", nil).Items {
			n[b.HostName]++
		}
		if n["host 0"] != 4 || n["host 1"] != 2 || n["host 2"] != 1 {
			t.Errorf("placed %v", n)
		}
	})
}

// operationOf stores an operation of a gateway that is not connected, with its sandbox.
func operationOf(c *client, shop string) (operation, sandbox string) {
	c.t.Helper()
	numbers.Lock()
	numbers.n++
	name := fmt.Sprint("operated ", numbers.n)
	numbers.Unlock()
	h := c.addGateway(shop, name)
	body, err := json.Marshal(resources(4096, 10))
	if err == nil {
		err = c.f.Store.Change(c.t.Context(), func(tx *store.Tx) error {
			return c.f.Store.SetResources(c.t.Context(), tx, h.ID, body)
		})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	o, b, _, err := c.f.Store.AddOperation(c.t.Context(), shop, store.Operation{ID: store.OperationPrefix + fleet.NewID(),
		Capability: "sandbox.create", Deadline: c.f.Now().Add(time.Hour), Input: []byte("{}")},
		&store.Placement{Candidates: []string{h.ID}, Box: store.SandboxBox{CPUs: 1, MemoryMB: 1},
			Fits: func([]byte) (store.Resources, bool) {
				return store.Resources{CPUs: 1, MemoryMB: 100, FreeMB: 100, Sandboxes: 1}, true
			}})
	if err == nil {
		b.Machine, b.State = "sb-"+strings.Repeat("a", 26), "running"
		err = c.f.Store.Change(c.t.Context(), func(tx *store.Tx) error { return c.f.Store.SeeBox(c.t.Context(), tx, h.ID, b) })
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return o.ID, b.ID
}
