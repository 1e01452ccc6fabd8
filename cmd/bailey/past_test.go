//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/policy"
	"bailey/internal/receipts"
)

// TestPastIsTheRequest checks that the request that is reconstructed from a receipt is the one that policy decided, for
// both interfaces and each kind of input.
func TestPastIsTheRequest(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "git")
	s := spineForTest(t)
	dir := filepath.Join(t.TempDir(), "project")
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	who := bailey.Principal{Agent: "claude", Person: "ada", Roles: []string{"dev", "sre"}, Organisation: "acme"}
	h := historian{catalog: s.catalog, body: func(id bailey.ReceiptID, said bailey.Body) ([]byte, error) {
		return s.ledger.Body(id, receipts.InputPart, said)
	}}
	for _, c := range []bailey.Call{
		{Capability: "git.log", Input: map[string]any{"repo": ".", "limit": "5", "stat": "true"}, Text: true, Door: "cli"},
		{Capability: "git.log", Input: map[string]any{"repo": dir, "limit": json.Number("5"), "patch": true}, Door: "mcp", Session: bailey.Session{Unattended: true}},
		{Capability: "system.echo", Input: map[string]any{"message": strings.Repeat("long ", 2000)}, Door: "mcp"},
		{Capability: "system.date", Door: "cli"},
	} {
		c.Principal, c.Dir, c.DryRun, c.Session.ID = who, dir, true, bailey.NewSessionID()
		want, err := s.gate.Request(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		result := s.gate.Do(t.Context(), c)
		page, err := s.index.Find(t.Context(), receipts.Filter{ID: result.Receipt})
		if err != nil || len(page.Records) != 1 {
			t.Fatalf("%+v %v %v", page, err, result.Err)
		}
		p := h.past(page.Records[0])
		if age := time.Since(p.Request.Time); age < 0 || age > time.Minute {
			t.Errorf("the call is %s old", age)
		}
		want.Time, p.Request.Time = time.Time{}, time.Time{}
		want.Manifest = "" // today's rules decide by today's manifests
		if len(want.Input) == 0 && len(p.Request.Input) == 0 {
			want.Input, p.Request.Input = nil, nil
		}
		if !reflect.DeepEqual(p.Request, want) || p.Unknown != "" || p.Was != bailey.Allow || !p.DryRun || len(p.Marks)+len(p.Hidden) > 0 {
			t.Errorf("%s: %+v %+v\nwant %+v", c.Capability, p.Request, p, want)
		}
	}
}

// echoed returns the receipt of an allowed call, after change.
func echoed(t *testing.T, s *stack, change func(*bailey.Intent, *bailey.Outcome)) receipts.Record {
	t.Helper()
	m, err := s.catalog.Lookup("system.echo")
	if err != nil {
		t.Fatal(err)
	}
	r := receipts.Record{}
	r.Intent = bailey.Intent{Receipt: bailey.NewReceiptID(), Capability: "system.echo", Input: json.RawMessage(`{"message":"hi"}`), Agent: "claude", Door: "cli", StartedAt: time.Now()}
	r.Outcome = &bailey.Outcome{Status: bailey.OK, Decision: "allow", PolicyDigest: "p", ManifestDigest: m.Digest, Cage: &bailey.Cage{Kind: "full"}}
	change(&r.Intent, r.Outcome)
	return r
}

