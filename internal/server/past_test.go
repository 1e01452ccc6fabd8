//go:build linux

package server

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
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/policy/review"
	"bailey/internal/policyfiles"
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
	h := policyfiles.RequestRebuilder{Catalog: s.Catalog, Body: func(id bailey.ReceiptID, said bailey.Body) ([]byte, error) {
		return s.ledger.Body(id, receipts.InputPart, said)
	}}
	for _, c := range []bailey.Call{
		{Capability: "git.log", Input: map[string]any{"repo": ".", "limit": "5", "stat": "true"}, Text: true, Door: "cli"},
		{Capability: "git.log", Input: map[string]any{"repo": dir, "limit": json.Number("5"), "patch": true}, Door: "mcp", Session: bailey.Session{Unattended: true}},
		{Capability: "system.echo", Input: map[string]any{"message": strings.Repeat("long ", 2000)}, Door: "mcp"},
		{Capability: "system.date", Door: "cli"},
	} {
		c.Principal, c.Dir, c.DryRun, c.Session.ID = who, dir, true, bailey.NewSessionID()
		want, err := s.Gate.Request(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		result := s.Gate.Do(t.Context(), c)
		page, err := s.index.Find(t.Context(), receipts.Filter{ID: result.Receipt})
		if err != nil || len(page.Records) != 1 {
			t.Fatalf("%+v %v %v", page, err, result.Err)
		}
		p := h.Past(page.Records[0])
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
func echoed(t *testing.T, s *Server, change func(*bailey.Intent, *bailey.Outcome)) receipts.Record {
	t.Helper()
	m, err := s.Catalog.Lookup("system.echo")
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
		want   review.Past
	}{
		{func(*bailey.Intent, *bailey.Outcome) {}, review.Past{Was: bailey.Allow}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Decision, o.Cage, o.PolicyDigest = "", nil, "" }, review.Past{Unknown: policyfiles.PastNever}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Decision, o.PolicyDigest = "deny", "" }, review.Past{Unknown: policyfiles.PastWall}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Decision = "deny" }, review.Past{Was: bailey.Deny}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Cage = nil }, review.Past{Unknown: policyfiles.PastCage}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Decision, o.Rules = "ask", []bailey.Rule{{ID: "a"}} }, review.Past{Was: bailey.Ask, Asks: []bailey.Rule{{ID: "a"}}}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Approval = "a-1" }, review.Past{Was: bailey.Ask}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.ManifestDigest = "old" }, review.Past{Was: bailey.Allow, Marks: []string{policyfiles.OtherManifest}}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { i.Capability = "no.more" }, review.Past{Was: bailey.Allow, Unknown: policyfiles.PastGone}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { i.Input = json.RawMessage(`{"message":1}`) }, review.Past{Was: bailey.Allow, Unknown: policyfiles.PastInput}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { // only the command line has inputs as text
			i.Capability, i.Input, i.Door = "git.log", json.RawMessage(`{"repo":".","limit":"5"}`), "mcp"
		}, review.Past{Was: bailey.Allow, Marks: []string{policyfiles.OtherManifest}, Unknown: policyfiles.PastInput}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { i.Input = json.RawMessage(`[`) }, review.Past{Was: bailey.Allow, Unknown: policyfiles.PastInput}},
		{func(i *bailey.Intent, _ *bailey.Outcome) {
			i.Input, i.InputBytes, i.InputBody = nil, 9000, &bailey.Body{Length: 9000}
		}, review.Past{Was: bailey.Allow, Unknown: policyfiles.PastBody}},
		{func(i *bailey.Intent, _ *bailey.Outcome) { i.Input, i.InputBytes = nil, 9000 }, review.Past{Was: bailey.Allow, Unknown: policyfiles.PastBody}},
		{func(i *bailey.Intent, _ *bailey.Outcome) {
			i.Input = json.RawMessage(`{"message":"x[REDACTED_PASSWORD_1]"}`)
		},
			review.Past{Was: bailey.Allow, Hidden: []string{"input.message"}}},
		{func(i *bailey.Intent, _ *bailey.Outcome) {
			i.Input = json.RawMessage(`{"message":{"[REDACTED_PASSWORD_1]":1}}`)
		},
			review.Past{Was: bailey.Allow, Hidden: []string{"input.message"}, Unknown: policyfiles.PastSecret}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Restored = []string{"PASSWORD"} }, review.Past{Was: bailey.Allow, Hidden: []string{"input"}}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Cwd = "/w/[REDACTED_IPV4_1]" }, review.Past{Was: bailey.Allow, Hidden: []string{"dir"}}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Paths = []string{"/w"} }, review.Past{Was: bailey.Allow, Unknown: policyfiles.PastPaths}},
		{func(_ *bailey.Intent, o *bailey.Outcome) { o.Reaches = []string{"[REDACTED_IPV4_1]:443"} }, review.Past{Was: bailey.Allow, Hidden: []string{"egress"}}},
		{func(i *bailey.Intent, o *bailey.Outcome) {
			i.Capability, i.Input, o.Reaches = "http.get", json.RawMessage(`{"url":"https://a.example/"}`), []string{"b.example:443"}
		}, review.Past{Was: bailey.Allow, Marks: []string{policyfiles.OtherManifest}, Unknown: policyfiles.PastEgress}},
		{func(i *bailey.Intent, o *bailey.Outcome) {
			i.Capability, i.Input, o.Reaches = "http.get", json.RawMessage(`{"url":"https://a.example/"}`), []string{"a.example:443", "b.example:443"}
		}, review.Past{Was: bailey.Allow, Marks: []string{policyfiles.OtherManifest}}},
		{func(i *bailey.Intent, _ *bailey.Outcome) {
			i.Capability, i.Input = "git.status", json.RawMessage(`{"repo":"."}`)
		}, review.Past{Was: bailey.Allow, Marks: []string{policyfiles.OtherManifest}, Unknown: policyfiles.PastPaths}},
		{func(i *bailey.Intent, o *bailey.Outcome) {
			i.Capability, i.Input, o.Paths = "git.status", json.RawMessage(`{"repo":"."}`), []string{"/w/[REDACTED_HOST_1]"}
		}, review.Past{Was: bailey.Allow, Marks: []string{policyfiles.OtherManifest}, Hidden: []string{"paths"}}},
	} {
		p := policyfiles.RequestRebuilder{Catalog: s.Catalog, Body: func(bailey.ReceiptID, bailey.Body) ([]byte, error) { return nil, os.ErrNotExist }}.Past(echoed(t, s, c.change))
		p.Request, p.Receipt = bailey.Request{}, ""
		if !reflect.DeepEqual(p, c.want) {
			t.Errorf("%+v, want %+v", p, c.want)
		}
	}
	r := echoed(t, s, func(*bailey.Intent, *bailey.Outcome) {})
	r.Outcome = nil
	if p := (policyfiles.RequestRebuilder{Catalog: s.Catalog}).Past(r); p.Unknown != policyfiles.PastOpen {
		t.Errorf("an open call: %+v", p)
	}
}

