package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/workspace"
)

func inner() *Inner {
	return &Inner{Client: &localapi.Client{Session: "bs-mine"}, Dir: "/src/project"}
}

// TestInnerLetsCallsThrough checks that a call goes on with the agent's session, from its project, and without any
// right that it claims.
func TestInnerLetsCallsThrough(t *testing.T) {
	for dir, want := range map[string]string{"/src/project": "/src/project", "/src/project/sub": "/src/project/sub", "/src/project/../other": "/src/project",
		"/src/projects": "/src/project", "/": "/src/project"} {
		got, err := inner().admitQuery(localapi.Query{Protocol: localapi.Protocol, Verb: "call", Dir: dir, Session: "bs-another", Call: &localapi.CallQuery{Capability: "git.status"}, Operator: localapi.Env,
			Request: json.RawMessage(`{}`), Redact: &localapi.RedactQuery{}})
		if err != nil || got.Dir != want || got.Session != "bs-mine" || got.Operator != "" || got.Request != nil || got.Redact != nil || got.Call == nil {
			t.Errorf("%s: %+v, %v", dir, got, err)
		}
	}
}

func TestInnerRefusesTheRest(t *testing.T) {
	for _, verb := range []string{"apply", "approve", "approvals", "receipts", "receipt", "records", "session", "settings", "stop", "status", "redact", "kill", "wrap.start", "policy.apply", "wraps", "", "CALL"} {
		if _, err := inner().admitQuery(localapi.Query{Protocol: localapi.Protocol, Verb: verb, Dir: "/src/project", Operator: localapi.Terminal}); bailey.KindOf(err) != bailey.Denied || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", verb, err)
		}
	}
	words := localapi.Query{Protocol: localapi.Protocol, Verb: "call", Dir: "/src/project", Call: &localapi.CallQuery{Argv: []string{"wc"}}}
	if _, err := inner().admitQuery(words); bailey.KindOf(err) != bailey.Denied || bailey.HintOf(err) == "" {
		t.Errorf("a tool's own words: %v", err)
	}
}

// FuzzInner checks that a message of an agent passes only if its verb is in innerVerbs, and only in the agent's own
// session and without operator rights.
func FuzzInner(f *testing.F) {
	f.Add([]byte(`{"protocol":5,"verb":"call","dir":"/src/project","call":{"capability":"git.status"},"operator":"env"}`))
	f.Add([]byte(`{"protocol":5,"verb":"mcp","dir":"/","session":"bs-0"}`))
	f.Add([]byte(`{"verb":"stop"}`))
	f.Add([]byte(`{"protocol":5,"verb":"call","dir":"/src/project","call":{"argv":["wc"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseQuery(b)
		if err != nil {
			return
		}
		got, err := inner().admitQuery(q)
		if err != nil {
			return
		}
		carries := got.Verb == "call" || got.Verb == "mcp"
		if !slices.Contains(innerVerbs, got.Verb) || got.Operator != "" || got.Redact != nil || !workspace.Within("/src/project", got.Dir) ||
			carries != (got.Session == "bs-mine") || !carries && got.Session != "" || got.Call != nil && len(got.Call.Argv) > 0 || carries && got.Request != nil {
			t.Errorf("%q became %+v", b, got)
		}
	})
}

// TestWallSessionIsTheAgents checks that a bearer of the agent jail determines the agent, the front end and the
// workspace, regardless of the caller.
func TestWallSessionIsTheAgents(t *testing.T) {
	s := NewSessions(nil, (&issueNotes{}).note)
	bearer, id, err := s.IssueWall(t.Context(), "claude", "/src/project")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil || got != id {
		t.Fatal(got, err)
	}
	if i, ok := s.Wall(id); !ok || i.Agent != "claude" || i.Door != wallDoor || i.Dir != "/src/project" {
		t.Errorf("%+v %v", i, ok)
	}
	own, id, _ := s.Issue(t.Context(), localAgent())
	s.enterSession(t.Context(), own, localAgent())
	if _, ok := s.Wall(id); ok {
		t.Error("a session of the user's is the wall's")
	}
}

// TestJudgedInItsSession checks that the query of a hook in a session is recorded for the agent that the session was
// issued to.
func TestJudgedInItsSession(t *testing.T) {
	s := NewSessions(nil, (&issueNotes{}).note)
	bearer, id, err := s.IssueWall(t.Context(), "claude", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{Config: Config{Sessions: s, Workspaces: workspace.NewWorkspaces(nil, nil), Redaction: NewRedaction(),
		TokenRequired: func() bool { return false }, Begin: func(context.Context, bailey.Call) error { return nil }}}
	from := bailey.Call{Principal: localAgent(), Door: "cli"}
	if _, err := g.openSession(t.Context(), localapi.Query{Verb: "judge", Session: bearer}, &from); err != nil || from.Session.ID != id || from.Principal.Agent != "claude" {
		t.Errorf("%+v %v", from, err)
	}
}