// TestPastSaysWhatItDoesNotKnow checks that facts that are missing in a receipt are reported as unknown.
func TestPastSaysWhatItDoesNotKnow(t *testing.T) {
	ktest.Long(t)
	s := spineForTest(t)
	for _, c := range []struct {
		change func(*bailey.Intent, *bailey.Outcome)
		want   policy.Past
	}{
		{func(*bailey.Intent, *bailey.Outcome) {}, policy.Past{Was: bailey.Allow}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Decision, o.Cage, o.PolicyDigest = "", nil, "" }, policy.Past{Unknown: pastNever}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Decision, o.PolicyDigest = "deny", "" }, policy.Past{Unknown: pastWall}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Decision = "deny" }, policy.Past{Was: bailey.Deny}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Cage = nil }, policy.Past{Unknown: pastCage}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Decision, o.Rules = "ask", []bailey.Rule{{ID: "a"}} }, policy.Past{Was: bailey.Ask, Asks: []bailey.Rule{{ID: "a"}}}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Approval = "a-1" }, policy.Past{Was: bailey.Ask}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.ManifestDigest = "old" }, policy.Past{Was: bailey.Allow, Marks: []string{otherManifest}}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { i.Capability = "no.more" }, policy.Past{Was: bailey.Allow, Unknown: pastGone}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { i.Input = json.RawMessage(`{"message":1}`) }, policy.Past{Was: bailey.Allow, Unknown: pastInput}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { // only the command line has inputs as text
			i.Capability, i.Input, i.Door = "git.log", json.RawMessage(`{"repo":".","limit":"5"}`), "mcp"
		}, policy.Past{Was: bailey.Allow, Marks: []string{otherManifest}, Unknown: pastInput}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { i.Input = json.RawMessage(`[`) }, policy.Past{Was: bailey.Allow, Unknown: pastInput}},
		{func(i *bailey.Intent, _ *bailey.Outcome) {
			i.Input, i.InputBytes, i.InputBody = nil, 9000, &bailey.Body{Length: 9000}
		}, policy.Past{Was: bailey.Allow, Unknown: pastBody}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { i.Input, i.InputBytes = nil, 9000 }, policy.Past{Was: bailey.Allow, Unknown: pastBody}},
		{func(i *bailey.Intent, _ *bailey.Outcome) {
			i.Input = json.RawMessage(`{"message":"x[REDACTED_PASSWORD_1]"}`)
		},
			policy.Past{Was: bailey.Allow, Hidden: []string{"input.message"}}},
		{func(i *bailey.Intent, _ *bailey.Outcome) {
			i.Input = json.RawMessage(`{"message":{"[REDACTED_PASSWORD_1]":1}}`)
		},
			policy.Past{Was: bailey.Allow, Hidden: []string{"input.message"}, Unknown: pastSecret}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Restored = []string{"PASSWORD"} }, policy.Past{Was: bailey.Allow, Hidden: []string{"input"}}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Cwd = "/w/[REDACTED_IPV4_1]" }, policy.Past{Was: bailey.Allow, Hidden: []string{"dir"}}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Paths = []string{"/w"} }, policy.Past{Was: bailey.Allow, Unknown: pastPaths}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Reaches = []string{"[REDACTED_IPV4_1]:443"} }, policy.Past{Was: bailey.Allow, Hidden: []string{"egress"}}},
		{func(i *bailey.Intent, o *bailey.Outcome) {
			i.Capability, i.Input, o.Reaches = "http.get", json.RawMessage(`{"url":"https://a.example/"}`), []string{"b.example:443"}
		}, policy.Past{Was: bailey.Allow, Marks: []string{otherManifest}, Unknown: pastEgress}},
		{func(i *bailey.Intent, o *bailey.Outcome) {
			i.Capability, i.Input, o.Reaches = "http.get", json.RawMessage(`{"url":"https://a.example/"}`), []string{"a.example:443", "b.example:443"}
		}, policy.Past{Was: bailey.Allow, Marks: []string{otherManifest}}},
		{func(i *bailey.Intent, _ *bailey.Outcome) {
			i.Capability, i.Input = "git.status", json.RawMessage(`{"repo":"."}`)
		}, policy.Past{Was: bailey.Allow, Marks: []string{otherManifest}, Unknown: pastPaths}},
		{func(i *bailey.Intent, o *bailey.Outcome) {
			i.Capability, i.Input, o.Paths = "git.status", json.RawMessage(`{"repo":"."}`), []string{"/w/[REDACTED_HOST_1]"}
		}, policy.Past{Was: bailey.Allow, Marks: []string{otherManifest}, Hidden: []string{"paths"}}},
	} {
		p := historian{catalog: s.catalog, body: func(bailey.ReceiptID, bailey.Body) ([]byte, error) { return nil, os.ErrNotExist }}.past(echoed(t, s, c.change))
		p.Request, p.Receipt = bailey.Request{}, ""
		if !reflect.DeepEqual(p, c.want) {
			t.Errorf("%+v, want %+v", p, c.want)
		}
	}
	r := echoed(t, s, func(*bailey.Intent, *bailey.Outcome) {})
	r.Outcome = nil
	if p := (historian{catalog: s.catalog}).past(r); p.Unknown != pastOpen {
		t.Errorf("an open call: %+v", p)
	}
}

