package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/console"
	"bailey/internal/fleet"
	"bailey/internal/ktest"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
)

// probe is in every text that an agent or a host can choose.
const probe = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`

// callAll records a call with a text in every field.
func (b *book) callAll(session, text string, change func(*bailey.Intent, *bailey.Outcome)) {
	b.t.Helper()
	id := bailey.NewReceiptID()
	input, _ := json.Marshal(map[string]string{"message": text})
	now := time.Now().UTC()
	in := bailey.Intent{Receipt: id, Capability: "git.status", Agent: "agent " + text, Person: "ann " + text, Host: "castle",
		Session: bailey.SessionID(session), Door: "door " + text, Client: text, Dir: "/d/" + text, Input: input, StartedAt: now}
	code := 0
	out := bailey.Outcome{Receipt: id, Status: bailey.OK, Decision: "deny", Reason: "because " + text, EndedAt: now.Add(time.Second),
		Rules: []bailey.Rule{{ID: bailey.RuleID("rule " + text), Reason: text, Source: text}}, Argv: []string{"git", text},
		Paths: []string{text}, Leases: []string{text}, Reaches: []string{text}, Profile: text, ExitCode: &code, RanMillis: 5,
		Approval: bailey.ApprovalID(text), Standing: []bailey.GrantID{bailey.GrantID(text)}, PolicyDigest: text,
		Hooks: []bailey.AskedHook{{Event: text, Program: text, Effect: text, Reason: text}},
		Steps: []bailey.StepDone{{Step: text}},
		Cage: &bailey.Cage{Kind: "full", Enforced: true, Layers: []string{"seccomp", text}, Absent: []string{text}, Lesser: text,
			Binary: text, BinaryDigest: text, Machine: &bailey.Machine{Sandbox: text, Image: text}},
		Model: &bailey.ModelUse{Model: text, InputTokens: 7, OutputTokens: 3, MicroUSD: 1234567, Tools: []string{text}, PromptBytes: 99}}
	if change != nil {
		change(&in, &out)
	}
	seal, err := b.log.Open(b.t.Context(), in)
	if err == nil {
		err = seal(out)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// sendAll sends the ledger of a book to a server, as a new gateway of an organisation.
func (b *book) sendAll(c *client, shop, name string) (host string, key audit.Key) {
	b.t.Helper()
	host, token := addGateway(c, shop, name)
	r := b.registration()
	w, _ := c.f.register(b.t, token, fleet.Register{Queue: fleet.NewID(), Ledger: r})
	w.say(&fleet.Frame{Receipts: b.after(0)})
	if got := w.hear().Cosigned; got == nil || got.Size == 0 || got.Forked {
		b.t.Fatalf("%+v", got)
	}
	return host, mustKey(b.t, r.PublicKey)
}

// linkIn returns the first link of a page to a path that matches.
func linkIn(t *testing.T, page, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(`href="(` + pattern + `)"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no link to %s in %s", pattern, page)
	}
	return html.UnescapeString(m[1])
}

// TestReceiptPages: lists, a receipt, a session and their files hold what the ledger has, with every text escaped; the
// files verify offline, and no other organisation sees anything.
func TestReceiptPages(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	f := startServer(t)
	witness := f.openWitness(t)
	owner, shop := f.setUp(t)
	b := newBook(t)
	for range 150 { // more than one stored subtree
		b.call("filler")
	}
	b.callAll("s-"+probe, probe, nil)
	host, key := b.sendAll(owner, shop, "laptop")
	base := "/o/" + shop
	list := owner.open(base+"/receipts?text="+url.QueryEscape("ONERROR"), http.StatusOK)
	page := owner.open(linkIn(t, list, base+`/receipts/`+host+`/\d+`), http.StatusOK)
	sessions := owner.open(base+"/sessions", http.StatusOK)
	session := owner.open(linkIn(t, sessions, base+`/sessions/s-[^"]*script[^"]*`), http.StatusOK)
	for name, text := range map[string]string{"the list": list, "the receipt": page, "the sessions": sessions, "the session": session} {
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img") || strings.Contains(text, `"'>`) {
			t.Errorf("%s has a text that is not escaped: %s", name, text)
		}
		if !strings.Contains(text, "&lt;script&gt;alert(1)") {
			t.Errorf("%s lacks the texts: %s", name, text)
		}
	}
	for text, in := range map[string]string{"$1.2345": page, "seccomp": session, "Prompt of 99 bytes": session, ">deny<": page,
		"7 tokens in": session, "Next page": owner.open(base+"/receipts", http.StatusOK), "No receipt matches": owner.open(base+"/receipts?agent=x", http.StatusOK)} {
		if !strings.Contains(in, text) {
			t.Errorf("a page lacks %q: %s", text, in)
		}
	}
	checkFiles(t, owner, page, session, base, audit.Trust{Keys: []audit.Key{key}, Witnesses: []audit.Key{witness}, Quorum: 1})
	checkRoles(t, owner, shop, host)
	checkScript(t, page)
	checkInBrowser(t, page)
}

