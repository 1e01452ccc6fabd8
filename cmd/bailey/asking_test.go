//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
	"bailey/internal/ktest"
	bmcp "bailey/internal/mcp"
	"bailey/internal/settings"
)

// elicited is a yard whose policy requires approval for system.date, with an MCP client that uses bailey serve.
type elicited struct {
	*yard
	session  *mcp.ClientSession
	opts     *mcp.ClientOptions
	revision string

	mu    sync.Mutex
	shown []*mcp.ElicitParams
}

// In revision older of MCP, the server sends the question to the client. In newer, the client repeats its call.
const older, newer = "2025-11-25", "2026-07-28"

// newAsking connects a client that answers questions with say. If say is nil, the client cannot be asked.
func newAsking(t *testing.T, revision, wants, text string, say func(*mcp.ElicitParams) *mcp.ElicitResult) *elicited {
	t.Helper()
	y := &elicited{yard: newYard(t)}
	if say != nil && text == "" {
		text = `agents: {asking: ["a client"]}`
	}
	y.env = append(y.env, "BAILEY_OPERATOR=1")
	rules := filepath.Join(filepath.Dir(y.repo), "rules")
	y.must(y.program, "policy", "init", rules)
	ktest.Write(t, filepath.Join(rules, "dates.cedar"), fmt.Sprintf(`@id("dates-ask") @reason("somebody looks first") @approval("%s")
forbid (principal, action == Action::"system.date", resource)
unless { context.approvals.contains("dates-ask") };`, wants))
	if text != "" {
		y.must("mkdir", "-p", "-m", "700", string(y.home))
		ktest.Write(t, filepath.Join(string(y.home), settings.FileName), text)
		y.must(y.program, "init", "--apply", "--yes")
	}
	y.must(y.program, "policy", "apply", rules, "--yes")
	opts := &mcp.ClientOptions{}
	if say != nil {
		opts.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			y.mu.Lock()
			y.shown = append(y.shown, r.Params)
			y.mu.Unlock()
			return say(r.Params), nil
		}
	}
	y.opts, y.revision = opts, revision
	y.connect("a client")
	return y
}

// connect starts bailey serve for a client with this name.
func (y *elicited) connect(name string) {
	y.t.Helper()
	cmd := y.command(y.program, "serve")
	cmd.Dir = y.repo
	y.over(name, &mcp.CommandTransport{Command: cmd})
}

func (y *elicited) over(name string, way mcp.Transport) {
	y.t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, y.opts).Connect(y.t.Context(), way, &mcp.ClientSessionOptions{ProtocolVersion: y.revision})
	if err != nil {
		y.t.Fatal(err)
	}
	y.t.Cleanup(func() { session.Close() })
	y.session = session
}

// outcome is the part of a call's result that a program reads.
type outcome struct {
	Status     bailey.Status
	ApprovalID string
	CallAgain  bool
}

func (y *elicited) date(ctx context.Context, patience time.Duration) (outcome, error) {
	return callTool(ctx, y.session, "system_date", nil, patience)
}

// callTool makes a call over MCP.
func callTool(ctx context.Context, s *mcp.ClientSession, name string, args map[string]any, patience time.Duration) (outcome, error) {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args, Meta: mcp.Meta{bmcp.PatienceKey: patience.Milliseconds()}})
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	b, err := json.Marshal(res.Meta[bmcp.ResultKey])
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	return o, err
}

// wants calls system.date and checks the status of the result.
func (y *elicited) wants(ctx context.Context, patience time.Duration, status bailey.Status) outcome {
	y.t.Helper()
	o, err := y.date(ctx, patience)
	if err != nil || o.Status != status {
		y.t.Fatalf("%+v, %v; want %s", o, err, status)
	}
	return o
}