// writePast writes a ledger of n receipts in a new directory.
func writePast(t testing.TB, s *stack, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledger")
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Mkdir(dir, 0o700))
	f, err := os.OpenFile(filepath.Join(dir, "00000001.jsonl"), os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	w := bufio.NewWriterSize(f, 1<<20)
	var head audit.Head
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	entry := func(kind string, at time.Time, data any) {
		raw, err := json.Marshal(data)
		check(err)
		line, hash, err := audit.Append(head.Hash, audit.Entry{Seq: head.Seq + 1, Time: at, Kind: kind, Data: raw})
		check(err)
		_, err = w.Write(line)
		check(err)
		head = audit.Head{Seq: head.Seq + 1, Hash: hash}
	}
	entry(audit.KindGenesis, start, audit.Genesis{Format: audit.Format, Origin: "000102030405060708090a0b0c0d0e0f", Host: "castle"})
	ids := []bailey.CapabilityID{"git.status", "git.log", "git.diff", "git.show"}
	for i := range n {
		m, err := s.catalog.Lookup(ids[i%len(ids)])
		check(err)
		at := start.Add(time.Duration(i) * time.Second)
		in := bailey.Intent{Receipt: bailey.ReceiptID(fmt.Sprintf("r-%026d", i)), Capability: m.ID, Input: json.RawMessage(`{"repo":".","path":"src/main.go"}`),
			Agent: "claude", Person: "me", Host: "castle", Session: bailey.SessionID(fmt.Sprintf("s-%026d", i/50)), Door: "mcp", Dir: "/home/me/project", StartedAt: at}
		entry(audit.KindIntent, at, in)
		entry(audit.KindOutcome, at, bailey.Outcome{Receipt: in.Receipt, Status: bailey.OK, Decision: "allow", Executed: new(true), ManifestDigest: m.Digest, PolicyDigest: "p",
			Rules: []bailey.Rule{{ID: "look", Source: "starter.cedar:3"}}, Argv: []string{"git", "status"}, Cwd: "/home/me/project", Paths: []string{"/home/me/project"},
			Cage: &bailey.Cage{Kind: "full", Enforced: true, Layers: []string{"landlock", "seccomp"}, PlanDigest: strings.Repeat("0", 64)}, EndedAt: at.Add(time.Millisecond)})
	}
	check(w.Flush())
	check(f.Close())
	return dir
}

