package mcp

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// TestElicitation checks that a client that shows forms gets the whole question, in both revisions, and that the answer
// of its user counts.
func TestElicitation(t *testing.T) {
	for _, newer := range []bool{false, true} {
		t.Run(map[bool]string{false: "2025-11-25", true: "2026-07-28"}[newer], func(t *testing.T) {
			a := newAsker()
			h := newHost(t, a, time.Minute, says("accept", "yes"), newer)
			if res := callTool(t, h.session, "system_date", nil); res.IsError || first(t, res) != "today" {
				t.Errorf("granted: %s", first(t, res))
			}
			shown := h.asked()
			if a.runs() != 1 || len(shown) != 1 || a.asked != 1 {
				t.Fatalf("ran %d times, asked %d times about %d questions", a.runs(), len(shown), a.asked)
			}
			for _, want := range []string{"tester", "system.date", `date "--utc\u{a}\u{1b}[2J"`, "/src", "readOnly", "dates-ask: somebody looks first", "cal", "| Mo Tu\n", `|  1 \u{1b}[31m2`,
				"not bound", "a-1", askedDigest, "2001-09-09T01:46:40Z"} {
				if !strings.Contains(shown[0].Message, want) {
					t.Errorf("it is not said that %q:\n%s", want, shown[0].Message)
				}
			}
			if head, _, _ := strings.Cut(shown[0].Message, "\n"); head != "message   | go\\u{202e}on" {
				t.Errorf("the message is not first: %q", head)
			}
			if strings.ContainsAny(shown[0].Message, "\x1b\r\u202e") {
				t.Error("something in the question reaches the terminal")
			}
			b, _ := json.Marshal(shown[0].RequestedSchema)
			if !strings.Contains(string(b), `"default":"no"`) || !strings.Contains(string(b), `"required":["a-1"]`) {
				t.Errorf("the form: %s", b)
			}
		})
	}
}

// TestDeclined checks that "decline" and a form with "no" deny the call, and that any other answer leaves the question
// open.
func TestDeclined(t *testing.T) {
	for _, newer := range []bool{false, true} {
		for name, c := range map[string]struct {
			action, word string
			open         bool
		}{
			"decline": {"decline", "", false}, "accept no": {"accept", "no", false}, "cancel": {"cancel", "", true}, "accept nothing": {"accept", "", true},
			"decline yes": {"decline", "yes", false}, "cancel yes": {"cancel", "yes", true},
		} {
			a := newAsker()
			answered := make(chan struct{})
			h := newHost(t, a, time.Hour, func(ctx context.Context, p *sdk.ElicitParams) *sdk.ElicitResult {
				defer close(answered)
				return says(c.action, c.word)(ctx, p)
			}, newer)
			if c.open { // until it is answered elsewhere
				go func() { <-answered; a.settle(true, "elsewhere") }()
			}
			res := callTool(t, h.session, "system_date", nil)
			f := metaOf(t, res)
			if want := map[bool]bailey.Status{true: bailey.OK, false: bailey.Refused}[c.open]; f.Status != want || len(h.asked()) != 1 || len(a.reasons) != 1 {
				t.Errorf("%s (newer %v): %s, asked %d, answered %q", name, newer, f.Status, len(h.asked()), a.reasons)
			}
			if !c.open && !strings.Contains(first(t, res), "declined in the agent's client") {
				t.Errorf("%s: %s", name, first(t, res))
			}
		}
	}
}

// TestNotAsked checks that the client is not asked if a local answer is not sufficient, if the question cannot be shown
// completely, or if the client did not declare support.
func TestNotAsked(t *testing.T) {
	for _, newer := range []bool{false, true} {
		signed := newAsker()
		signed.local = false
		h := newHost(t, signed, 50*time.Millisecond, says("accept", "yes"), newer)
		if f := metaOf(t, callTool(t, h.session, "system_date", nil)); f.Status != bailey.Pending || len(h.asked()) != 0 || !f.Wants.Signed {
			t.Errorf("newer %v: a signature is wanted: %+v, asked %d times", newer, f, len(h.asked()))
		}
		long := newAsker()
		q, _ := long.open(bailey.Call{Session: bailey.Session{ID: "s-1"}, Capability: "system.date"})
		q.Argv = append(q.Argv, bailey.Shown{Text: strings.Repeat("x", maxWords)})
		long.question = &q
		h = newHost(t, long, 50*time.Millisecond, says("accept", "yes"), newer)
		if f := metaOf(t, callTool(t, h.session, "system_date", nil)); f.Status != bailey.Pending || len(h.asked()) != 0 {
			t.Errorf("newer %v: it is too long to be shown: %+v, asked %d times", newer, f, len(h.asked()))
		}
		mute := newAsker()
		h = newHost(t, mute, 50*time.Millisecond, nil, newer)
		if f := metaOf(t, callTool(t, h.session, "system_date", nil)); f.Status != bailey.Pending {
			t.Errorf("newer %v: it cannot be asked: %+v", newer, f)
		}
	}
}

