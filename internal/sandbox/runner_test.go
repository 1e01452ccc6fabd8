//go:build linux || darwin

package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/pack"
	"bailey/packs"
)

var builtIn = sync.OnceValues(func() (*pack.Catalog, error) { return pack.LoadBuiltin(packs.FS) })

// desk makes calls of one agent, rendered by the manifest as the gate renders them.
type desk struct {
	t      *testing.T
	runner *Runner
	who    bailey.Principal
}

func newDesk(t *testing.T, h *fakeHost, person, agent string) desk {
	return desk{t, &Runner{Host: h.client}, bailey.Principal{Person: person, Agent: agent}}
}

// result is what a call did.
type result struct {
	out, log string
	exit     bailey.Exit
	cage     bailey.Cage
	reaches  []bailey.Endpoint
	told     *bailey.EgressReport
	err      error
}

func (d desk) call(id bailey.CapabilityID, input map[string]any) (r result) {
	d.t.Helper()
	catalog, err := builtIn()
	if err != nil {
		d.t.Fatal(err)
	}
	m, err := catalog.Lookup(id)
	if err != nil {
		d.t.Fatal(err)
	}
	if input, err = m.Check(input, false); err != nil {
		return result{err: err}
	}
	args, err := m.Render(input, nil)
	if err != nil {
		return result{err: err}
	}
	job := m.Job(args, nil)
	job.Principal, job.Session = d.who, "s-1"
	run, err := d.runner.Plan(d.t.Context(), job)
	if err != nil {
		return result{err: err, exit: bailey.Exit{Code: bailey.NeverRan}}
	}
	defer run.Close()
	planned := run.Cage()
	var out, log bytes.Buffer
	s := bailey.Streams{Stdout: &out, Stderr: &log}
	if text, ok := m.Stdin(input); ok {
		s.Stdin = strings.NewReader(text)
	}
	r.exit, r.err = run.Start(d.t.Context(), bailey.Lent{}, s)
	r.out, r.log, r.cage = out.String(), log.String(), run.Cage()
	if network, ok := run.(bailey.ReachingRun); ok {
		r.reaches, r.told = network.Reaches(), network.Connections()
	}
	if planned.PlanDigest != r.cage.PlanDigest {
		d.t.Errorf("%s: the plan changed while it ran", id)
	}
	return r
}

func (d desk) create() hostapi.Sandbox {
	d.t.Helper()
	r := d.call("sandbox.create", map[string]any{"image": "debian", "name": "box"})
	var b hostapi.Sandbox
	if err := json.Unmarshal([]byte(r.out), &b); err != nil || r.err != nil {
		d.t.Fatal(r.err, err, r.out)
	}
	return b
}

