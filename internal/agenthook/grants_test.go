package agenthook

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
)

// grantYard is a yard whose grants are recorded in kinds.
func grantYard(t *testing.T) (y *yard, kinds *[]string) {
	y, kinds = newYard(t), &[]string{}
	y.Grants = NewGrants(func(_ context.Context, kind string, _ any) error {
		*kinds = append(*kinds, kind)
		return y.fail
	})
	return y, kinds
}

func (y *yard) inSession(session, tool, key, value string) Verdict {
	return y.Judge(context.Background(), bailey.Call{Principal: bailey.Principal{Agent: "a"}},
		Event{Tool: tool, Dir: y.dir, Session: session, Input: map[string]string{key: value}})
}

// A grant covers the same use in the same session, and ends with it.
func TestSessionGrants(t *testing.T) {
	for _, c := range []struct {
		tool, key, value string
		same, others     []string
	}{
		{"Bash", "command", "./x -v", []string{"./x -v", "./x  '-v'", "./x -v | head -3"}, []string{"./x", "./x -v; ./y", "cd sub && ./x -v", "A=1 ./x -v", "sudo ./x -v"}},
		{"WebFetch", "url", "https://example.com/a", []string{"https://example.com/b", "https://EXAMPLE.com/"}, []string{"https://example.com:8443/", "http://example.com/", "https://www.example.com/", "", "x"}},
		{"WebSearch", "query", "x", []string{"y"}, nil},
		{"mcp__other__write", "", "", []string{""}, nil},
	} {
		y, kinds := grantYard(t)
		v := y.inSession("s", c.tool, c.key, c.value)
		if v.Effect != bailey.Ask || v.Question == "" || !strings.Contains(v.Reason, "bailey approve --session "+string(v.Question)) {
			t.Fatalf("%s: %+v", c.tool, v)
		}
		if _, err := y.Grants.Give(t.Context(), v.Question, "other policy", "ada", "tty"); !errors.Is(err, bailey.Conflict) {
			t.Errorf("under another policy: %v", err)
		}
		g, err := y.Grants.Give(t.Context(), v.Question, "", "ada", "tty")
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range c.same {
			if v := y.inSession("s", c.tool, c.key, value); v.Effect != bailey.Allow {
				t.Errorf("%s %s: %+v", c.tool, value, v)
			}
		}
		for _, value := range c.others {
			if v := y.inSession("s", c.tool, c.key, value); v.Effect == bailey.Allow {
				t.Errorf("%s %s: %+v", c.tool, value, v)
			}
		}
		if v := y.inSession("t", c.tool, c.key, c.value); v.Effect != bailey.Ask {
			t.Errorf("another session: %+v", v)
		}
		if !slices.Contains(*kinds, UseEvent) || len(y.Grants.List("")) != 1 || y.Grants.List("")[0].ID != g.ID {
			t.Errorf("%v, %v", *kinds, y.Grants.List(""))
		}
		if err := y.Grants.EndSession(t.Context(), "t", "it ended"); err != nil || len(y.Grants.List("")) != 1 {
			t.Errorf("the end of another session: %v", err)
		}
		if err := y.Grants.EndSession(t.Context(), "s", "it ended"); err != nil || len(y.Grants.List("")) != 0 {
			t.Errorf("the end of the session: %v", err)
		}
		if v := y.inSession("s", c.tool, c.key, c.value); v.Effect != bailey.Ask {
			t.Errorf("after the end: %+v", v)
		}
	}
}

// Some questions have no answer for a session.
func TestSessionGrantsRefused(t *testing.T) {
	y, _ := grantYard(t)
	for _, c := range [][3]string{
		{"WebFetch", "url", ""}, {"WebFetch", "url", "no address"}, {"WebFetch", "url", "http://example.com/"}, {"WebFetch", "url", "https://u:p@example.com/"},
		{"Bash", "command", "./x $y"}, {"Bash", "command", "./x && ./y $z"}, {"Bash", "command", "for i in a; do ./x; done"},
	} {
		if v := y.inSession("s", c[0], c[1], c[2]); v.Effect != bailey.Ask || v.Question != "" || strings.Contains(v.Reason, "--session") {
			t.Errorf("%v: %+v", c, v)
		}
	}
	if v := y.inSession("", "Bash", "command", "./x"); v.Question != "" {
		t.Errorf("without a session: %+v", v)
	}
	for _, r := range []bailey.Rule{{Count: 2}, {Role: "sre"}, {Level: bailey.SignedTouch}} {
		if id := y.Grants.record(Asked{Session: "s", Calls: []AskedCall{{Rules: []bailey.Rule{r}}}}); id != "" {
			t.Errorf("%+v can be answered without a signature", r)
		}
	}
	v := y.inSession("s", "Bash", "command", "./x")
	if err := y.Grants.EndSession(t.Context(), "", "everything is stopped"); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Grants.Give(t.Context(), v.Question, "", "ada", "tty"); !errors.Is(err, bailey.NotFound) {
		t.Errorf("after the session: %v", err)
	}
}

// What cannot be recorded grants nothing; an end that cannot be recorded is an end.
func TestSessionGrantsWithoutLedger(t *testing.T) {
	y, _ := grantYard(t)
	v := y.inSession("s", "Bash", "command", "./x")
	fail := bailey.Unavailable.New("the ledger is full", "")
	y.Grants.note = func(context.Context, string, any) error { return fail }
	if _, err := y.Grants.Give(t.Context(), v.Question, "", "ada", "tty"); err == nil || len(y.Grants.List("")) != 0 {
		t.Errorf("given: %v", err)
	}
	y.Grants.note = func(context.Context, string, any) error { return nil }
	if _, err := y.Grants.Give(t.Context(), v.Question, "", "ada", "tty"); err != nil {
		t.Fatal(err)
	}
	y.Grants.note = func(context.Context, string, any) error { return fail }
	if v := y.inSession("s", "Bash", "command", "./x"); v.Effect != bailey.Deny {
		t.Errorf("used: %+v", v)
	}
	if err := y.Grants.EndSession(t.Context(), "s", "x"); err == nil || len(y.Grants.List("")) != 0 {
		t.Errorf("ended: %v", err)
	}
	y.Grants.note = func(context.Context, string, any) error { return nil }
	v = y.inSession("s", "Bash", "command", "./x")
	y.Grants.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if _, err := y.Grants.Give(t.Context(), v.Question, "", "ada", "tty"); !errors.Is(err, bailey.NotFound) {
		t.Errorf("a question of yesterday: %v", err)
	}
}
