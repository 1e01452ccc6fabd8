package server

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/approve"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/redact"
	"bailey/internal/settings"
)

// examples returns a generator of random events for each kind that contributes to the lore. Names repeat, and some
// differ only in case.
func examples(r *rand.Rand) map[string]func() any {
	name := func() string {
		return fmt.Sprintf("%s/%c%d", strings.Repeat("\"<ü\u2028", r.IntN(20)), "aAß"[r.IntN(2)], r.IntN(12))
	}
	pin := func() apitype.Pin {
		p := apitype.Pin{Program: bailey.Program{Path: name(), SHA256: fmt.Sprint(r.IntN(1000))}}
		if r.IntN(2) == 0 {
			p.Command = name()
		}
		return p
	}
	configured := func() any {
		return apitype.Configuration{Client: "claude-code", File: name(), Command: name(), Added: apitype.Added(`{"a":1}`), Operator: localapi.Env}
	}
	issued := func() any {
		return gateway.Issued{Session: bailey.SessionID(name()), Agent: name(), UID: r.IntN(9), At: time.Unix(r.Int64N(1e5), 0).UTC()}
	}
	id := func() bailey.ApprovalID { return bailey.ApprovalID(fmt.Sprintf("a-%d", r.IntN(12))) }
	at := func() time.Time { return time.Unix(r.Int64N(1e9), 0).UTC() }
	wrapID := func() string { return fmt.Sprintf("w-%d", r.IntN(5)) }
	return map[string]func() any{
		approve.QuestionEvent: func() any {
			return bailey.Question{ID: id(), Text: name(), Alike: fmt.Sprint(r.IntN(5)), AskedAt: at(), Expires: at()}
		},
		approve.AnswerEvent: func() any {
			return approve.Event{ID: id(), At: at(), Granted: r.IntN(2) == 0, Settled: r.IntN(2) == 0, Reason: name(), Name: []string{"", "ada"}[r.IntN(2)], Signature: name()}
		},
		approve.UseEvent: func() any { return approve.Use{Question: id(), Receipt: "r-1", At: at()} },
		approve.GrantEvent: func() any {
			return approve.Standing{ID: bailey.GrantID(id()), Text: name(), Until: at(), By: approve.Event{At: at()}}
		},
		gateway.OrdersEvent: func() any {
			return apitype.Orders{Revision: r.Uint64N(9), Kills: []apitype.Order{{ID: wrapID(), Agent: name(), Reason: name(), At: at()}}}
		},
		approve.RevokeEvent: func() any { return approve.Revoked{ID: bailey.GrantID(id())} },
		gateway.ApplyEvent: func() any {
			return settings.Applied{Digest: fmt.Sprint(r.IntN(1000)), Operator: localapi.Terminal, Contents: settings.Contents{Workspaces: []string{name()},
				Redaction: redact.Config{Patterns: []redact.Pattern{{Category: "TICKET", Regexp: name()}}}}}
		},
		gateway.PinEvent:       func() any { return pin() },
		gateway.RepinEvent:     func() any { return gateway.Repin{Capability: "x.y", Programs: []apitype.Pin{pin(), pin()}} },
		apitype.ConfigureEvent: configured,
		apitype.UndoEvent:      configured,
		apitype.PolicyEvent: func() any {
			return apitype.AppliedPolicy{Digest: fmt.Sprint(r.IntN(1000)), Policy: fmt.Sprint(r.IntN(1000)), Dir: name(), Rules: r.IntN(9), Operator: localapi.Env}
		},
		apitype.HooksEvent: func() any {
			return apitype.AppliedHooks{Digest: fmt.Sprint(r.IntN(1000)), UserHome: name(), Hooks: r.IntN(9), At: at(), Operator: localapi.Env}
		},
		gateway.KillEvent:   func() any { return apitype.Killed{At: time.Unix(r.Int64N(1e9), 0).UTC(), Reason: name()} },
		gateway.ResumeEvent: func() any { return gateway.Resumed{Operator: localapi.Env} },
		apitype.WrapStart:   func() any { return apitype.WrapStarting{ID: wrapID(), Agent: name(), Project: name(), At: at()} },
		apitype.WrapRefused: func() any {
			return apitype.WrapRefusals{ID: wrapID(), At: at(), Lines: []apitype.Refusal{{At: at(), Kind: "egress", Target: name(), Reason: name()}}, Untold: r.Int64N(3)}
		},
		apitype.WrapEnd: func() any {
			return apitype.WrapEnding{ID: wrapID(), At: at(), ExitCode: r.IntN(3), Moved: []string{name()}}
		},
		packstore.PackTrustEvent:     func() any { return packstore.TrustedKey{Name: fmt.Sprint("k", r.IntN(5)), Key: name(), At: at()} },
		packstore.PackUntrustEvent:   func() any { return packstore.TrustedKey{Name: fmt.Sprint("k", r.IntN(5))} },
		packstore.PackInstallEvent:   func() any { return packed(r) },
		packstore.PackUninstallEvent: func() any { return packed(r) },
		apitype.ProfileEvent: func() any {
			return settings.InUse{At: at(), Profiles: []settings.UsedProfile{{Name: "p", Digest: fmt.Sprint(r.IntN(1000)), Profile: settings.Profile{Packs: []string{name()}}}}}
		},
		gateway.IssueEvent: issued,
		gateway.UseEvent:   issued,
		apitype.AgentAddEvent: func() any {
			return apitype.Agent{Name: fmt.Sprint("n", r.IntN(5)), At: at(), Operator: localapi.Env, Person: name()}
		},
		apitype.AgentRemoveEvent: func() any { return apitype.Agent{Name: fmt.Sprint("n", r.IntN(5)), At: at()} },
		apitype.TokenAddEvent: func() any {
			return apitype.Token{ID: fmt.Sprint("t-", r.IntN(20)), Agent: fmt.Sprint("n", r.IntN(5)), Scope: []string{name()}, Issued: at(), Expires: at(), Hash: name()}
		},
		apitype.TokenRevokeEvent: func() any { return gateway.TokenEnd{ID: fmt.Sprint("t-", r.IntN(20)), At: at()} },
	}
}