// TestParkedOverAKilledGateway kills the gateway while a call of an MCP client waits. In the same session, through the
// same bailey serve, the question must still be open. After it is granted, the call must run exactly once.
func TestParkedOverAKilledGateway(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newAsking(t, older, "count=1,ttl=10m", "", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := y.wants(ctx, 0, bailey.Pending)
	if !first.CallAgain || first.ApprovalID == "" {
		t.Errorf("%+v", first)
	}
	cut := make(chan error, 1)
	go func() {
		_, err := y.date(ctx, time.Minute)
		cut <- err
	}()
	y.await("the call to wait", func() bool { return strings.Contains(y.must(y.program, "approvals", "list", "--json"), `"waits":true`) })
	y.must("kill", "-9", strconv.Itoa(y.gateway()))
	if err := <-cut; err == nil || !strings.Contains(err.Error(), "the gateway stopped") {
		t.Errorf("the call that waited: %v", err)
	}
	if again := y.wants(ctx, 0, bailey.Pending); again.ApprovalID != first.ApprovalID {
		t.Errorf("behind the new gateway %s is asked, before %s", again.ApprovalID, first.ApprovalID)
	}
	y.must(y.program, "approve", first.ApprovalID, "--yes")
	y.must("kill", "-9", strconv.Itoa(y.gateway()))
	var ran outcome
	var err error
	for range 3 { // the relay may notice only with this call that the gateway ended
		if ran, err = y.date(ctx, 0); err == nil {
			break
		}
	}
	if err != nil || ran.Status != bailey.OK {
		t.Errorf("granted: %+v, %v", ran, err)
	}
	if o := y.wants(ctx, 0, bailey.Pending); o.ApprovalID == first.ApprovalID {
		t.Error("one grant ran two calls")
	}
}

// TestOthersCannotTakeItUp checks that another session cannot use the approval of a session.
func TestOthersCannotTakeItUp(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newAsking(t, older, "count=1,ttl=10m", "", nil)
	o := y.wants(t.Context(), 0, bailey.Pending)
	y.must(y.program, "approve", o.ApprovalID, "--yes")
	if out, err := y.command(y.program, "run", "system.date", "--json").Output(); err == nil || !strings.Contains(string(out), `"approvalRequired":true`) {
		t.Errorf("a call of no session: %s", out)
	}
	y.wants(t.Context(), 0, bailey.OK)
}

// TestAskedOncePerSession checks that an answer to a rule with for=session holds for the session, and for no other one.
func TestAskedOncePerSession(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newAsking(t, older, "count=1,ttl=10m,for=session", "", nil)
	o := y.wants(t.Context(), 0, bailey.Pending)
	if text := y.must(y.program, "approvals", "show", o.ApprovalID); !strings.Contains(text, "holds     until the session ends: for every call about which only dates-ask asks") {
		t.Errorf("the question does not say how long an approval lasts:\n%s", text)
	}
	y.must(y.program, "approve", o.ApprovalID, "--yes")
	for range 3 {
		y.wants(t.Context(), 0, bailey.OK)
	}
	if log := y.must("sh", "-c", "cat "+filepath.Join(y.home.Ledger(), "00000001.jsonl")); strings.Count(log, `"kind":"use"`) != 3 {
		t.Errorf("not every use is recorded:\n%s", log)
	}
	y.session.Close()
	y.connect("a client")
	if o := y.wants(t.Context(), 0, bailey.Pending); o.ApprovalID == "" {
		t.Errorf("%+v", o)
	}
}

// yes grants the question.
func yes(p *mcp.ElicitParams) *mcp.ElicitResult {
	b, _ := json.Marshal(p.RequestedSchema)
	var s struct{ Required []string }
	json.Unmarshal(b, &s)
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{s.Required[0]: "yes"}}
}

// TestClientGrants checks that a client that shows forms can grant its call if an unsigned answer is enough, and that
// the ledger names the client.
func TestClientGrants(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for _, revision := range []string{older, newer} {
		y := newAsking(t, revision, "count=1,ttl=10m", "", yes)
		y.wants(t.Context(), time.Minute, bailey.OK)
		if len(y.shown) != 1 || !strings.Contains(y.shown[0].Message, "system.date") {
			t.Errorf("%s: shown %d questions", revision, len(y.shown))
		}
		log := y.must("sh", "-c", "grep '\"kind\":\"answer\"' "+filepath.Join(y.home.Ledger(), "00000001.jsonl"))
		if !strings.Contains(log, `"level":"local"`) || !strings.Contains(log, `"operator":"client"`) || !strings.Contains(log, `"name":"the client a client/1"`) ||
			!strings.Contains(log, "granted by the client a client/1") {
			t.Errorf("%s: the ledger: %s", revision, log)
		}
	}
}

// TestClientDenies checks that a denial by the client counts and is remembered: the client is not asked again.
func TestClientDenies(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newAsking(t, older, "count=1,ttl=10m", "", func(*mcp.ElicitParams) *mcp.ElicitResult { return &mcp.ElicitResult{Action: "decline"} })
	y.wants(t.Context(), time.Minute, bailey.Refused)
	y.wants(t.Context(), time.Minute, bailey.Refused)
	if len(y.shown) != 1 {
		t.Errorf("asked %d times", len(y.shown))
	}
}

