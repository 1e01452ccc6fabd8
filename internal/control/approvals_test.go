package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

// shownText is a text without secrets.
func shownText(text string) bailey.Shown {
	return bailey.Shown{Text: text, Value: bailey.NewSecret(text)}
}

// fullQuestion returns a question of a gateway that has probe in every field that an agent, a tool or a host can fill.
func fullQuestion(id, probe string, now time.Time) fleet.Asked {
	q := bailey.Question{ID: bailey.ApprovalID(id), Receipt: bailey.ReceiptID("r-" + id),
		Principal: bailey.Principal{Agent: "coder" + probe, Person: "ann" + probe, Organisation: "org" + probe, Roles: []string{"dev" + probe}},
		Session:   bailey.SessionID("s-1" + probe), Call: bailey.CapabilityID("git.push" + probe), Manifest: "0a",
		Impact:   "mutating, externallyReversible" + probe,
		Resource: bailey.Target{Kind: "host" + probe, Name: "db" + probe},
		Inputs:   []bailey.Input{{Name: "message", Shown: shownText(`"fix` + probe + `"`)}, {Name: "to" + probe, Shown: shownText(`"x` + probe + `"`)}},
		Argv:     []bailey.Shown{shownText("git"), shownText("push" + probe)}, Dir: shownText("/w" + probe), Contents: bailey.NotBound,
		Files: []bailey.FrozenFile{{Input: "body", Size: 7, SHA256: bailey.NewSecret("0f")}},
		Preview: bailey.Preview{Argv: []bailey.Shown{shownText("git")},
			Output: shownText(" a" + probe + ".go | 2 +-\n+one" + probe + "\n-two" + probe + "\n")},
		Leases: []bailey.LeaseScope{{Name: "token" + probe, Env: "T", Adapter: "env", Scope: "x", TTL: time.Minute}},
		Binary: shownText("/usr/bin/git"), BinaryDigest: "0b", Cage: "full" + probe, Plan: shownText("0c"), EnvNames: []string{"LANG"},
		Egress: []string{"a.example:443" + probe},
		Rules: []bailey.Rule{{ID: bailey.RuleID("push-asks" + probe), Digest: "0d", Reason: "why" + probe, Role: "sre", Count: 1,
			TTL: time.Minute}},
		Nonce: "00ff", AskedAt: now.UTC(), Expires: now.Add(10 * time.Minute).UTC(), Until: now.Add(time.Hour).UTC()}
	text := approvaltext.Text(q, []byte("key"))
	a := asked(id, text, now)
	a.Agent, a.Person, a.Capability, a.Impact = q.Principal.Agent, q.Principal.Person, q.Call, q.Impact
	a.Rules = []fleet.AskedRule{{ID: string(q.Rules[0].ID), Reason: q.Rules[0].Reason}}
	a.Roles, a.Level, a.Preview = []string{"sre" + probe}, bailey.Level("signed-touch"+probe), probe
	return a
}

// answers is a gateway that answers with a result, and keeps what it was sent.
func answers(got chan<- fleet.Answer, result string, decided func(fleet.Answer)) fleet.Handlers {
	return fleet.Handlers{fleet.ApprovalAnswer: func(_ context.Context, body []byte) ([]byte, error) {
		var a fleet.Answer
		err := json.Unmarshal(body, &a)
		got <- a
		decided(a)
		return []byte(result), err
	}}
}