func packed(r *rand.Rand) packstore.Installed {
	return packstore.Installed{Name: fmt.Sprint("p", r.IntN(5)), Version: fmt.Sprintf("%d.%d.0", r.IntN(3), r.IntN(12)), Digest: fmt.Sprint(r.IntN(99)), Key: "k+1", Dev: r.IntN(4) == 0}
}

func textOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func anys(list []snapshotPart) (out []any) {
	for _, p := range list {
		out = append(out, p)
	}
	return out
}

// linesOf returns the lines of a ledger by segment.
func linesOf(t testing.TB, dir string) (segments [][]string) {
	t.Helper()
	names, err := filepath.Glob(dir + "/*.jsonl")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	slices.Sort(names)
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		segments = append(segments, slices.Collect(strings.Lines(string(b))))
	}
	return segments
}

// truncations calls see with a copy of the ledger up to each entry after which its writer may have been killed, with
// that entry and the lore up to it.
func truncations(t testing.TB, dir string, see func(dir string, last audit.Entry, all State)) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "ledger")
	if err := os.Mkdir(copied, 0o700); err != nil {
		t.Fatal(err)
	}
	var all State
	var head audit.Head
	kinds := entryHandlers()
	for i, lines := range linesOf(t, dir) {
		f, err := os.OpenFile(filepath.Join(copied, fmt.Sprintf("%08d.jsonl", i+1)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if _, err := f.WriteString(line); err != nil {
				t.Fatal(err)
			}
			for e, err := range audit.Scan(strings.NewReader(line), head) {
				if err == nil && kinds[e.Kind] != nil {
					err = kinds[e.Kind](&all, e.Data)
				}
				if err != nil {
					t.Fatal(err)
				}
				head = audit.Head{Seq: e.Seq, Hash: e.Hash}
				see(copied, e, all)
			}
		}
		f.Close()
	}
}

// sameLore removes empty parts from the text of a lore, because an emptied part is equal to one that never existed.
func sameLore(text string) string { return strings.ReplaceAll(text, `,"asked":{}`, "") }