// TestClientIsNotEnough checks that the client is not asked if rules or settings require more than an unsigned answer.
func TestClientIsNotEnough(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for name, c := range map[string]struct{ wants, settings string }{
		"a role":    {"role=sre,count=1,ttl=10m", ""},
		"two":       {"count=2,ttl=10m", ""},
		"a level":   {"level=signed-software,count=1,ttl=10m", ""},
		"approvers": {"count=1,ttl=10m", "agents: {asking: [\"a client\"]}\napprovers:\n  - name: ada\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIME6FYVSXA2mOHHbOb8smVMhKf7/ZYJcRoXhZtE86LkM\n"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newAsking(t, older, c.wants, c.settings, yes)
			o := y.wants(t.Context(), 300*time.Millisecond, bailey.Pending)
			if len(y.shown) != 0 {
				t.Errorf("the client was asked: %s", y.shown[0].Message)
			}
			if out, err := y.command(y.program, "approve", o.ApprovalID, "--yes").CombinedOutput(); err == nil {
				t.Errorf("an unsigned answer counts: %s", out)
			}
		})
	}
}

// TestAttackAnswersItself answers the question about a call as the agent that made it: its program claims to show
// forms. If the settings do not name the client, or it uses a token or HTTP, or it runs in the agent jail, it must not
// be asked, and its answer must not count.
func TestAttackAnswersItself(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	const named = `agents: {asking: ["a client"]}`
	token := func(y *elicited) string {
		var t struct{ Bearer string }
		if err := json.Unmarshal([]byte(y.must(y.program, "agent", "add", "other", "--yes", "--json")), &t); err != nil {
			y.t.Fatal(err)
		}
		return t.Bearer
	}
	for name, c := range map[string]struct {
		settings string
		connect  func(*elicited)
	}{
		"new home":     {"agents: {listed: 40}", func(y *elicited) { y.connect("a client") }},
		"another name": {named, func(y *elicited) { y.connect("a client of another name") }},
		"token":        {named, func(y *elicited) { y.env = append(y.env, "BAILEY_TOKEN="+token(y)); y.connect("a client") }},
		"jail": {named, func(y *elicited) {
			cmd := y.command(y.program, "wrap", "--yes", "--", "bailey", "serve")
			cmd.Dir = y.repo
			y.over("a client", &mcp.CommandTransport{Command: cmd})
		}},
		"http": {named, func(y *elicited) {
			door := y.command(y.program, "serve", "--http", "127.0.0.1:0", "--json")
			out, err := door.StdoutPipe()
			if err == nil {
				err = door.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { door.Process.Signal(syscall.SIGTERM); door.Wait() })
			var served struct{ URL string }
			if line, err := bufio.NewReader(out).ReadBytes('\n'); err != nil || json.Unmarshal(line, &served) != nil {
				t.Fatalf("%s, %v", line, err)
			}
			y.over("a client", &mcp.StreamableClientTransport{Endpoint: served.URL, DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: shows(token(y))}})
		}},
	} {
		for _, revision := range []string{older, newer} {
			t.Run(name+"/"+revision, func(t *testing.T) {
				y := newAsking(t, revision, "count=1,ttl=10m", c.settings, yes)
				c.connect(y)
				y.wants(t.Context(), 300*time.Millisecond, bailey.Pending)
				y.forged()
				if len(y.shown) != 0 {
					t.Errorf("the client was asked: %s", y.shown[0].Message)
				}
			})
		}
	}
}

// shows is an HTTP transport that sends a bearer token with each request.
type shows string

func (s shows) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(s))
	return http.DefaultTransport.RoundTrip(r)
}

// forged answers the open question although the client was not asked, as clients of the newer revision can do. The call
// must stay pending.
func (y *elicited) forged() {
	y.t.Helper()
	if y.revision != newer {
		return
	}
	var list struct{ Approvals []struct{ ID, Digest string } }
	if err := json.Unmarshal([]byte(y.must(y.program, "approvals", "list", "--json")), &list); err != nil || len(list.Approvals) != 1 {
		y.t.Fatalf("%v, %+v", err, list)
	}
	q := list.Approvals[0]
	sum := sha256.Sum256([]byte(`["system.date",{}]`))
	for _, word := range []string{"yes", "no"} {
		res, err := y.session.CallTool(y.t.Context(), &mcp.CallToolParams{Name: "system_date", Arguments: map[string]any{}, Meta: mcp.Meta{bmcp.PatienceKey: 0},
			RequestState:   q.ID + "." + q.Digest + "." + hex.EncodeToString(sum[:]),
			InputResponses: mcp.InputResponseMap{"approval": &mcp.ElicitResult{Action: "accept", Content: map[string]any{q.ID: word}}}})
		if err != nil {
			y.t.Fatal(err)
		}
		if b, _ := json.Marshal(res.Meta[bmcp.ResultKey]); !strings.Contains(string(b), `"status":"pending"`) {
			y.t.Errorf("%s was taken for an answer: %s", word, b)
		}
	}
}
