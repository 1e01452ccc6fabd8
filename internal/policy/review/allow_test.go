package review

import (
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/policy"
)

// TestWish checks the rules that bailey allow and deny-rule write: they load, have their effect, and nothing else.
func TestWish(t *testing.T) {
	acts := []policy.Action{
		{ID: "git.commit", Pack: "git", SideEffect: "mutating", Risk: "low", Reversibility: "reversible", BuiltIn: true},
		{ID: "npm.ci", Pack: "npm", SideEffect: "mutating", Risk: "low", Reversibility: "reversible", BuiltIn: true, Home: "fetches"},
		{ID: "git.wipe", Pack: "git", SideEffect: "destructive", Risk: "high", Reversibility: "irreversible", BuiltIn: true},
	}
	files := []policy.Source{policy.Starter()}
	load := func() *policy.Engine {
		t.Helper()
		e, err := policy.Load(policy.Config{Sources: files, Actions: acts})
		if err != nil {
			t.Fatalf("%v\n%s", err, files[len(files)-1].Text)
		}
		return e
	}
	write := func(w Wish) Written {
		t.Helper()
		list, out, err := w.Write(load(), files)
		if err != nil {
			t.Fatal(err)
		}
		files = list
		load()
		return out
	}
	expect := func(id bailey.CapabilityID, dir, agent string, at time.Time, egress []string, want bailey.Effect) {
		t.Helper()
		r := bailey.Request{Capability: id, Principal: bailey.Principal{Agent: agent}, Target: bailey.Target{Kind: "local"},
			Cage: "full", Dir: dir, Time: at, Egress: egress, Writes: true}
		if d := load().Decide(r); d.Effect != want {
			t.Errorf("%s in %s by %s: %v (%s), want %v", id, dir, agent, d.Effect, d.Reason, want)
		}
	}
	now := time.Now()
	odd := `/src/a*b"c`
	expect("git.commit", odd, "claude", now, nil, bailey.Deny)
	write(Wish{Capability: "git.commit", Dir: odd, Agent: "claude", Until: now.Add(time.Hour)})
	expect("git.commit", odd, "claude", now, nil, bailey.Allow)
	expect("git.commit", odd+"/sub", "claude", now, nil, bailey.Allow)
	expect("git.commit", odd+"sub", "claude", now, nil, bailey.Deny)
	expect("git.commit", `/src/aXb"c/sub`, "claude", now, nil, bailey.Deny)
	expect("git.commit", odd, "local", now, nil, bailey.Deny)
	expect("git.commit", odd, "claude", now.Add(2*time.Hour), nil, bailey.Deny)
	expect("git.commit", odd, "claude", now, []string{"evil.example:443"}, bailey.Deny)

	registry := []string{"registry.npmjs.org:443"}
	expect("npm.ci", "/src/web", "local", now, registry, bailey.Ask)
	if out := write(Wish{Capability: "npm.ci", Dir: "/src/web", Egress: registry}); strings.Join(ids(out.Lifted), " ") != "fetch-asks" {
		t.Errorf("lifted %v", out.Lifted)
	}
	expect("npm.ci", "/src/web", "local", now, registry, bailey.Allow)
	expect("npm.ci", "/src/other", "local", now, registry, bailey.Ask)

	if out := write(Wish{Capability: "git.wipe"}); len(out.Lifted) > 0 || strings.Join(ids(out.Asks), " ") != "irreversible-wants-touch" {
		t.Errorf("a call that cannot be undone: lifted %v, asks %v", out.Lifted, out.Asks)
	}
	expect("git.wipe", "/", "local", now, nil, bailey.Ask)

	write(Wish{Capability: "git.commit"})
	expect("git.commit", "/", "local", now, nil, bailey.Allow)
	write(Wish{Capability: "git.commit", Forbid: true, Reason: `no "commits"`})
	expect("git.commit", "/", "local", now, nil, bailey.Deny)
	write(Wish{Capability: "git.commit"})
	expect("git.commit", "/", "local", now, nil, bailey.Allow)
	if text := string(files[len(files)-1].Text); strings.Contains(text, "deny-git.commit") {
		t.Errorf("the opposite rule is still there:\n%s", text)
	}
	if _, _, err := (Wish{Capability: "git.comit"}).Write(load(), files); bailey.KindOf(err) != bailey.NotFound {
		t.Errorf("an unknown capability: %v", err)
	}
}

