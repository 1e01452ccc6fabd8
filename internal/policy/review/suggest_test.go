package review

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"bailey"
	"bailey/internal/policy"
)

// suggest derives rules from past calls and loads them.
func suggest(t *testing.T, past []Past) (Suggestion, *policy.Engine) {
	t.Helper()
	s, err := Suggest(testActions(), slices.Values(past))
	if err != nil {
		t.Fatal(err)
	}
	e, err := tryLoad(string(s.Text))
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Text)
	}
	return s, e
}

// pushes returns past calls: reads are allowed, a push to main asks, pushes to other branches are allowed, forced
// pushes are denied.
func pushes() (past []Past) {
	for i := range 200 {
		n := 10 * i
		past = append(past, pastCall(n, bailey.Allow, "git.status", map[string]any{"repo": fmt.Sprint("dir", i)}),
			pastCall(n+1, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": fmt.Sprint("dev-", i%3)}),
			pastCall(n+2, bailey.Deny, "disk.wipe", nil))
		if i%10 == 0 {
			past = append(past, pastCall(n+3, bailey.Ask, "git.push", map[string]any{"repo": ".", "ref": "main"}),
				pastCall(n+4, bailey.Deny, "git.push", map[string]any{"repo": ".", "ref": "main", "force": true}))
		}
	}
	return past
}

// TestSuggestionFitsItsPast checks that the suggested rules decide every past call as it was decided.
func TestSuggestionFitsItsPast(t *testing.T) {
	past := pushes()
	s, e := suggest(t, past)
	r := Replay(e, slices.Values(past))
	if r.Changed != 0 || r.Undecided != 0 || r.Same != len(past) {
		t.Errorf("%+v\n%s", r, s.Text)
	}
	for _, want := range []string{
		`principal == Agent::"claude"`, `context.cage == "full"`, `context.absent.isEmpty()`, `!(context.input has force)`,
		`["dev-0", "dev-1", "dev-2", "main"].contains(context.input.ref)`, `context.input.ref == "main"`, "@approval(", "git.status: 200 calls allowed",
		"input.repo is not restricted",
	} {
		if !strings.Contains(string(s.Text), want) {
			t.Errorf("no %q in\n%s", want, s.Text)
		}
	}
	_, asks, _ := strings.Cut(string(s.Text), "@approval(")
	if asks, _, _ = strings.Cut(asks, "unless"); strings.Contains(asks, "principal ==") || strings.Contains(asks, "resource ==") {
		t.Errorf("an asking rule repeats what the permit says, and would not follow it:\n%s", s.Text)
	}
	if strings.Contains(string(s.Text), "disk.wipe") {
		t.Error("there is a rule for what was only denied")
	}
	other := request("git.push", map[string]any{"repo": ".", "ref": "prod"})
	if d := e.Decide(other); d.Effect != bailey.Deny {
		t.Errorf("a branch that nobody pushed to: %v", d.Effect)
	}
	agent := past[0].Request
	agent.Principal.Agent = "other"
	if d := e.Decide(agent); d.Effect != bailey.Deny {
		t.Errorf("an agent that nobody saw: %v", d.Effect)
	}
}

// TestSuggestionKeepsDenied checks that if there are too many values for a condition, denied calls among them stay
// denied, and only calls that asked before ask again.
func TestSuggestionKeepsDenied(t *testing.T) {
	var past []Past
	for i := range 50 {
		past = append(past, pastCall(i, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": fmt.Sprint("dev-", i)}))
	}
	for i := range 20 {
		past = append(past, pastCall(50+i, bailey.Ask, "git.push", map[string]any{"repo": ".", "ref": fmt.Sprint("release-", i)}))
	}
	past = append(past, pastCall(99, bailey.Deny, "git.push", map[string]any{"repo": ".", "ref": "main"}))
	s, e := suggest(t, past)
	if r := Replay(e, slices.Values(past)); r.Changed != 0 {
		t.Errorf("%+v\n%s", r, s.Text)
	}
	for i := range 2 * maxExact {
		past = append(past, pastCall(100+i, bailey.Deny, "git.push", map[string]any{"repo": ".", "ref": fmt.Sprint("never-", i)}))
	}
	s, e = suggest(t, past)
	if r := Replay(e, slices.Values(past)); slices.ContainsFunc(r.Changes, func(c Change) bool { return c.To != "deny" }) {
		t.Errorf("too many to except, and still allowed: %+v\n%s", r, s.Text)
	}
	if !strings.Contains(string(s.Text), "no rule: it would need more than") {
		t.Errorf("it is not said:\n%s", s.Text)
	}
}

// TestSuggestionOfContradictions checks that a call that was denied first and allowed later is allowed, and that the
// suggestion reports it.
func TestSuggestionOfContradictions(t *testing.T) {
	in := map[string]any{"repo": "."}
	past := []Past{pastCall(1, bailey.Deny, "git.push", in), pastCall(2, bailey.Allow, "git.push", in)}
	s, e := suggest(t, past)
	if d := e.Decide(past[1].Request); d.Effect != bailey.Allow {
		t.Errorf("%+v\n%s", d, s.Text)
	}
	if !strings.Contains(string(s.Text), "1 calls are decided differently") {
		t.Errorf("it is not said:\n%s", s.Text)
	}
}

// hostileValues would change the meaning of a rule if they were not quoted.
func hostileValues() []string {
	return []string{
		`" || true || "`, `"); permit (principal, action, resource); //`, `\`, `\"`, "*", `\*`, "line\nbreak\"", "\r\n@id(\"x\")\npermit(principal,action,resource);",
		"*/ permit (principal, action, resource); /*", "// x", `\u{22}`, "tab\there", "\x00", "{{ input.x }}", "é日本😀", "a\u0301",
	}
}

// TestSuggestionHoldsHostileValues checks that a value in a rule matches only itself and adds no rule.
func TestSuggestionHoldsHostileValues(t *testing.T) {
	for _, v := range hostileValues() {
		past := []Past{pastCall(1, bailey.Allow, "git.push", map[string]any{"repo": v}), pastCall(2, bailey.Ask, "git.push", map[string]any{"repo": v, "ref": v})}
		for i := range past {
			past[i].Request.Dir, past[i].Request.Principal.Agent = "/w/"+v, v
			past[i].Request.Paths = map[string]string{"elsewhere": "/p/" + v}
		}
		s, e := suggest(t, past)
		if e.Len() != 4 {
			t.Errorf("%q: %d rules:\n%s", v, e.Len(), s.Text)
		}
		if hasHiddenRune(v) {
			if strings.Contains(string(s.Text), v) || !strings.Contains(string(s.Text), "invisible characters") {
				t.Errorf("%q stands in a rule, or is not told of:\n%s", v, s.Text)
			}
			continue
		}
		if d := e.Decide(past[0].Request); d.Effect != bailey.Allow {
			t.Errorf("%q: %+v\n%s", v, d, s.Text)
		}
		for _, change := range []func(r *bailey.Request){
			func(r *bailey.Request) { r.Input = map[string]any{"repo": "other"} },
			func(r *bailey.Request) { r.Input = map[string]any{"repo": v + "x"} },
			func(r *bailey.Request) { r.Dir = "/w/other" },
			func(r *bailey.Request) { r.Principal.Agent = "other" },
			func(r *bailey.Request) { r.Paths = map[string]string{"elsewhere": "/p/other"} },
		} {
			r := past[0].Request
			if change(&r); e.Decide(r).Effect != bailey.Deny {
				t.Errorf("%q also allows %+v\n%s", v, r, s.Text)
			}
		}
	}
}

// TestSuggestionBeneathHostileDirectory checks that a star in a directory name is literal.
func TestSuggestionBeneathHostileDirectory(t *testing.T) {
	for _, dir := range []string{`/w/*`, `/w/"q"*`, `/w/\*`, `/w/\`} {
		var past []Past
		for i := range 20 {
			p := pastCall(i, bailey.Allow, "git.status", map[string]any{"repo": "."})
			p.Request.Dir = fmt.Sprint(dir, "/", i)
			past = append(past, p)
		}
		s, e := suggest(t, past)
		if r := Replay(e, slices.Values(past)); r.Changed != 0 {
			t.Errorf("%s: %+v\n%s", dir, r, s.Text)
		}
		for _, other := range []string{"/w/x/1", "/w", "/", dir + "x/1", "/w/\"q\"x/1"} {
			r := past[0].Request
			if r.Dir = other; e.Decide(r).Effect != bailey.Deny {
				t.Errorf("%s also allows %s\n%s", dir, other, s.Text)
			}
		}
	}
}

// TestSuggestionAsksForWhatItCannotSay checks that an asking rule also covers a call whose value cannot be written in a
// rule.
func TestSuggestionAsksForWhatItCannotSay(t *testing.T) {
	var past []Past
	for i := range 20 {
		p := pastCall(i, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": fmt.Sprint("dev-", i)})
		p.Request.Dir = "/free"
		past = append(past, p)
	}
	for i, ref := range []string{"main", "in\u200bvisible"} {
		past = append(past, pastCall(50+i, bailey.Ask, "git.push", map[string]any{"repo": ".", "ref": ref}))
	}
	s, e := suggest(t, past)
	if d := e.Decide(past[21].Request); d.Effect != bailey.Ask {
		t.Errorf("%+v\n%s", d, s.Text)
	}
}

// TestSuggestionLeavesBuiltinQuestions checks that no asking rule is suggested for calls about which a built-in rule
// asks, because it would ask for more.
func TestSuggestionLeavesBuiltinQuestions(t *testing.T) {
	changed := pastCall(1, bailey.Ask, "git.status", map[string]any{"repo": "."})
	changed.Request.Changed = true
	opaque := pastCall(2, bailey.Ask, "git.status", map[string]any{"repo": ".", "score": 1.5})
	past := []Past{changed, opaque, pastCall(3, bailey.Allow, "git.status", map[string]any{"repo": "."})}
	s, e := suggest(t, past)
	if r := Replay(e, slices.Values(past)); r.Changed != 0 || e.Len() != 3 {
		t.Errorf("%+v\n%s", r, s.Text)
	}
}

// TestSuggestionOfHostileReceipts checks that text from the ledger cannot end a comment.
func TestSuggestionOfHostileReceipts(t *testing.T) {
	p := pastCall(1, bailey.Allow, "git.status", map[string]any{"repo": "."})
	u := p
	p.Receipt, u.Unknown = "r-\npermit (principal, action, resource);\u2028", "why\n@id(\"x\") permit (principal, action, resource);"
	if s, e := suggest(t, []Past{p, u}); e.Len() != 3 {
		t.Errorf("%d rules:\n%s", e.Len(), s.Text)
	}
}

// TestSuggestionHoldsNoTokens checks that no rule contains a token of redaction or a value that a receipt hides.
func TestSuggestionHoldsNoTokens(t *testing.T) {
	hiddenRef := pastCall(1, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": "[REDACTED_PASSWORD_1]"})
	hiddenRef.Hidden = []string{"input.ref"}
	quiet := pastCall(2, bailey.Allow, "git.push", map[string]any{"repo": "x[REDACTED_IPV4_1]"})
	for _, past := range [][]Past{{hiddenRef}, {quiet}, {hiddenRef, quiet, pastCall(3, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": "dev"})}} {
		s, e := suggest(t, past)
		if strings.Contains(string(s.Text), "REDACTED") || !strings.Contains(string(s.Text), "hidden in the receipt") {
			t.Errorf("%s", s.Text)
		}
		if r := Replay(e, slices.Values(past[:1])); r.Same+r.Undecided != 1 && len(past) == 1 {
			t.Errorf("%+v\n%s", r, s.Text)
		}
	}
}

// FuzzLiteral checks that a literal matches exactly its text, and that a pattern for a directory matches exactly the
// texts that begin with it.
func FuzzLiteral(f *testing.F) {
	for _, v := range hostileValues() {
		f.Add(v, "x")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		if !utf8.ValidString(s) || !utf8.ValidString(other) || hasHiddenRune(s) {
			return
		}
		text := fmt.Sprintf("@id(\"is\") permit (principal, action == Action::\"git.status\", resource) when { context.input.repo == %s && context.dir like %s };", cedarLiteral(s), prefixPattern(s))
		e, err := tryLoad(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		r := request("git.status", map[string]any{"repo": s})
		if r.Dir = s + other; e.Decide(r).Effect != bailey.Allow {
			t.Errorf("%q is not itself in %s", s, text)
		}
		if r.Dir = other; e.Decide(r).Effect == bailey.Allow && !strings.HasPrefix(other, s) {
			t.Errorf("%q is taken for one below %q in %s", other, s, text)
		}
		if r.Dir, r.Input = s, map[string]any{"repo": other}; e.Decide(r).Effect == bailey.Allow && other != s {
			t.Errorf("%q is taken for %q in %s", other, s, text)
		}
	})
}

// TestSuggestionKeepsTheLevel checks that suggested rules ask for no lower level than the receipts did. If a receipt
// has an unknown level, the rule must ask for the strictest one.
func TestSuggestionKeepsTheLevel(t *testing.T) {
	past := pushes()
	levels := []bailey.Level{bailey.SignedSoftware, bailey.SignedTouch, bailey.Local}
	n := 0
	for i := range past {
		if past[i].Was == bailey.Ask {
			past[i].Asks = []bailey.Rule{{ID: "main", Role: "sre", Level: levels[n%len(levels)], Count: 1}}
			n++
		}
	}
	if s, _ := suggest(t, past); !strings.Contains(string(s.Text), `@approval("role=sre,level=signed-touch,count=1,ttl=10m")`) {
		t.Errorf("%s", s.Text)
	}
	for i := range past {
		if past[i].Was == bailey.Ask {
			past[i].Asks[0].Level = "signed-by-two-moons"
		}
	}
	if s, _ := suggest(t, past); !strings.Contains(string(s.Text), "level=signed-touch") {
		t.Errorf("%s", s.Text)
	}
}