// TestCalls makes each call of the pack.
func TestCalls(t *testing.T) {
	h := startFakeHost(t)
	d := newDesk(t, h, "ann", "claude")
	box := d.create()
	at := func(more ...any) map[string]any {
		in := map[string]any{"sandbox": box.ID}
		for i := 0; i < len(more); i += 2 {
			in[more[i].(string)] = more[i+1]
		}
		return in
	}
	words := func(w ...any) []any { return w }
	odd := words("-x", "", "a=b", "command", "@f", "http://a", "it's", "two\nlines", "env=x", "7")
	for _, c := range []struct {
		call  bailey.CapabilityID
		input map[string]any
		want  string
		code  int
	}{
		{"sandbox.list", nil, box.ID, 0},
		{"sandbox.show", at(), `"imageDigest": "ddd`, 0},
		{"sandbox.exec", at("command", words("id")), "id\n", 0},
		{"sandbox.exec", at("command", odd), "-x||a=b|command|@f|http://a|it's|two\nlines|env=x|7\n", 7},
		{"sandbox.exec", at("command", words("signal", "9")), "signal|9\n", 137},
		{"sandbox.exec", at("command", words("cat"), "stdin", "-in\n", "dir", "/tmp", "uid", json.Number("5"), "env", words("A=b=c", "D=")), "cat\n-in\n", 0},
		{"sandbox.write_file", at("path", "/a=b c", "stdin", "alpha", "mode", "755"), `"mode": 493`, 0},
		{"sandbox.read_file", at("path", "/a=b c"), "alpha", 0},
		{"sandbox.edit_file", at("path", "/a=b c", "old", "alpha", "new", ""), `"count": 1`, 0},
		{"sandbox.write_file", at("path", "/empty", "stdin", ""), `"size": 0`, 0},
		{"sandbox.list_files", at("path", "/"), `"name": "a"`, 0},
		{"sandbox.start_job", at("command", words("sleep", "9")), `"running": true`, 0},
		{"sandbox.jobs", at(), `"pid": 7`, 0},
		{"sandbox.job_output", at("job", "1"), "abc", 0},
		{"sandbox.kill_job", at("job", "1"), `"signal": 9`, 0},
		{"sandbox.snapshot", at("name", "clean"), `"name": "clean"`, 0},
		{"sandbox.snapshots", nil, `"clean"`, 0},
		{"sandbox.create", map[string]any{"snapshot": "clean"}, `"from": "sn-`, 0}, // the one that was planned
		{"sandbox.restore", at("snapshot", "clean"), `"from": "sn-`, 0},
		{"sandbox.remove_snapshot", map[string]any{"snapshot": "clean"}, `"removed": "clean"`, 0},
		{"sandbox.branch", at("count", json.Number("2")), `"from": "` + box.ID, 0},
		{"sandbox.pause", at(), `"paused"`, 0},
		{"sandbox.start", at(), `"running"`, 0},
		{"sandbox.stop", at(), `"stopped"`, 0},
		{"sandbox.start", at(), `"running"`, 0},
		{"sandbox.extend", at("ttl", "90m"), `"expires": "1970-01-01T`, 0},
		{"sandbox.destroy", at(), box.ID, 0},
	} {
		r := d.call(c.call, c.input)
		if r.err != nil || !strings.Contains(r.out, c.want) || r.exit.Code != c.code {
			t.Errorf("%s %v: %q, exit %d, %v; want %q", c.call, c.input, r.out, r.exit.Code, r.err, c.want)
		}
		if strings.Contains(r.out, "session") {
			t.Errorf("%s names a session: %s", c.call, r.out)
		}
		if c.call == "sandbox.exec" && c.input["uid"] != nil {
			if k := h.seen().command; k.Dir != "/tmp" || k.UID != 5 || !slices.Equal(k.Env, []string{"A=b=c", "D="}) {
				t.Errorf("the host got %+v", k)
			}
		}
	}
	if r := d.call("sandbox.show", at()); !errors.Is(r.err, bailey.NotFound) {
		t.Errorf("after the end: %v", r.err)
	}
	for _, o := range h.seen().owners {
		if o.Person != "ann" || o.Agent != "claude" || o.Operator || o.Session != "s-1" {
			t.Errorf("a query of %+v", o)
		}
	}
}

// TestEachCapabilityHasAVerb checks that the pack and the runner have the same operations.
func TestEachCapabilityHasAVerb(t *testing.T) {
	catalog, err := builtIn()
	if err != nil {
		t.Fatal(err)
	}
	known := allVerbs()
	for _, m := range catalog.All() {
		if m.Isolation != pack.Sandbox {
			continue
		}
		_, name, _ := strings.Cut(string(m.ID), ".")
		if _, ok := known[name]; !ok {
			t.Errorf("%s has no verb", m.ID)
		}
		delete(known, name)
	}
	for name := range known {
		t.Errorf("no capability has the verb %s", name)
	}
}