// TestSettledElsewhere checks that the form is withdrawn if the question is answered elsewhere.
func TestSettledElsewhere(t *testing.T) {
	a := newAsker()
	withdrawn := make(chan struct{})
	h := newHost(t, a, time.Minute, func(ctx context.Context, _ *sdk.ElicitParams) *sdk.ElicitResult {
		a.settle(true, "")
		<-ctx.Done()
		close(withdrawn)
		return &sdk.ElicitResult{Action: "cancel"}
	}, false)
	if res := callTool(t, h.session, "system_date", nil); res.IsError || a.runs() != 1 {
		t.Errorf("granted elsewhere: %s", first(t, res))
	}
	select {
	case <-withdrawn:
	case <-time.After(time.Minute):
		t.Error("the form still stands")
	}
}

// TestAnswerOfAnother checks that the answer to one question does not count for another, even if the requests have the
// same id, for example after a restart of the gateway.
func TestAnswerOfAnother(t *testing.T) {
	a := newAsker()
	h := newHost(t, a, 300*time.Millisecond, func(context.Context, *sdk.ElicitParams) *sdk.ElicitResult {
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"a-0": "yes"}}
	}, false)
	if f := metaOf(t, callTool(t, h.session, "system_date", nil)); f.Status != bailey.Pending || a.runs() != 0 {
		t.Errorf("%+v", f)
	}
}

// raw is a client of the newest revision, line by line.
func raw(t *testing.T, g Gate) *wire {
	near, far := net.Pipe()
	cfg := config(g)
	cfg.Patience = 50 * time.Millisecond
	done := make(chan struct{})
	go func() { Serve(context.Background(), cfg, far); close(done) }()
	t.Cleanup(func() { near.Close(); <-done })
	return listen(t, near)
}

const newMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

// TestInputRequired checks that the state in a repeated call is valid only for that call and for the text that was
// shown.
func TestInputRequired(t *testing.T) {
	a := newAsker()
	w := raw(t, a)
	call := func(id, name, more string) string {
		return w.ask(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{"message":"m"},` + newMeta + more + `}}`)
	}
	var asked struct {
		Result struct {
			ResultType    string
			RequestState  string
			Content       json.RawMessage
			InputRequests map[string]struct {
				Method string
				Params struct{ Mode, Message string }
			}
			Meta map[string]struct{ ApprovalID string } `json:"_meta"`
		}
	}
	got := call("1", "system_date", "")
	if err := json.Unmarshal([]byte(got), &asked); err != nil {
		t.Fatal(err)
	}
	r := asked.Result
	if r.ResultType != "input_required" || r.InputRequests[inputKey].Method != "elicitation/create" || r.InputRequests[inputKey].Params.Mode != "form" || r.Content != nil {
		t.Fatalf("%s", got)
	}
	yes := `,"inputResponses":{"approval":{"action":"accept","content":{"a-1":"yes"}}}`
	for name, c := range map[string]struct{ tool, more string }{
		"another call":   {"system_echo", yes + `,"requestState":"` + r.RequestState + `"`},
		"no state":       {"system_date", yes},
		"no state of us": {"system_date", yes + `,"requestState":"a-1"`},
		"a state cut":    {"system_date", yes + `,"requestState":"` + r.RequestState[:len(r.RequestState)-1] + `"`},
	} {
		if got := call("2", c.tool, c.more); !strings.Contains(got, "-32602") || a.granted || a.runs() != 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
	other := strings.Replace(r.RequestState, askedDigest, strings.Repeat("0", 64), 1)
	if got := call("3", "system_date", yes+`,"requestState":"`+other+`"`); !strings.Contains(got, `"status":"pending"`) || a.granted {
		t.Errorf("a text that was not shown: %s", got)
	}
	foreign := strings.Replace(r.RequestState, "a-1.", "a-9.", 1)
	if got := call("4", "system_date", `,"inputResponses":{"approval":{"action":"accept","content":{"a-9":"yes"}}},"requestState":"`+foreign+`"`); !strings.Contains(got, `"status":"pending"`) || a.granted {
		t.Errorf("a question of others: %s", got)
	}
	if got := call("5", "system_date", `,"inputResponses":{"approval":{"action":"accept","content":{"a-1":"yes"}},"x":{"roots":[]}},"requestState":"`+r.RequestState+`"`); !strings.Contains(got, "today") ||
		!strings.Contains(got, `"resultType":"complete"`) || a.runs() != 1 {
		t.Errorf("answered: %s", got)
	}
}

// TestStrayAnswers checks that an answer without a request is ignored and that the connection stays open.
func TestStrayAnswers(t *testing.T) {
	a := newAsker()
	w := raw(t, a)
	w.hello("2025-06-18")
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"a-1":"yes"}}}`, `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"2.0","result":{}}`, `{"jsonrpc":"2.0","id":"hello","error":{"code":1,"message":"m"}}`,
	} {
		w.send(line)
	}
	if got := w.ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); !strings.Contains(got, `"id":2`) {
		t.Error(got)
	}
}