// TestApprovalPage: the page has the effect, the requester, the rules and both answers, and its text is what an answer
// binds. A denial on it reaches the gateway with its reason, and the next page has the end.
func TestApprovalPage(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	owner.withPasskey()
	member := owner.join(shop, "member@example.com", "member")
	got := make(chan fleet.Answer, 1)
	var g *gateway
	g = f.connectGateway(t, owner.addGateway(shop, "laptop"), t.TempDir(), answers(got, `{"settled":true,"count":1}`,
		func(a fleet.Answer) {
			g.tell(t, fleet.ApprovalDecided, fleet.Decided{ID: a.Question, Reason: "denied by Ann: not today"})
		}))
	question := fullQuestion("a-1", "", f.Now())
	question.Pages = true
	g.tell(t, fleet.ApprovalAsked, question)
	path := "/o/" + shop + "/approvals/a-1"
	f.until(t, "the question is there", func() bool { status, _ := owner.send("GET", path, nil); return status == http.StatusOK })
	page := owner.open(path, http.StatusOK)
	for _, text := range []string{"<h1>git.push</h1>", "<strong>coder</strong> for <strong>ann</strong>", "laptop",
		"Effect: mutating", `<span class="add">&#43;one`, `<span class="cut">-two`, "push-asks</code>: why", "After yes", "After no",
		`data-action="approve"`, `data-digest="` + question.Digest + `"`, `name="reason"`, ">Deny</button>", "SSH key",
		"s-1", "a.example:443", "data-live=\"approvals\""} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
	_, shown, _ := strings.Cut(page, `aria-label="The text that an answer binds">`+"\n")
	shown, _, _ = strings.Cut(shown, "</pre>")
	if shown = unescape(shown); shown != question.Text {
		t.Errorf("the page shows another text than it binds: %q, want %q", shown, question.Text)
	}
	if page := member.open(path, http.StatusOK); strings.Contains(page, `name="reason"`) || !strings.Contains(page, "Only an admin may deny") ||
		!strings.Contains(page, "add a passkey") {
		t.Errorf("a member sees %s", page)
	}
	if resp := member.form(path, url.Values{"reason": {"no"}}); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a member denies: %d", resp.StatusCode)
	}
	if resp := owner.form(path, url.Values{"reason": {strings.Repeat("x", 501)}}); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a long reason: %d", resp.StatusCode)
	}
	if resp := owner.form(path, url.Values{"reason": {"no"}}, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); resp.StatusCode !=
		http.StatusForbidden {
		t.Errorf("from another site: %d", resp.StatusCode)
	}
	resp := owner.form(path, url.Values{"reason": {" not today "}})
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != path {
		t.Errorf("denied: %d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	if a := <-got; a.Grant || a.Reason != "not today" || a.Person != "Ann" {
		t.Errorf("the gateway got %+v", a)
	}
	page = owner.open(path, http.StatusOK)
	if !strings.Contains(page, "denied by Ann: not today") || strings.Contains(page, "data-action=\"approve\"") || strings.Contains(page, ">Deny<") {
		t.Errorf("after the denial: %s", page)
	}
	f.wantRecorded(t, "answer-approval done")
}

// unescape reverses what html/template writes for the characters of a text.
func unescape(text string) string {
	return strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&#43;", "+", "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(text)
}

// TestApprovalRefusals: the page says beforehand if the gateway will refuse a passkey, is away, or has no text that the
// server can arrange. A stranger sees the same as for a question that does not exist.
func TestApprovalRefusals(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	owner.withPasskey()
	away := owner.open("/o/"+shop+"/approvals/"+askQuestion(owner, shop), http.StatusOK)
	for _, text := range []string{"gateway is not connected", "cannot arrange the text"} {
		if !strings.Contains(away, text) {
			t.Errorf("the page lacks %q: %s", text, away)
		}
	}
	g := f.connectGateway(t, owner.addGateway(shop, "laptop"), t.TempDir(), fleet.Handlers{})
	g.tell(t, fleet.ApprovalAsked, fullQuestion("a-1", "", f.Now()))
	path := "/o/" + shop + "/approvals/a-1"
	f.until(t, "the question is there", func() bool { status, _ := owner.send("GET", path, nil); return status == http.StatusOK })
	if page := owner.open(path, http.StatusOK); strings.Contains(page, `data-action="approve"`) ||
		!strings.Contains(page, "refuses passkeys on pages of localhost") || !strings.Contains(page, ">Deny</button>") {
		t.Errorf("the gateway refuses its answer, and the page does not say so: %s", page)
	}
	if resp := owner.form(path, url.Values{}); resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a gateway that knows no answers: %d", resp.StatusCode)
	}
	elsewhere := want[item](owner, "POST", "/api/v1/organisations", object{"name": "Other"}).ID
	stranger := owner.join(elsewhere, "s@example.com", "owner")
	none := stranger.open("/o/o-none/approvals/a-1", http.StatusNotFound)
	if other := stranger.open(path, http.StatusNotFound); other != none {
		t.Errorf("the answers differ: %s and %s", none, other)
	}
	if page := stranger.open("/o/"+elsewhere+"/approvals/a-1", http.StatusNotFound); !strings.Contains(page, "no such question") {
		t.Errorf("a question of another organisation: %s", page)
	}
	ended := signInAgain(t, f, "s@example.com")
	f.advance(4 * 24 * time.Hour)
	if resp := ended.get(f.URL + path); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("an expired session: %d", resp.StatusCode)
	}
}