// TestWishKeeps checks that a wish edits its place in asking rules and no other text, that an exception lifts nothing but
// what the permit allows, that a forbid takes it back, and that rules which a person wrote stay.
func TestWishKeeps(t *testing.T) {
	acts := []policy.Action{
		{ID: "http.get", Pack: "http", SideEffect: "readOnly", Risk: "low", Reversibility: "reversible", BuiltIn: true},
		{ID: "http.head", Pack: "http", SideEffect: "readOnly", Risk: "low", Reversibility: "reversible", BuiltIn: true},
		{ID: "http.post", Pack: "http", SideEffect: "readOnly", Risk: "low", Reversibility: "reversible", BuiltIn: true},
	}
	const rule = `@id("asks") @reason("r") @approval("count=1") forbid (principal, action in Action::"pack:http", resource) unless { context.approvals.contains("asks") };`
	const permit = `@id("wide") permit (principal, action in Action::"pack:http", resource) when { context.egress.containsAll(context.egress) && context.restores.containsAll(context.restores) };`
	const mine = "// bailey by hand\n@id(\"mine\")\n@reason(\"r\")\nforbid (principal, action == Action::\"http.get\", resource)\nwhen { context.unattended };\n"
	before := []policy.Source{{Name: "a.cedar", Text: []byte("// " + rule + "\n" + permit + "\n" + rule + "\n")}, {Name: WishFile, Text: []byte(mine)}}
	files := before
	load := func() *policy.Engine {
		t.Helper()
		e, err := policy.Load(policy.Config{Sources: files, Actions: acts})
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, files[0].Text, files[1].Text)
		}
		return e
	}
	write := func(w Wish) {
		t.Helper()
		list, out, err := w.Write(load(), files)
		if err != nil || !w.Forbid && strings.Join(ids(out.Lifted), " ") != "asks" {
			t.Fatalf("%v, lifted %v", err, out.Lifted)
		}
		files = list
		load()
	}
	expect := func(id bailey.CapabilityID, dir, agent string, egress, restores []string, want bailey.Effect) {
		t.Helper()
		r := bailey.Request{Capability: id, Principal: bailey.Principal{Agent: agent}, Target: bailey.Target{Kind: "local"},
			Cage: "full", Dir: dir, Time: time.Now(), Egress: egress, Restores: restores}
		if d := load().Decide(r); d.Effect != want {
			t.Errorf("%s in %s by %s: %v (%s), want %v\n%s", id, dir, agent, d.Effect, d.Reason, want, files[0].Text)
		}
	}
	docs, evil := []string{"docs.example.com:443"}, []string{"evil.example:443"}
	odd := "/src/a\n// bailey deny-rule http.get\n\"};*\\"
	write(Wish{Capability: "http.get", Egress: docs, Dir: odd, Agent: "x\") permit (\n"})
	expect("http.get", odd+"/b", "x\") permit (\n", docs, nil, bailey.Allow)
	expect("http.get", odd+"b", "x\") permit (\n", docs, nil, bailey.Ask)
	expect("http.get", odd, "local", docs, nil, bailey.Ask)
	write(Wish{Capability: "http.get", Egress: docs})
	expect("http.get", "/", "local", docs, nil, bailey.Allow)
	expect("http.get", "/", "local", evil, nil, bailey.Ask)
	expect("http.get", "/", "local", docs, []string{"TOKEN"}, bailey.Ask)
	expect("http.head", "/", "local", docs, nil, bailey.Ask)
	write(Wish{Capability: "http.head", Egress: docs}) // beside the exceptions that are there
	expect("http.head", "/", "local", docs, nil, bailey.Allow)

	write(Wish{Capability: "http.get", Forbid: true, Reason: `a "reason" \ // x`})
	write(Wish{Capability: "http.head", Forbid: true, Reason: "r"})
	if string(files[0].Text) != string(before[0].Text) {
		t.Errorf("exceptions stay after the rules:\n%s", files[0].Text)
	}
	write(Wish{Capability: "http.get", Egress: docs})
	if text := string(files[1].Text); !strings.HasPrefix(text, mine) || strings.Contains(text, "deny-http.get") {
		t.Errorf("the rule of a person must stay, and the opposite rule must go:\n%s", text)
	}
	if string(before[1].Text) != mine {
		t.Error("the given files were changed")
	}
}

func ids(list []bailey.RuleID) (out []string) {
	for _, id := range list {
		out = append(out, string(id))
	}
	return out
}