func FuzzState(f *testing.F) {
	f.Add("a-1." + askedDigest + "." + askedDigest)
	f.Add("a-1..")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if st, err := parseState(s); err == nil && st.String() != s {
			t.Errorf("%q is read as %q", s, st)
		}
	})
}

// FuzzWords checks that no text of a call can begin a line of the question or control a terminal.
func FuzzWords(f *testing.F) {
	f.Add("x\nrule  y", "\x1b[2J\u202e")
	f.Add("\"\\", "\xff\u00a0\u200b")
	f.Fuzz(func(t *testing.T, arg, reason string) {
		plain, _ := questionText(bailey.Question{Argv: []bailey.Shown{{Text: "x"}}, Rules: []bailey.Rule{{Reason: "x"}}})
		text, _ := questionText(bailey.Question{Argv: []bailey.Shown{{Text: arg}}, Rules: []bailey.Rule{{Reason: reason}}, Dir: bailey.Shown{Text: arg}, Impact: reason})
		if strings.Count(text, "\n") != strings.Count(plain, "\n") || strings.ContainsAny(text, "\x1b\r\u202e\u200b\x00") {
			t.Errorf("%q", text)
		}
	})
}

// TestNotShownIsNotAnswered checks that a client that invents a requestState cannot grant a question that it would not
// have been asked.
func TestNotShownIsNotAnswered(t *testing.T) {
	a := newAsker()
	q, _ := a.open(bailey.Call{Session: bailey.Session{ID: "s-1"}, Capability: "system.date"})
	q.Argv = append(q.Argv, bailey.Shown{Text: strings.Repeat("x", maxWords)})
	a.question = &q
	w := raw(t, a)
	made := requestState{q.ID, askedDigest, callDigest(bailey.Call{Capability: "system.date", Input: map[string]any{"message": "m"}})}
	call := func(id, word string) string {
		return w.ask(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"system_date","arguments":{"message":"m"},` + newMeta +
			`,"inputResponses":{"approval":{"action":"accept","content":{"a-1":"` + word + `"}}},"requestState":"` + made.String() + `"}}`)
	}
	if got := call("1", "yes"); !strings.Contains(got, `"status":"pending"`) || a.granted || a.runs() != 0 {
		t.Errorf("granted unseen: %s", got)
	}
	if got := call("2", "no"); !strings.Contains(got, "declined in the agent's client") || a.runs() != 0 {
		t.Errorf("denied: %s", got)
	}
}

// An answer counts for the session only if the form offers it.
func TestAnsweredForSession(t *testing.T) {
	for _, newer := range []bool{false, true} {
		for _, stands := range []bool{false, true} {
			a := newAsker()
			a.stands = stands
			answered := make(chan struct{})
			h := newHost(t, a, time.Hour, func(ctx context.Context, p *sdk.ElicitParams) *sdk.ElicitResult {
				defer close(answered)
				if form, err := json.Marshal(p.RequestedSchema); err != nil || strings.Contains(string(form), `"session"`) != stands {
					t.Errorf("offers %s, %v", form, err)
				}
				if !stands { // this client checks the answer against the form
					return says("cancel", "")(ctx, p)
				}
				return says("accept", "session")(ctx, p)
			}, newer)
			if !stands {
				go func() { <-answered; a.settle(false, "elsewhere") }()
			}
			res := callTool(t, h.session, "system_date", nil)
			if ok := metaOf(t, res).Status == bailey.OK; ok != stands || a.session != stands {
				t.Errorf("newer %v, offered %v: ran %v, for the session %v", newer, stands, ok, a.session)
			}
		}
	}
}