// checkInBrowser opens the page in Chromium, as it is and with changed bytes.
func checkInBrowser(t *testing.T, page string) {
	t.Helper()
	chromium, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		t.Log("chromium-headless-shell is missing: the page is not opened in a browser")
		return
	}
	pages := map[string]string{"/verified": page,
		"/changed": strings.Replace(page, "&#34;outcome&#34;:&#34;ok&#34;", "&#34;outcome&#34;:&#34;no&#34;", 1),
		"/shown":   strings.Replace(page, `data-proof-field="outcome.decision">deny`, `data-proof-field="outcome.decision">allow`, 1)}
	mux := http.NewServeMux()
	mux.Handle("/static/", console.Static())
	for path, text := range pages {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'")
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, text)
		})
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	for path, want := range map[string]string{"/verified": "Verified in this browser", "/changed": "Not verified", "/shown": "Not verified"} {
		cmd := exec.CommandContext(t.Context(), chromium, "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
			"--virtual-time-budget=10000", "--dump-dom", server.URL+path)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(path, err)
		}
		state := regexp.MustCompile(`(?s)<p data-proof-state="".*?</ol>`).FindString(string(out))
		if !strings.Contains(state, want) || path != "/verified" && !strings.Contains(state, "✗ Failed") {
			t.Errorf("%s: %s", path, state)
		}
	}
}