// TestApprovalList: the list has filters and pages, and both are in the URL.
func TestApprovalList(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	hosts := []store.Host{owner.addGateway(shop, "one"), owner.addGateway(shop, "two")}
	if page := owner.open("/o/"+shop+"/approvals", http.StatusOK); !strings.Contains(page, "Nothing waits for an answer") {
		t.Errorf("the empty list: %s", page)
	}
	for i := range 120 {
		a := asked(fmt.Sprintf("a-%03d", i), "text", f.Now())
		a.Agent, a.Capability = fmt.Sprintf("agent%d", i%2), bailey.CapabilityID(fmt.Sprintf("cap.x%d", i%3))
		f.ask(t, hosts[i%2], a)
		f.advance(time.Millisecond)
	}
	err := f.Store.Change(t.Context(), func(tx *store.Tx) error {
		return f.Store.DecideQuestion(t.Context(), tx, hosts[1].ID, "a-119", store.QuestionGranted, "granted by ann")
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`<th scope="row">`)
	count := func(query string) int {
		t.Helper()
		return len(rows.FindAllString(owner.open("/o/"+shop+"/approvals"+query, http.StatusOK), -1))
	}
	for query, want := range map[string]int{"": 50, "?state=all": 50, "?state=granted": 1, "?state=denied": 0,
		"?agent=agent1&capability=cap.x1": 20, "?host=" + hosts[0].ID + "&agent=agent1": 0, "?agent=none": 0,
		"?capability=cap.x0&state=open": 40} {
		if got := count(query); got != want {
			t.Errorf("%q has %d rows, want %d", query, got, want)
		}
	}
	seen, next := 0, "/o/"+shop+"/approvals?agent=agent0"
	for next != "" {
		page := owner.open(next, http.StatusOK)
		seen += len(rows.FindAllString(page, -1))
		next = ""
		if m := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(page); m != nil {
			next = unescape(m[1])
			if !strings.Contains(next, "agent=agent0") {
				t.Errorf("the next page has other filters: %s", next)
			}
		}
	}
	if seen != 60 {
		t.Errorf("the pages have %d questions, want 60", seen)
	}
	for _, query := range []string{"?state=x", "?next=x", "?next=e30", "?agent=%00", "?capability=" + strings.Repeat("x", 201), "?agent=%ff"} {
		owner.open("/o/"+shop+"/approvals"+query, http.StatusUnprocessableEntity)
	}
}

// ask stores a question of a gateway that is not connected.
func (f *fixture) ask(t *testing.T, h store.Host, a fleet.Asked) {
	t.Helper()
	body, err := json.Marshal(a)
	if err == nil {
		err = f.Store.Change(t.Context(), func(tx *store.Tx) error {
			return f.Store.AskQuestion(t.Context(), tx, h, store.Question{ID: string(a.ID), Asked: a.At, Expires: a.Expires, Body: body,
				Agent: a.Agent, Capability: string(a.Capability)})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// foreignMarkup returns a tag of a page that no template has, or one with a handler or a foreign link, or "". In values the
// templates escape each < and >, also within quotes.
func foreignMarkup(page string) string {
	quoted := regexp.MustCompile(`"[^"]*"|'[^']*'`)
	for _, tag := range regexp.MustCompile(`<[^>]*>`).FindAllString(page, -1) {
		bare := strings.ToLower(quoted.ReplaceAllString(tag, `""`))
		if regexp.MustCompile(`^<(img|svg|b|iframe|object|embed|base|style)\b|\son\w+=|\ssrcdoc=|\sstyle=`).MatchString(bare) ||
			regexp.MustCompile(`(?i)(href|src|action)="(javascript|data):`).MatchString(tag) ||
			strings.HasPrefix(bare, "<script") && !strings.Contains(tag, `src="/static/`) {
			return tag
		}
	}
	return ""
}

// TestAttackQuestionPages: every field of a question is text on each page that shows it.
func TestAttackQuestionPages(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	owner.withPasskey()
	for _, page := range []string{`<p title="x"><img src=x>`, `<p onload="x">`, `<a href="javascript:x">`, `<script>x</script>`} {
		if foreignMarkup(page) == "" {
			t.Errorf("not seen: %s", page)
		}
	}
	want[object](owner, "PATCH", "/api/v1/organisations/"+shop, object{"name": `<img src=x onerror=alert(1)>`})
	probes := []string{`"><script>alert(1)</script>`, `'><img src=x onerror=alert(1)>`, `</pre></textarea><svg onload=alert(1)>`,
		"{{.}}`${1}", "javascript:alert(1)", "\u202e<b>", "</script><script>alert(1)//"}
	h := owner.addGateway(shop, `<svg onload=alert(1)>`)
	for i, probe := range probes {
		for j, a := range []fleet.Asked{fullQuestion(fmt.Sprintf("a-%d", i), probe, f.Now()), asked(fmt.Sprintf("b-%d", i), probe, f.Now())} {
			a.Agent, a.Capability, a.Impact = "x"+probe, bailey.CapabilityID("c"+probe), "i"+probe
			f.ask(t, h, a)
			state := []string{store.QuestionOpen, store.QuestionDenied}[j]
			if err := f.Store.Change(t.Context(), func(tx *store.Tx) error {
				return f.Store.DecideQuestion(t.Context(), tx, h.ID, string(a.ID), state, "reason"+probe)
			}); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"", "/approvals?state=all", "/approvals?state=all&agent=" + url.QueryEscape("x"+probe),
				"/approvals/" + string(a.ID)} {
				page := owner.open("/o/"+shop+path, http.StatusOK)
				if found := foreignMarkup(page); found != "" {
					t.Errorf("%s of %q has %q", path, probe, found)
				}
			}
		}
	}
}