// writePast writes a ledger of n receipts in a new directory.
func writePast(t testing.TB, s *Server, n int) string {
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
		m, err := s.Catalog.Lookup(ids[i%len(ids)])
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
	benchPast(b, func(s *Server, past iter.Seq[review.Past]) error {
		if r := review.Replay(s.Rules.Engine(), past); r.Same != 100_000 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

func BenchmarkSuggest(b *testing.B) {
	benchPast(b, func(s *Server, past iter.Seq[review.Past]) error {
		_, err := review.Suggest(policyfiles.Actions(s.Catalog), past)
		return err
	})
}

func benchPast(b *testing.B, do func(*Server, iter.Seq[review.Past]) error) {
	s := spineForTest(b)
	dir := writePast(b, s, 100_000)
	for b.Loop() {
		r, err := ledger.OpenReader(dir)
		if err != nil {
			b.Fatal(err)
		}
		var failed error
		most := uint64(0)
		past := policyfiles.RequestRebuilder{Catalog: s.Catalog}.Pasts(b.Context(), r, receipts.Filter{}, &failed)
		err = do(s, watchHeap(past, &most))
		if r.Close(); err != nil || failed != nil {
			b.Fatal(err, failed)
		}
		b.ReportMetric(float64(most)/(1<<20), "heap-MiB")
	}
}

// watchHeap records the largest live heap at intervals.
func watchHeap(past iter.Seq[review.Past], most *uint64) iter.Seq[review.Past] {
	return func(yield func(review.Past) bool) {
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
	h := policyfiles.RequestRebuilder{Catalog: s.Catalog}
	call := func() review.Past {
		t.Helper()
		res := s.kill.Do(t.Context(), bailey.Call{Capability: "system.date", Door: "cli", Dir: t.TempDir(), Principal: bailey.Principal{Agent: "a", Person: "ada"}, Session: bailey.Session{ID: bailey.NewSessionID()}})
		page, err := s.index.Find(t.Context(), receipts.Filter{ID: res.Receipt})
		if err != nil || len(page.Records) != 1 || bailey.KindOf(res.Err) != bailey.Denied {
			t.Fatalf("%+v %v %+v", page, err, res)
		}
		return h.Past(page.Records[0])
	}
	if _, err := s.kill.Kill(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	if p := call(); p.Unknown != policyfiles.PastWall {
		t.Errorf("killed: %q", p.Unknown)
	}
	if _, err := s.kill.Resume(t.Context(), gateway.Resumed{}); err != nil {
		t.Fatal(err)
	}
	e := s.Rules.now.Load()
	e.Fault = &bailey.Error{Kind: bailey.Unavailable, Message: "it is gone"}
	s.Rules.now.Restore(e)
	if p := call(); p.Unknown != policyfiles.PastWall {
		t.Errorf("without a policy: %q", p.Unknown)
	}
}