// checkFiles verifies the downloads.
func checkFiles(t *testing.T, c *client, page, session, base string, trust audit.Trust) {
	t.Helper()
	receipt := c.open(linkIn(t, page, base+`/receipts/[^"]*/file`), http.StatusOK)
	v, err := audit.VerifyReceipt([]byte(receipt), trust)
	if err != nil || len(v.Cosignatures) != 1 || v.Outcome.Seq == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	evidence := c.open(linkIn(t, session, base+`/sessions/[^"]*/evidence[^"]*`), http.StatusOK)
	e, err := audit.VerifyEvidence([]byte(evidence), trust)
	if err != nil || e.Sealed.Witness != "server" || !strings.Contains(string(e.About), `"calls":1`) {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := audit.VerifyEvidence([]byte(strings.Replace(evidence, "because", "Because", 1)), trust); err == nil {
		t.Error("changed evidence verifies")
	}
}

// checkRoles: members and strangers see nothing of receipts, and another organisation does not find them.
func checkRoles(t *testing.T, owner *client, shop, host string) {
	t.Helper()
	member := owner.join(shop, "member@example.com", "member")
	admin := owner.join(shop, "admin@example.com", "admin")
	other := want[item](owner, "POST", "/api/v1/organisations", object{"name": "Other"}).ID
	list := owner.open("/o/"+shop+"/receipts?agent=filler", http.StatusOK)
	one := strings.TrimPrefix(linkIn(t, list, "/o/"+shop+"/receipts/"+host+`/\d+`), "/o/"+shop)
	for _, path := range []string{"/receipts", one, one + "/file", "/sessions", "/sessions/s-1",
		"/sessions/s-1/evidence"} {
		member.open("/o/"+shop+path, http.StatusForbidden)
		admin.open("/o/"+shop+path, http.StatusOK)
		if path != "/receipts" && path != "/sessions" {
			owner.open("/o/"+other+path, http.StatusNotFound)
		} else if page := owner.open("/o/"+other+path, http.StatusOK); strings.Contains(page, "filler") {
			t.Errorf("another organisation sees %s", page)
		}
		member.open("/o/"+other+path, http.StatusNotFound)
	}
	for _, path := range []string{"/receipts/" + host + "/x", "/receipts/" + host + "/999999", "/receipts/h-none/3", "/sessions/none",
		"/sessions/%00"} {
		owner.open("/o/"+shop+path, http.StatusNotFound)
	}
	for _, query := range []string{"?next=x", "?since=yesterday", "?agent=%00"} {
		owner.open("/o/"+shop+"/receipts"+query, http.StatusUnprocessableEntity)
		owner.open("/o/"+shop+"/sessions"+query, http.StatusUnprocessableEntity)
	}
}

// shownProof is what the script reads from the page.
type shownProof struct {
	Entries    []shownEntry `json:"entries"`
	Checkpoint string       `json:"checkpoint"`
	Key        string       `json:"key"`
	Witness    string       `json:"witness"`
}

type shownEntry struct {
	Seq  string   `json:"seq"`
	Path []string `json:"path"`
	Line string   `json:"line"`
}

// checkScript runs the script of the page on what the page shows, and on changed bytes.
func checkScript(t *testing.T, page string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("node is missing: the script of the page is not run")
		return
	}
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("the page has no %s", pattern)
		}
		return html.UnescapeString(m[1])
	}
	read := func() (p shownProof) {
		for _, m := range regexp.MustCompile(`(?s)data-proof-entry="(\d+)" data-proof-path="([^"]*)">.*?<pre class="long">(.*?)</pre>`).
			FindAllStringSubmatch(page, -1) {
			p.Entries = append(p.Entries, shownEntry{m[1], strings.Fields(m[2]), html.UnescapeString(m[3]) + "\n"})
		}
		p.Checkpoint, p.Key = find(`(?s)<pre data-proof-checkpoint>(.*?)</pre>`)+"\n", find(`data-proof-key value="([^"]*)"`)
		p.Witness = find(`data-proof-witness="([^"]*)"`)
		return p
	}
	if n := len(read().Entries); n < 3 {
		t.Fatalf("%d entries", n)
	}
	other := audit.Key{}
	for name, c := range map[string]struct {
		change func(*shownProof)
		fails  string
	}{
		"as shown":         {func(*shownProof) {}, ""},
		"a changed byte":   {func(p *shownProof) { p.Entries[1].Line = strings.Replace(p.Entries[1].Line, "deny", "dent", 1) }, "is not in the tree"},
		"a changed intent": {func(p *shownProof) { p.Entries[0].Line = strings.Replace(p.Entries[0].Line, "git", "Git", 1) }, "is not in the tree"},
		"a changed hash": {func(p *shownProof) {
			h := p.Entries[1].Path[0]
			p.Entries[1].Path[0] = map[bool]string{true: "1", false: "0"}[h[0] == '0'] + h[1:]
		}, "is not in the tree"},
		"a proof too few": {func(p *shownProof) { p.Entries[1].Path = p.Entries[1].Path[1:] }, ""},
		"another number":  {func(p *shownProof) { p.Entries[1].Seq = "5" }, ""},
		"another size": {func(p *shownProof) {
			p.Checkpoint = regexp.MustCompile(`\n(\d+)\n`).ReplaceAllString(p.Checkpoint, "\n${1}0\n")
		}, ""},
		"another signature": {func(p *shownProof) {
			i := strings.Index(p.Checkpoint, "— server ") + len("— server ") + 30
			p.Checkpoint = p.Checkpoint[:i] + map[bool]string{true: "B", false: "A"}[p.Checkpoint[i] == 'A'] + p.Checkpoint[i+1:]
		}, "is invalid"},
		"no witness in it": {func(p *shownProof) { p.Checkpoint = p.Checkpoint[:strings.Index(p.Checkpoint, "— server")] }, "is not signed by server"},
		"no key":           {func(p *shownProof) { p.Key = other.String() }, "not a verifier key"},
		"another key":      {func(p *shownProof) { p.Key = p.Witness }, "other keys"},
	} {
		p := read()
		c.change(&p)
		said := runProof(t, node, p)
		failed := strings.Contains(said, `"ok":false`)
		if failed != (name != "as shown") || !strings.Contains(said, c.fails) || strings.Contains(said, `"ok":null`) {
			t.Errorf("%s: %s", name, said)
		}
	}
}

func runProof(t *testing.T, node string, p shownProof) string {
	t.Helper()
	input, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "-e", `
		if (globalThis.crypto === undefined) { globalThis.crypto = require("node:crypto").webcrypto; }
		require("vm").runInThisContext(require("fs").readFileSync("../console/static/proof.js", "utf8"));
		const shown = JSON.parse(require("fs").readFileSync(0, "utf8"));
		baileyProof.verify(shown).then(({ steps }) => console.log(JSON.stringify(steps)));`)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestPolicyPage: it shows the rules that a gateway reported beside the newest bundle, and a replay lists the calls that