// TestAttackOthersSandbox tries each call on the sandbox of another agent, and of another person.
func TestAttackOthersSandbox(t *testing.T) {
	h := startFakeHost(t)
	box := newDesk(t, h, "ann", "claude").create()
	catalog, err := builtIn()
	if err != nil {
		t.Fatal(err)
	}
	more := map[string]any{"command": []any{"id"}, "path": "/x", "stdin": "", "old": "a", "new": "b", "job": "1", "name": "n",
		"snapshot": "clean", "ttl": "1h"}
	for _, who := range []bailey.Principal{{Person: "ann", Agent: "codex"}, {Person: "bob", Agent: "claude"}, {Person: "ann", Agent: "local"}} {
		d := desk{t, &Runner{Host: h.client}, who}
		for _, m := range catalog.All() {
			var s struct{ Required []string }
			if m.Isolation != pack.Sandbox || json.Unmarshal(m.InputSchema(), &s) != nil || !slices.Contains(s.Required, "sandbox") {
				continue
			}
			input := map[string]any{}
			for _, name := range s.Required {
				input[name] = more[name]
			}
			input["sandbox"] = box.ID
			if r := d.call(m.ID, input); !errors.Is(r.err, bailey.NotFound) || r.exit.Code != bailey.NeverRan {
				t.Errorf("%s by %+v: %v", m.ID, who, r.err)
			}
		}
		if r := d.call("sandbox.list", nil); r.err != nil || !strings.Contains(r.out, `"sandboxes": []`) {
			t.Errorf("list by %+v: %s %v", who, r.out, r.err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes[0].ID != box.ID {
		t.Error("another agent changed the sandbox")
	}
	if _, err := (&Runner{Host: h.client}).Plan(t.Context(), bailey.Job{Args: []string{"list"}}); !errors.Is(err, bailey.Internal) {
		t.Errorf("a call without an agent: %v", err)
	}
}

// TestReceiptNamesTheMachine checks the facts that policy and receipt get.
func TestReceiptNamesTheMachine(t *testing.T) {
	h := startFakeHost(t)
	d := newDesk(t, h, "ann", "claude")
	r := d.call("sandbox.create", map[string]any{"image": "debian"})
	want := bailey.Machine{Sandbox: h.seen().boxes[0].ID, Image: "debian", ImageDigest: strings.Repeat("d", 64), Accelerator: "emulated", Machine: "microvm"}
	if r.cage.Machine == nil || *r.cage.Machine != want {
		t.Errorf("the receipt of create names %+v", r.cage.Machine)
	}
	r = d.call("sandbox.exec", map[string]any{"sandbox": want.Sandbox, "command": []any{"sh", "-c", "echo x | curl y; $Z"}})
	if r.cage.Machine == nil || *r.cage.Machine != want || r.cage.Kind != CageKind || !r.cage.Enforced {
		t.Errorf("the receipt of exec names %+v", r.cage.Machine)
	}
	if labels := []string{"accelerator=emulated", "image=debian", "network=none"}; !slices.Equal(r.cage.Labels, labels) {
		t.Errorf("labels %q", r.cage.Labels)
	}
	if commands := []string{"curl", "echo", "sh", Hidden}; !slices.Equal(r.cage.Commands, commands) {
		t.Errorf("commands %q", r.cage.Commands)
	}
}

// TestNetworks checks that a sandbox gets the places that the settings open, that policy learns of them when the machine is
// made, and that the receipts of later calls have its connections.
func TestNetworks(t *testing.T) {
	h := startFakeHost(t)
	d := newDesk(t, h, "ann", "claude")
	places := []bailey.Endpoint{{Host: "deb.example.com", Port: 443}, {Host: "mirror.test", Port: 80, Plain: true}}
	create := map[string]any{"image": "debian", "network": "names"}
	d.runner.Network = func() hostapi.Network { return hostapi.Network{} }
	if r := d.call("sandbox.create", create); !errors.Is(r.err, bailey.Denied) || !strings.Contains(bailey.HintOf(r.err), "sandbox.create") {
		t.Errorf("without places: %v", r.err)
	}
	d.runner.Network = func() hostapi.Network { return hostapi.Network{Endpoints: places, Upstream: "http://proxy.test:3128"} }
	r := d.call("sandbox.create", create)
	box := h.seen().boxes[0]
	if r.err != nil || box.Network != hostapi.NamesNetwork || !slices.Equal(box.Egress, places) || !slices.Contains(r.cage.Labels, "network=names") ||
		!strings.Contains(r.cage.Plan, `egress "mirror.test:80 plain"`) {
		t.Errorf("%v, %+v, %+v", r.err, box, r.cage)
	}
	if !slices.Equal(r.reaches, places) || r.told != nil {
		t.Errorf("policy learns of %v, the receipt of %v", r.reaches, r.told)
	}
	r = d.call("sandbox.exec", map[string]any{"sandbox": box.ID, "command": []any{"id"}})
	if r.err != nil || r.told == nil || r.told.Connections != 1 || len(r.reaches) > 0 {
		t.Errorf("%v, policy learns of %v, the receipt of %+v", r.err, r.reaches, r.told)
	}
	if r = d.call("sandbox.create", map[string]any{"image": "debian", "network": "lan"}); !errors.Is(r.err, bailey.Invalid) {
		t.Errorf("an unknown network: %v", r.err)
	}
}

// TestRefusals checks that each refusal names its cause and the cure, and whether something may have run.
func TestRefusals(t *testing.T) {
	h := startFakeHost(t)
	d := newDesk(t, h, "ann", "claude")
	box := d.create()
	never := bailey.NeverRan
	for _, c := range []struct {
		call        bailey.CapabilityID
		input       map[string]any
		broken      string
		cause, cure string
		code        int
	}{
		{"sandbox.create", map[string]any{"image": "alpine"}, "", "there is no image alpine", "bailey image build alpine", never},
		{"sandbox.create", map[string]any{}, "", "from an image or from a snapshot", "image: debian", never},
		{"sandbox.create", map[string]any{"image": "debian", "snapshot": "x"}, "", "from an image or from a snapshot", "image: debian", never},
		{"sandbox.create", map[string]any{"snapshot": "x"}, "", "there is no snapshot x", "sandbox.snapshots", never},
		{"sandbox.exec", map[string]any{"sandbox": box.ID, "command": []any{"id"}}, "exec", "stopped during the operation", "bailey sandbox list", 255},
		{"sandbox.exec", map[string]any{"sandbox": box.ID, "command": []any{"id"}}, "show", "stopped during the operation", "bailey sandbox list", never},
		{"sandbox.read_file", map[string]any{"sandbox": box.ID, "path": "/none"}, "", "does not exist", "", never},
	} {
		h.mu.Lock()
		h.broken = c.broken
		h.mu.Unlock()
		r := d.call(c.call, c.input)
		if r.err == nil || !strings.Contains(r.err.Error(), c.cause) || !strings.Contains(bailey.HintOf(r.err), c.cure) || r.exit.Code != c.code {
			t.Errorf("%s %v: %v (%s), exit %d", c.call, c.input, r.err, bailey.HintOf(r.err), r.exit.Code)
		}
	}
	gone := &Runner{Host: func() (*hostapi.Client, error) {
		return &hostapi.Client{Socket: filepath.Join(t.TempDir(), "none.sock")}, nil
	}}
	if r := (desk{t, gone, d.who}).call("sandbox.list", nil); !errors.Is(r.err, bailey.Unavailable) || bailey.HintOf(r.err) == "" {
		t.Errorf("without a host: %v", r.err)
	}
}

// TestAttackInputs checks that the manifest refuses values that could become another setting or operand.
func TestAttackInputs(t *testing.T) {
	h := startFakeHost(t)
	d := newDesk(t, h, "ann", "claude")
	box := d.create()
	for _, input := range []map[string]any{
		{"sandbox": "box", "command": []any{"id"}},
		{"sandbox": "../x", "command": []any{"id"}},
		{"sandbox": box.ID, "command": []any{}},
		{"sandbox": box.ID, "command": []any{"a\x00b"}},
		{"sandbox": box.ID, "command": []any{"id"}, "dir": "tmp"},
		{"sandbox": box.ID, "command": []any{"id"}, "env": []any{"1A=b"}},
		{"sandbox": box.ID, "command": []any{"id"}, "env": []any{"A"}},
		{"sandbox": box.ID, "command": []any{"id"}, "uid": json.Number("-1")},
	} {
		if r := d.call("sandbox.exec", input); !errors.Is(r.err, bailey.Invalid) {
			t.Errorf("%v: %v", input, r.err)
		}
	}
	for _, args := range [][]string{nil, {"nothing"}, {"show"}, {"show", "a", "b"}, {"exec", box.ID}, {"exec", box.ID, "command"}, {"show", box.ID, "command", "x"}} {
		if _, err := d.runner.Plan(t.Context(), bailey.Job{Args: args, Principal: d.who}); err == nil {
			t.Errorf("arguments %q were planned", args)
		}
	}
}

// TestDifference compares a sandbox with its image. The inventory of the image is made once; a changed image is refused, and
// no machine stays.
func TestDifference(t *testing.T) {
	h := startFakeHost(t)
	d := newDesk(t, h, "ann", "claude")
	d.runner.Inventories = filepath.Join(t.TempDir(), "inventories")
	box := d.create()
	in := map[string]any{"sandbox": box.ID}
	d.call("sandbox.write_file", map[string]any{"sandbox": box.ID, "path": "/etc/shop.conf", "stdin": "port=1\n"})
	for range 2 {
		if r := d.call("sandbox.diff", in); r.err != nil || !strings.Contains(r.out, "/etc/shop.conf") {
			t.Fatalf("diff: %s %v", r.out, r.err)
		}
	}
	if made := h.seen().made; made != 2 {
		t.Errorf("%d machines were created for two comparisons, want one", made-1)
	}
	in["format"] = "shell"
	if r := d.call("sandbox.export", in); r.err != nil || !strings.Contains(r.out, "port=1") || !strings.Contains(r.log, "/tmp/bailey-export.sh") ||
		string(h.seen().files[box.ID+"/tmp/bailey-export.sh"]) != r.out {
		t.Errorf("export: %q %q %v", r.out, r.log, r.err)
	}
	// the machine of the fake runs nothing, so the changes remain
	if r := d.call("sandbox.verify", in); r.err != nil || r.exit.Code != 1 || !strings.Contains(r.out, `"verified": false`) ||
		!strings.Contains(r.log, "still differs: file /etc/shop.conf") {
		t.Errorf("verify: %q, exit %d, %v", r.out, r.exit.Code, r.err)
	}
	h.mu.Lock()
	h.digest = strings.Repeat("e", 64)
	h.mu.Unlock()
	if r := d.call("sandbox.verify", in); !errors.Is(r.err, bailey.Conflict) {
		t.Errorf("a changed image: %v", r.err)
	}
	if r := d.call("sandbox.list", nil); strings.Count(r.out, `"sb-`) != 1 {
		t.Errorf("machines stay: %s", r.out)
	}
}

// TestAttackFreshMachine checks that the agent cannot reach the machine that shows what its image contains.
func TestAttackFreshMachine(t *testing.T) {
	h := startFakeHost(t)
	d := newDesk(t, h, "ann", "claude")
	d.runner.Inventories = filepath.Join(t.TempDir(), "inventories")
	box := d.create()
	var listed atomic.Int32
	h.mu.Lock()
	h.listing = func(id string) {
		if listed.Add(1); id == box.ID {
			return
		}
		poison := map[string]any{"sandbox": id, "path": "/etc/poison", "stdin": "x"}
		if r := d.call("sandbox.write_file", poison); !errors.Is(r.err, bailey.NotFound) {
			t.Errorf("a file was written to the fresh machine: %v", r.err)
		}
		if r := d.call("sandbox.list", nil); r.err != nil || strings.Contains(r.out, id) {
			t.Errorf("the fresh machine is listed: %s, %v", r.out, r.err)
		}
	}
	h.mu.Unlock()
	in := map[string]any{"sandbox": box.ID, "format": "shell"}
	if r := d.call("sandbox.verify", in); r.err != nil || listed.Load() != 3 {
		t.Errorf("%d inventories, %v", listed.Load(), r.err)
	}
	for _, b := range h.seen().boxes[1:] {
		if b.ID != "gone" {
			t.Errorf("the fresh machine %s stays", b.ID)
		}
	}
}

// TestLargeSandbox checks that rules see each call that makes a large machine, also from a snapshot or another sandbox.
func TestLargeSandbox(t *testing.T) {
	h := startFakeHost(t)
	d := newDesk(t, h, "ann", "claude")
	owner := hostapi.Owner{Person: "ann", Agent: "claude"}
	h.mu.Lock()
	small := h.add(owner, hostapi.Sandbox{Name: "small", CPUs: 2, MemoryMB: 2048})
	large := h.add(owner, hostapi.Sandbox{Name: "large", CPUs: 2, MemoryMB: 2049})
	h.shots = []hostapi.Snapshot{{ID: "sn-1", Name: "few", CPUs: 2, MemoryMB: 2048},
		{ID: "sn-2", Name: "many", CPUs: 3, MemoryMB: 512}}
	h.mu.Unlock()
	for _, c := range []struct {
		call  bailey.CapabilityID
		input map[string]any
		large bool
	}{
		{"sandbox.create", map[string]any{"image": "debian"}, false},
		{"sandbox.create", map[string]any{"image": "debian", "memory_mb": json.Number("4096")}, true},
		{"sandbox.create", map[string]any{"snapshot": "few"}, false},
		{"sandbox.create", map[string]any{"snapshot": "many"}, true},
		{"sandbox.branch", map[string]any{"sandbox": small.ID, "count": json.Number("1")}, false},
		{"sandbox.branch", map[string]any{"sandbox": large.ID, "count": json.Number("1")}, true},
		{"sandbox.restore", map[string]any{"sandbox": small.ID, "snapshot": "few"}, false},
		{"sandbox.restore", map[string]any{"sandbox": small.ID, "snapshot": "many"}, true},
		{"sandbox.exec", map[string]any{"sandbox": large.ID, "command": []any{"id"}}, false},
	} {
		r := d.call(c.call, c.input)
		if r.err != nil || slices.Contains(r.cage.Labels, "size=large") != c.large {
			t.Errorf("%s %v: labels %q, %v", c.call, c.input, r.cage.Labels, r.err)
		}
	}
}