// BenchmarkReplay reads 100,000 receipts from the files of a ledger and decides them again. BenchmarkSuggest derives
// rules from them. The metric heap-MiB is the largest live heap.
func BenchmarkReplay(b *testing.B) {
	benchPast(b, func(s *stack, past iter.Seq[policy.Past]) error {
		if r := policy.Replay(s.rules.Engine(), past); r.Same != 100_000 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

func BenchmarkSuggest(b *testing.B) {
	benchPast(b, func(s *stack, past iter.Seq[policy.Past]) error {
		_, err := policy.Suggest(actions(s.catalog), past)
		return err
	})
}

func benchPast(b *testing.B, do func(*stack, iter.Seq[policy.Past]) error) {
	s := spineForTest(b)
	dir := writePast(b, s, 100_000)
	for b.Loop() {
		r, err := ledger.OpenReader(dir)
		if err != nil {
			b.Fatal(err)
		}
		var failed error
		most := uint64(0)
		past := historian{catalog: s.catalog}.pasts(b.Context(), r, receipts.Filter{}, &failed)
		err = do(s, watchHeap(past, &most))
		if r.Close(); err != nil || failed != nil {
			b.Fatal(err, failed)
		}
		b.ReportMetric(float64(most)/(1<<20), "heap-MiB")
	}
}

// TestPolicyDirectory checks that the policy files of a directory are read in order, and that any other file is
// rejected.
func TestPolicyDirectory(t *testing.T) {
	ktest.Long(t)
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if _, err := readPolicyDir(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("no *.cedar in ")
	for _, name := range []string{"b.cedar", "a.cedar", "README", "README.txt", "x.md", ".hidden", "x.test.yaml", "budgets.yaml"} {
		put(name, name)
	}
	files, err := readPolicyDir(dir)
	if names := sourceNames(files.Rules); err != nil || !slices.Equal(names, []string{"a.cedar=a.cedar", "b.cedar=b.cedar"}) {
		t.Errorf("%v %v", names, err)
	}
	for _, name := range []string{"rules.ceddar", "c.cedar~", "CEDAR", "budgets.yml", "x\x1b[2J"} {
		put(name, "")
		refused("in the policy's directory is no")
		os.Remove(filepath.Join(dir, name))
	}
	if err := os.Mkdir(filepath.Join(dir, "d.cedar"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused("is no regular file")
	os.Remove(filepath.Join(dir, "d.cedar"))
	if err := os.Symlink("a.cedar", filepath.Join(dir, "l.cedar")); err != nil {
		t.Fatal(err)
	}
	refused("is no regular file")
	os.Remove(filepath.Join(dir, "l.cedar"))
	if err := syscall.Mkfifo(filepath.Join(dir, "p.cedar"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("is no regular file")
	os.Remove(filepath.Join(dir, "p.cedar"))
	put("u.cedar", "// \xff")
	refused("u.cedar is not UTF-8")
	os.Remove(filepath.Join(dir, "u.cedar"))
	if err := os.Truncate(filepath.Join(dir, "a.cedar"), maxPolicyBytes+1); err != nil {
		t.Fatal(err)
	}
	refused("a policy is 4194304 bytes at most")
	os.Remove(filepath.Join(dir, "a.cedar"))
	for i := range maxPolicyFiles {
		put(fmt.Sprint(i, ".cedar"), "")
	}
	refused("more than 1000 files")
}

func sourceNames(list []policy.Source) (names []string) {
	for _, s := range list {
		names = append(names, s.Name+"="+string(s.Text))
	}
	return names
}

// watchHeap records the largest live heap at intervals.
func watchHeap(past iter.Seq[policy.Past], most *uint64) iter.Seq[policy.Past] {
	return func(yield func(policy.Past) bool) {
		n := 0
		for p := range past {
			if n++; n%10_000 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				*most = max(*most, m.HeapAlloc)
			}
			if !yield(p) {
				return
			}
		}
	}
}

// TestPastOfAKill checks that a refusal by the kill switch or because of an unusable policy is neither replayed nor
// used as a denial when rules are suggested, because it says nothing about the rules.
func TestPastOfAKill(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns")
	s := spineForTest(t)
	h := historian{catalog: s.catalog}
	call := func() policy.Past {
		t.Helper()
		res := s.kill.Do(t.Context(), bailey.Call{Capability: "system.date", Door: "cli", Dir: t.TempDir(), Principal: bailey.Principal{Agent: "a", Person: "ada"}, Session: bailey.Session{ID: bailey.NewSessionID()}})
		page, err := s.index.Find(t.Context(), receipts.Filter{ID: res.Receipt})
		if err != nil || len(page.Records) != 1 || bailey.KindOf(res.Err) != bailey.Denied {
			t.Fatalf("%+v %v %+v", page, err, res)
		}
		return h.past(page.Records[0])
	}
	if _, err := s.kill.Kill(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	if p := call(); p.Unknown != pastWall {
		t.Errorf("killed: %q", p.Unknown)
	}
	if _, err := s.kill.Resume(t.Context(), gateway.Resumed{}); err != nil {
		t.Fatal(err)
	}
	e := *s.rules.now.Load()
	e.fault = &bailey.Error{Kind: bailey.Unavailable, Message: "it is gone"}
	s.rules.now.Store(&e)
	if p := call(); p.Unknown != pastWall {
		t.Errorf("without a policy: %q", p.Unknown)
	}
}