// a change would decide differently, and why others cannot be decided again.
func TestPolicyPage(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	member := owner.join(shop, "member@example.com", "member")
	b := newBook(t)
	plain := func(in *bailey.Intent, out *bailey.Outcome) {
		in.Capability, in.Input = "system.date", nil
		*out = bailey.Outcome{Receipt: in.Receipt, Status: bailey.OK, Decision: "allow", PolicyDigest: "p", EndedAt: time.Now(),
			Cage: &bailey.Cage{Kind: "full", Enforced: true}}
	}
	for range 3 {
		b.callAll("s-1", "x", plain)
	}
	b.callAll("s-1", "x", func(in *bailey.Intent, out *bailey.Outcome) { plain(in, out); in.Capability = "other.pack" })
	host, _ := b.sendAll(owner, shop, "laptop")
	base := "/o/" + shop + "/policy"
	if page := member.open(base, http.StatusOK); !strings.Contains(page, "not reported") || strings.Contains(page, "<textarea") {
		t.Errorf("a member sees %s", page)
	}
	deny := `@id("no-dates") @reason("` + "no" + `") forbid (principal, action == Action::"system.date", resource);`
	form := func(c *client, values url.Values, status int) string {
		t.Helper()
		resp := c.form(base+"/replay", values)
		defer resp.Body.Close()
		var text bytes.Buffer
		text.ReadFrom(resp.Body)
		if resp.StatusCode != status {
			t.Fatalf("%d, want %d: %s", resp.StatusCode, status, text.String())
		}
		return text.String()
	}
	page := form(owner, url.Values{"text": {deny}}, http.StatusOK)
	for _, text := range []string{"3 calls would be denied", "allow → deny", "of a pack that this server does not have", "no-dates",
		"/receipts/" + host} {
		if !strings.Contains(page, text) {
			t.Errorf("the replay lacks %q: %s", text, page)
		}
	}
	if page := form(owner, url.Values{"text": {"permit <script>"}}, http.StatusUnprocessableEntity); !strings.Contains(page, "proposed.cedar") ||
		strings.Contains(page, "<script>") {
		t.Errorf("wrong rules: %s", page)
	}
	form(owner, url.Values{"text": {strings.Repeat("/", 33<<10)}}, http.StatusUnprocessableEntity)
	form(owner, url.Values{"text": {deny}, "base": {"7"}}, http.StatusNotFound)
	form(member, url.Values{"text": {deny}}, http.StatusForbidden)
	checkDrift(t, f, owner, shop, base)
}

// checkDrift: a gateway that reports other rules than those of its newest bundle is shown as different.
func checkDrift(t *testing.T, f *fixture, owner *client, shop, base string) {
	t.Helper()
	var files policyfiles.Files
	if err := files.Add(policy.Source{Name: "a.cedar", Text: []byte("permit (principal, action, resource);")}); err != nil {
		t.Fatal(err)
	}
	want[object](owner, "POST", "/api/v1/organisations/"+shop+"/bundles", object{"serial": 1, "signature": "x",
		"files": []object{{"name": "a.cedar", "text": "permit (principal, action, resource);"}}})
	_, token := addGateway(owner, shop, "runner")
	w, _ := f.register(t, token, fleet.Register{Queue: fleet.NewID()})
	if w.hear().Command == nil { // the offer
		t.Fatal("no offer")
	}
	for i, c := range []struct{ digest, state string }{{files.Digest(), "as the bundle"}, {"other", "it has not got the newest bundle yet"}} {
		body, _ := json.Marshal(fleet.Policy{Digest: c.digest, Count: 3, Rules: []fleet.PolicyRule{{ID: probe, Effect: "permit", Reason: probe,
			Source: probe}}})
		w.say(&fleet.Frame{Event: &fleet.Event{Seq: uint64(i + 1), Kind: fleet.PolicyState, Body: body}})
		if w.hear().Ack == nil {
			t.Fatal("no acknowledgement")
		}
		page := owner.open(base, http.StatusOK)
		if !strings.Contains(page, c.state) || strings.Contains(page, "<script>alert") || !strings.Contains(page, fmt.Sprint("and ", 2, " that it did not list")) {
			t.Errorf("%s: %s", c.state, page)
		}
	}
}