func openLog(t testing.TB, dir string, segment int64) (*ledger.Log, *eventLog) {
	t.Helper()
	r := newReplay()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	l, err := ledger.New(ledger.Config{Dir: dir, Segment: segment, Read: r.Read, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s, err := openScribe(l, r, log)
	if err != nil {
		t.Fatal(err)
	}
	return l, s
}

// A test must not be parallel if it opens a ledger twice in this process. A process that another test starts inherits
// the lock of the first opening and holds it until it executes its program.

// TestLoreIsCarried checks that a start from the end of the ledger restores the lore of all entries, whatever was
// recorded, and wherever segments begin, gateways end or a writer is killed. Each remembered kind must have an example
// here.
func TestLoreIsCarried(t *testing.T) {
	ktest.Long(t)
	r := rand.New(rand.NewPCG(3, 5))
	made := examples(r)
	if !slices.Equal(kindsOf(entryHandlers()), slices.Sorted(maps.Keys(made))) {
		t.Fatalf("examples of %v, and %v are remembered", slices.Sorted(maps.Keys(made)), kindsOf(entryHandlers()))
	}
	starts, cut := 0, 0
	for _, segment := range []int64{1500, 50_000, 90_000, 100_000, 110_000, 300_000} {
		dir := filepath.Join(t.TempDir(), "ledger")
		l, s := openLog(t, dir, segment)
		many := gateway.Repin{Capability: "many"} // so that the snapshot needs more than one entry
		for n := range min(segment/100, 150) {
			many.Programs = append(many.Programs, apitype.Pin{Program: bailey.Program{Path: fmt.Sprint(strings.Repeat("/long", 40), n), SHA256: "0"}})
		}
		if err := s.recordEvent(t.Context(), gateway.RepinEvent, many); err != nil {
			t.Fatal(err)
		}
		for n := range 45 {
			kind := kindsOf(s.folds)[r.IntN(len(made))]
			if err := s.recordEvent(t.Context(), kind, made[kind]()); err != nil {
				t.Fatal(err)
			}
			if err := s.recordEvent(t.Context(), "question", map[string]string{"path": strings.Repeat("x", r.IntN(5000)), "sha256": "y"}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-l.Rotated():
				s.writeSnapshot()
			default:
			}
			if n%15 == 14 {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				want := textOf(t, s.lore)
				if l, s = openLog(t, dir, segment); textOf(t, s.lore) != want {
					t.Fatalf("segments of %d: after a start\n%s\nbefore\n%s", segment, textOf(t, s.lore), want)
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		truncations(t, dir, func(dir string, last audit.Entry, all State) {
			back := newReplay()
			if err := ledger.Backward(dir, back); err != nil {
				t.Fatal(err)
			}
			got, err := back.rebuildState()
			if err != nil || sameLore(textOf(t, got)) != sameLore(textOf(t, all)) {
				t.Fatalf("segments of %d, killed after entry %d: %v\n%s\nwant\n%s", segment, last.Seq, err, textOf(t, got), textOf(t, all))
			}
			if back.found {
				starts++
			}
			if last.Kind == memoryEvent && len(back.events) > 0 {
				cut++
			}
		})
	}
	t.Logf("%d starts from a lore, %d from between its parts", starts, cut)
	if starts < 100 || cut < 10 {
		t.Error("this tries nothing")
	}
}

// TestLoreIsEnough checks that a start reads only the last segment if it contains a snapshot. If a start had to read
// more, it writes a snapshot, once. Damage in older segments is detected only by audit verify.
func TestLoreIsEnough(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l, s := openLog(t, dir, 2000)
	made := examples(rand.New(rand.NewPCG(1, 1)))[gateway.PinEvent]
	for range 40 {
		if err := s.recordEvent(t.Context(), gateway.PinEvent, made()); err != nil {
			t.Fatal(err)
		}
	}
	want := textOf(t, s.lore)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(linesOf(t, dir)), `"kind":"memory"`) {
		t.Fatal("nobody heard that segments began")
	}
	for range 3 {
		l, s = openLog(t, dir, 1<<20)
		if textOf(t, s.lore) != want {
			t.Fatalf("%s, want %s", textOf(t, s.lore), want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(fmt.Sprint(linesOf(t, dir)), `"kind":"memory"`); n != 1 {
			t.Fatalf("written down %d times", n)
		}
	}
	second := filepath.Join(dir, "00000002.jsonl")
	b, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(second, b, 0o600); err != nil {
		t.Fatal(err)
	}
	l, s = openLog(t, dir, 1<<20)
	defer l.Close()
	if textOf(t, s.lore) != want {
		t.Error("it reads more than it needs")
	}
}

// TestLoreIsRefused checks that an incomplete or changed snapshot, or one of another version, is ignored, and older
// entries are read instead.
func TestLoreIsRefused(t *testing.T) {
	ktest.Long(t)
	big := State{}
	r := rand.New(rand.NewPCG(7, 7))
	for range 3000 {
		big.Pins.Keep(apitype.Pin{Program: bailey.Program{Path: fmt.Sprint("/old/", r.Uint64()), SHA256: "0"}})
	}
	whole, err := big.snapshotParts(entryHandlers())
	if err != nil || len(whole) < 3 {
		t.Fatal(len(whole), err)
	}
	other := entryHandlers()
	other["later.kind"] = foldAs(func(*State, struct{}) {})
	newer, err := big.snapshotParts(other)
	if err != nil {
		t.Fatal(err)
	}
	unknown := snapshotPart{Format: loreFormat, Part: 1, Of: 1}
	unknown.Text = strings.Replace(textOf(t, encodeState{kindsOf(entryHandlers()), State{}}), `"pins":{`, `"pins":{"later":{},`, 1)
	unknown.Digest = apitype.DigestOf(unknown.Text)
	altered := func(change func(list []snapshotPart)) []any {
		list := slices.Clone(whole)
		change(list)
		return anys(list)
	}
	trailing := snapshotPart{Format: loreFormat, Part: 1, Of: 1, Text: textOf(t, encodeState{kindsOf(entryHandlers()), State{}}) + "{}"}
	trailing.Digest = apitype.DigestOf(trailing.Text)
	for name, c := range map[string]struct {
		notes []any
		used  bool
	}{
		"whole":                        {anys(whole), true},
		"twice":                        {anys(slices.Concat(whole, whole)), true},
		"after half a one":             {anys(slices.Concat(whole[:2], whole)), true},
		"before half a one":            {anys(slices.Concat(whole, whole[:2])), true},
		"without its first":            {anys(whole[1:]), false},
		"without its last":             {anys(whole[:len(whole)-1]), false},
		"without one":                  {anys(slices.Concat(whole[:1], whole[2:])), false},
		"in another order":             {altered(func(l []snapshotPart) { l[0], l[1] = l[1], l[0] }), false},
		"with another's part":          {altered(func(l []snapshotPart) { l[1].Digest = apitype.DigestOf("x") }), false},
		"with a text that was changed": {altered(func(l []snapshotPart) { l[1].Text = strings.Replace(l[1].Text, "/old/", "/new/", 1) }), false},
		"of another format":            {altered(func(l []snapshotPart) { l[0].Format++ }), false},
		"of another number":            {altered(func(l []snapshotPart) { l[0].Of++ }), false},
		"with a number twice":          {altered(func(l []snapshotPart) { l[0].Part++ }), false},
		"of none":                      {[]any{snapshotPart{Format: loreFormat, Digest: apitype.DigestOf("")}}, false},
		"of less than none":            {[]any{snapshotPart{Format: loreFormat, Digest: apitype.DigestOf(""), Part: -1, Of: -1}}, false},
		"of very many":                 {[]any{snapshotPart{Format: loreFormat, Part: 1 << 40, Of: 1 << 40}}, false},
		"of other kinds":               {anys(newer), false},
		"with what is not known":       {[]any{unknown}, false},
		"with something behind":        {[]any{trailing}, false},
		"no part":                      {[]any{map[string]any{"format": "1"}}, false},
		"a part of more":               {[]any{map[string]any{"format": 1, "digest": "", "part": 1, "of": 1, "text": "", "later": 1}}, false},
		"with an event in between":     {slices.Insert(anys(whole), 1, any(apitype.Pin{Program: bailey.Program{Path: "/between", SHA256: "9"}})), false},
	} {
		between(t, name, c.notes, c.used, big)
	}
}

// between writes notes between two pins, and checks that both pins are remembered: in addition to big if the notes are
// used, otherwise in addition to the earlier entries.
func between(t *testing.T, name string, notes []any, used bool, big State) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledger")
	l, err := ledger.New(ledger.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var want State
	keep := func(data any) {
		t.Helper()
		kind := memoryEvent
		if p, ok := data.(apitype.Pin); ok {
			kind = gateway.PinEvent
			want.Pins.Keep(p)
		}
		if err := l.Note(t.Context(), kind, data); err != nil {
			t.Fatal(err)
		}
	}
	keep(apitype.Pin{Program: bailey.Program{Path: "/before", SHA256: "1"}})
	for _, n := range notes {
		keep(n)
	}
	if used {
		want.Pins = gateway.Digests{Programs: maps.Clone(big.Pins.Programs), Commands: big.Pins.Commands}
	}
	keep(apitype.Pin{Program: bailey.Program{Path: "/after", SHA256: "2"}})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	back := newReplay()
	if err := ledger.Backward(dir, back); err != nil {
		t.Fatal(err)
	}
	if got, err := back.rebuildState(); err != nil || back.found != used || textOf(t, got) != textOf(t, want) {
		t.Errorf("%s: used %v, %v, %d programs, want %d", name, back.found, err, len(got.Pins.Programs), len(want.Pins.Programs))
	}
}

// TestFolds checks how each kind of event changes the lore.
func TestFolds(t *testing.T) {
	for _, c := range []struct{ events, want string }{
		{"", `{"settings":{"digest":"","workspaces":null},"pins":{}}`},
		{`settings.apply {"digest":"a","workspaces":["/a"],"person":"p"}
settings.apply {"digest":"b","workspaces":["/b"]}`, `{"settings":{"digest":"b","workspaces":["/b"]},"pins":{}}`},
		{`client.configure {"client":"c","file":"/f"}
client.configure {"client":"c","file":"/g"}
client.undo {"client":"c","file":"/f"}
client.undo {"client":"c","file":"/h"}`, `{"settings":{"digest":"","workspaces":null},"clients":{"/g":{"client":"c","scope":"","file":"/g","command":"","added":""}},"pins":{}}`},
		{`tool.pin {"path":"/p","sha256":"1","command":"p"}
tool.pin {"path":"/lib","sha256":"2"}
tool.repin {"programs":[{"path":"/p","sha256":"3","command":"p"},{"path":"/q","sha256":"4"}]}`,
			`{"settings":{"digest":"","workspaces":null},"pins":{"programs":{"/lib":"2","/p":"3","/q":"4"},"commands":{"p":"3"}}}`},
		{`policy.apply {"digest":"a","policy":"b","rules":3}
policy.apply {"digest":"c","policy":"d","rules":4}`, `{"settings":{"digest":"","workspaces":null},"pins":{},"policy":{"digest":"c","policy":"d","rules":4,"tests":0,"budgets":0}}`},
		{`kill {"at":"2026-01-02T03:04:05Z","reason":"first","calls":1}
kill {"at":"2026-01-02T03:04:06Z","reason":"second","calls":2}`, `{"settings":{"digest":"","workspaces":null},"pins":{},"killed":{"at":"2026-01-02T03:04:05Z","reason":"first","calls":1}}`},
		{`kill {"at":"2026-01-02T03:04:05Z","calls":1}
resume {}`, `{"settings":{"digest":"","workspaces":null},"pins":{}}`},
		{`question {"id":"a-1","digest":"d"}
answer {"id":"a-1","granted":true,"settled":true,"at":"2026-01-02T03:04:05Z","name":"ada"}
kill {"at":"2026-01-02T03:04:06Z","calls":1}
resume {}`, `{"settings":{"digest":"","workspaces":null},"pins":{}}`},
	} {
		var l State
		for line := range strings.Lines(c.events) {
			kind, data, _ := strings.Cut(line, " ")
			if err := entryHandlers()[kind](&l, []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		if got := textOf(t, l); got != c.want {
			t.Errorf("%s\ncome to\n%s\nwant\n%s", c.events, got, c.want)
		}
	}
}

// TestParts checks that each part of a snapshot fits an entry and that the parts restore the lore, whatever names
// contain. A lore that is too large must cause an error.
func TestParts(t *testing.T) {
	ktest.Long(t)
	for _, c := range []string{"x", `"`, `\`, "<", "\u2028", "\x00", "ü", "\U0001f3f0", "\xff"} {
		for shift := range 4 {
			var l State
			written := textOf(t, apitype.Configuration{File: "/f", Command: strings.Repeat("x", shift) + strings.Repeat(c, 100_000)})
			if err := entryHandlers()[apitype.ConfigureEvent](&l, []byte(written)); err != nil {
				t.Fatal(err)
			}
			list, err := l.snapshotParts(entryHandlers())
			if err != nil || len(list) < 4 {
				t.Fatal(len(list), err)
			}
			var events []stateEvent
			for _, p := range list {
				data := []byte(textOf(t, p))
				if _, err := audit.NewBody(memoryEvent, data); err != nil || len(data) > audit.MaxEntry-200 {
					t.Errorf("%q: part %d has %d bytes: %v", c, p.Part, len(data), err)
				}
				events = append(events, stateEvent{1, memoryEvent, data})
			}
			if got, ok := decodeState(entryHandlers(), events); !ok || textOf(t, got) != textOf(t, l) {
				t.Errorf("%q does not come back", c)
			}
		}
	}
	var l State
	l.setConfiguration(apitype.Configuration{Command: strings.Repeat("x", maxParts*partBytes)})
	if list, err := l.snapshotParts(entryHandlers()); err == nil {
		t.Errorf("%d parts", len(list))
	}
}

// TestEventsAreRefused checks that a malformed event is not recorded. If the ledger contains one, the start must fail.
func TestEventsAreRefused(t *testing.T) {
	ktest.Long(t)
	for kind := range entryHandlers() {
		dir := filepath.Join(t.TempDir(), "ledger")
		l, s := openLog(t, dir, 0)
		if err := s.recordEvent(t.Context(), kind, []int{1}); bailey.KindOf(err) != bailey.Internal {
			t.Errorf("%s: %v", kind, err)
		}
		if err := l.Note(t.Context(), kind, map[string]any{"path": 1, "file": 1, "digest": 1, "programs": 1, "at": 1, "operator": 1, "until": 1, "revision": "x"}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.recordEvent(t.Context(), kind, struct{}{}); bailey.KindOf(err) != bailey.Unavailable || textOf(t, s.lore) != textOf(t, State{}) {
			t.Errorf("%s: the ledger is closed: %v, %s", kind, err, textOf(t, s.lore))
		}
		r := newReplay()
		l, err := ledger.New(ledger.Config{Dir: dir, Read: r.Read})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openScribe(l, r, s.log); bailey.KindOf(err) != bailey.Unavailable || bailey.HintOf(err) != "run bailey audit verify" || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v", kind, err)
		}
		l.Close()
	}
}

// TestLoreFormat fails if the saved format changes. Then loreFormat must be raised too, or an older snapshot would be
// used as complete.
func TestLoreFormat(t *testing.T) {
	l := State{Settings: settings.Applied{Digest: "d", Operator: "o", Person: "p", Contents: settings.Contents{Workspaces: []string{"/w"}, Redaction: redact.Config{
		Patterns: []redact.Pattern{{Category: "C", Regexp: "r"}}, Allow: []redact.Allow{{Category: "C", Regexp: "r"}}, Without: []redact.Category{"W"}}}}}
	l.setConfiguration(apitype.Configuration{Client: "c", Scope: "s", File: "/f", Command: "b", Added: "a", Operator: "o", Person: "p"})
	l.Pins.Keep(apitype.Pin{Program: bailey.Program{Path: "/p", SHA256: "1"}, Command: "p"})
	l.Policy = apitype.AppliedPolicy{Digest: "d", Policy: "e", Dir: "/r", Rules: 1, Tests: 2, Budgets: 3, Signer: &apitype.PolicySigner{Name: "n", Key: "k", Touch: true},
		At: time.Unix(0, 0).UTC(), Operator: "o", Person: "p"}
	l.Killed = apitype.Killed{At: time.Unix(0, 0).UTC(), Reason: "r", Person: "p", Calls: 4}
	l.Sessions.Keep(gateway.Issued{Session: "s-1", Agent: "a", UID: 5, At: time.Unix(0, 0).UTC()})
	when := time.Unix(0, 0).UTC()
	answer := approve.Event{ID: "a", Receipt: "r", At: when, Granted: true, Settled: true, Reason: "w", Digest: "d", Name: "n", Level: bailey.Local, Key: "k", Roles: []string{"x"},
		Signature: "s", Operator: "o", Standing: "g"}
	l.Asked.Asked(bailey.Question{ID: "a", Receipt: "r", Call: "c.d", AskedAt: when, Expires: when, Text: "t", Digest: "d", Subject: "s", Alike: "k"})
	l.Asked.Answered(answer)
	l.Asked.Denied = map[string]approve.Denial{"k": {Question: "a", Reason: "w", At: when}}
	l.Asked.Given(approve.Standing{ID: "g", Question: "a", Text: "t", Until: when, By: answer})
	l.Hooks = apitype.AppliedHooks{Digest: "d", UserHome: "/h", Hooks: 6, At: when, Operator: "o", Person: "p"}
	l.Wraps.Start(apitype.WrapStarting{ID: "w-1", Agent: "a", Project: "/p", Session: "s-1", At: when})
	l.Wraps.Refuse(apitype.WrapRefusals{ID: "w-1", Lines: []apitype.Refusal{{At: when, Kind: "call", Target: "t", Reason: "r", Hint: "h"}}, Untold: 2})
	l.Wraps.End(apitype.WrapEnding{ID: "w-1", At: when, ExitCode: 3, Moved: []string{"m"}, Dir: "/q"})
	l.Packs.Trust(packstore.TrustedKey{Name: "k", Key: "k+1+b", At: when, Operator: "o", Person: "p"})
	l.Packs.Install(packstore.Installed{Name: "n", Version: "1.0.0", Digest: "d", Key: "k+1", Downgrade: true, At: when, Operator: "o", Person: "p"})
	l.Packs.Install(packstore.Installed{Name: "n", Version: "2.0.0", Digest: "e", Dev: true, At: when})
	l.Profiles = settings.InUse{At: when, Operator: "o", Person: "p", Profiles: []settings.UsedProfile{{Name: "n", Digest: "d", Profile: settings.Profile{
		Description: "e", Packs: []string{"a"}, Capabilities: []string{"a.b"}, Environment: "v", Workspaces: []string{"/w"},
		Endpoints: []settings.Reach{{Endpoint: bailey.Endpoint{Host: "h", Port: 1, Private: true}, For: []string{"a.*"}}},
		Secrets:   []settings.SecretBind{{For: []string{"a.b"}, Name: "s", From: "f"}}, Folders: []settings.FolderBind{{For: []string{"a.b"}, Input: "i", Path: "/i"}}}}}}
	l.Agents.Add(apitype.Agent{Name: "n", At: when, Operator: "o", Person: "p"})
	l.Agents.Issue(apitype.Token{ID: "t", Agent: "n", Scope: []string{"a.*"}, Issued: when, Expires: when, Hash: "h", Operator: "o", Person: "p"})
	l.Agents.End(gateway.TokenEnd{ID: "t", At: when})
	list, err := l.snapshotParts(entryHandlers())
	if err != nil || len(list) != 1 {
		t.Fatal(len(list), err)
	}
	const answered = `{"id":"a","receipt":"r","at":"1970-01-01T00:00:00Z","granted":true,"settled":true,"reason":"w","digest":"d","name":"n","level":"local","key":"k","roles":["x"],` +
		`"signature":"s","operator":"o","standing":"g"}`
	const want = `{"kinds":["agent.add","agent.remove","answer","client.configure","client.undo","grant","grant.revoke","hooks.apply","kill","kill.orders","pack.install","pack.trust","pack.uninstall","pack.untrust","policy.apply","profile.use","question","resume","session.issue","session.use","settings.apply","token.add","token.revoke","tool.pin","tool.repin","use","wrap.end","wrap.refused","wrap.start"],` +
		`"settings":{"digest":"d","workspaces":["/w"],"redaction":{"patterns":[{"category":"C","regexp":"r"}],"allow":[{"category":"C","regexp":"r"}],"without":["W"]},"operator":"o","person":"p"},` +
		`"clients":{"/f":{"client":"c","scope":"s","file":"/f","command":"b","added":"a","operator":"o","person":"p"}},` +
		`"pins":{"programs":{"/p":"1"},"commands":{"p":"1"}},` +
		`"policy":{"digest":"d","policy":"e","dir":"/r","rules":1,"tests":2,"budgets":3,"signer":{"name":"n","key":"k","touch":true},` +
		`"at":"1970-01-01T00:00:00Z","operator":"o","person":"p"},` +
		`"killed":{"at":"1970-01-01T00:00:00Z","reason":"r","person":"p","calls":4},` +
		`"sessions":[{"session":"s-1","agent":"a","uid":5,"at":"1970-01-01T00:00:00Z"}],` +
		`"asked":{"questions":{"a":{"question":{"id":"a","receipt":"r","capability":"c.d","askedAt":"1970-01-01T00:00:00Z","expires":"1970-01-01T00:00:00Z","text":"t","digest":"d","subject":"s","alike":"k"},` +
		`"answers":[` + answered + `],"granted":"1970-01-01T00:00:00Z"}},"denied":{"k":{"question":"a","reason":"w","at":"1970-01-01T00:00:00Z"}},` +
		`"grants":{"g":{"id":"g","question":"a","text":"t","until":"1970-01-01T00:00:00Z","by":` + answered + `}}},` +
		`"hooks":{"digest":"d","userHome":"/h","hooks":6,"at":"1970-01-01T00:00:00Z","operator":"o","person":"p"},` +
		`"wraps":{"runs":[{"id":"w-1","agent":"a","project":"/p","session":"s-1","started":"1970-01-01T00:00:00Z","ended":"1970-01-01T00:00:00Z","exitCode":3,"untold":2,"quarantined":["m"],"quarantine":"/q"}],` +
		`"refused":[{"n":1,"run":"w-1","at":"1970-01-01T00:00:00Z","kind":"call","target":"t","reason":"r","hint":"h"}],"count":1},` +
		`"packs":{"keys":{"k":{"name":"k","key":"k+1+b","at":"1970-01-01T00:00:00Z","operator":"o","person":"p"}},` +
		`"installed":{"n":{"name":"n","version":"2.0.0","digest":"e","dev":true,"at":"1970-01-01T00:00:00Z"}},` +
		`"highest":{"n":{"name":"n","version":"1.0.0","digest":"d","key":"k+1","downgrade":true,"at":"1970-01-01T00:00:00Z","operator":"o","person":"p"}}},` +
		`"profiles":{"profiles":[{"name":"n","digest":"d","description":"e","packs":["a"],"capabilities":["a.b"],"environment":"v","workspaces":["/w"],` +
		`"endpoints":[{"host":"h","port":1,"private":true,"for":["a.*"]}],"secrets":[{"for":["a.b"],"name":"s","from":"f"}],` +
		`"folders":[{"for":["a.b"],"input":"i","path":"/i"}]}],"at":"1970-01-01T00:00:00Z","operator":"o","person":"p"},` +
		`"agents":{"agents":{"n":{"agent":"n","at":"1970-01-01T00:00:00Z","operator":"o","person":"p"}},` +
		`"tokens":{"t":{"id":"t","agent":"n","scope":["a.*"],"issued":"1970-01-01T00:00:00Z","expires":"1970-01-01T00:00:00Z","revoked":"1970-01-01T00:00:00Z","sha256":"h","operator":"o","person":"p"}}}}`
	if list[0].Text != want || list[0].Format != 3 {
		t.Errorf("format %d:\n%s\nwant format 3:\n%s", list[0].Format, list[0].Text, want)
	}
}
