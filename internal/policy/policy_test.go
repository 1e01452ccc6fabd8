package policy

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
)

const pushSchema = `{"type":"object","additionalProperties":false,"required":["repo"],"properties":{
	"repo":{"type":"string"},"ref":{"type":"string"},"force":{"type":"boolean"},"depth":{"type":"integer"},
	"tags":{"type":"array","items":{"type":"string"}},"ports":{"type":"array","items":{"type":"integer"}},
	"score":{"type":"number"},"mixed":{"type":"array","items":{"oneOf":[{"type":"string"},{"type":"integer"}]}},
	"maybe":{"type":["string","null"]},"_opaque":{"type":"string"},
	"meta":{"type":"object","required":["owner"],"properties":{"owner":{"type":"string"},"weight":{"type":"number"},
		"inner":{"type":"object","properties":{"n":{"type":"integer"}}}}}}}`

func testActions() []Action {
	repo := json.RawMessage(`{"type":"object","required":["repo"],"properties":{"repo":{"type":"string"},"limit":{"type":"integer"}}}`)
	return []Action{
		{"git.status", "git", "readOnly", "low", "readOnly", repo, true, nil, "", false, false, false, false},
		{"git.push", "git", "mutating", "high", "externallyReversible", json.RawMessage(pushSchema), true, nil, "", false, false, false, false},
		{"system.echo", "base", "none", "low", "readOnly", json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}}}`), true, nil, "", false, false, false, false},
		{"disk.wipe", "disk", "destructive", "critical", "irreversible", nil, false, nil, "", false, false, false, false},
		{"other.look", "other", "readOnly", "low", "readOnly", nil, false, nil, "", false, false, false, false},
	}
}

func load(t testing.TB, texts ...string) *Engine {
	t.Helper()
	e, err := tryLoad(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func tryLoad(texts ...string) (*Engine, error) {
	c := Config{Actions: testActions()}
	for i, s := range texts {
		c.Sources = append(c.Sources, Source{Name: string(rune('a'+i)) + ".cedar", Text: []byte(s)})
	}
	return Load(c)
}

func request(id bailey.CapabilityID, input map[string]any) bailey.Request {
	return bailey.Request{
		Capability: id, Input: input,
		Principal: bailey.Principal{Agent: "claude", Person: "ada", Roles: []string{"dev"}, Organisation: "acme"},
		Session:   bailey.Session{ID: "s-1"},
		Target:    bailey.Target{Kind: "local"},
		Dir:       "/w", Cage: "full", Profile: "default", Environ: "staging",
		Paths: map[string]string{"repo": "/w/repo"},
		Time:  time.Date(2026, 11, 22, 23, 5, 0, 0, time.FixedZone("X", 3*3600)),
	}
}

func push(kv ...any) bailey.Request {
	in := map[string]any{"repo": "."}
	for i := 0; i < len(kv); i += 2 {
		in[kv[i].(string)] = kv[i+1]
	}
	return request("git.push", in)
}

const (
	permitAll  = `@id("all") permit (principal, action, resource);` + "\n"
	permitPush = `@id("push") permit (principal, action == Action::"git.push", resource);` + "\n"
	askMain    = `@id("main-needs-human") @approval("role=sre,count=2,ttl=5m") @reason("main is released")
forbid (principal, action == Action::"git.push", resource)
when { context.input has ref && context.input.ref == "main" }
unless { context.approvals.contains("main-needs-human") };
`
)

func want(t *testing.T, got bailey.Decision, effect bailey.Effect, reason string, rules ...string) {
	t.Helper()
	var ids []string
	for _, r := range got.Rules {
		ids = append(ids, string(r.ID))
	}
	if got.Effect != effect || !strings.Contains(got.Reason, reason) || strings.Join(ids, " ") != strings.Join(rules, " ") {
		t.Errorf("got %v %q %v, want %v %q %v", got.Effect, got.Reason, ids, effect, reason, rules)
	}
	if got.Effect != bailey.Allow && got.Hint == "" {
		t.Errorf("no hint with %v %q", got.Effect, got.Reason)
	}
}

func TestOutcomes(t *testing.T) {
	hard := `@id("night") @reason("nobody pushes at night") forbid (principal, action == Action::"git.push", resource) when { context.time.hour == 23 };`
	day := push("ref", "main")
	day.Time = day.Time.Add(12 * time.Hour)
	for _, c := range []struct {
		name   string
		text   string
		req    bailey.Request
		effect bailey.Effect
		reason string
		rules  string
	}{
		{"empty policy", "", push(), bailey.Deny, "no rule allows git.push", ""},
		{"permit", permitPush, push(), bailey.Allow, "allowed by push", "push"},
		{"permit of another action", permitPush, request("git.status", map[string]any{"repo": "."}), bailey.Deny, "no rule allows git.status", ""},
		{"ask", permitPush + askMain, push("ref", "main"), bailey.Ask, "main is released", "main-needs-human"},
		{"ask does not fire", permitPush + askMain, push("ref", "dev"), bailey.Allow, "", "push"},
		{"ask without a permit", askMain, push("ref", "main"), bailey.Deny, "no rule allows git.push", ""},
		{"forbid beats ask", permitPush + askMain + hard, push("ref", "main"), bailey.Deny, "nobody pushes at night", "night"},
		{"forbid by day", permitPush + askMain + hard, day, bailey.Ask, "main is released", "main-needs-human"},
		{"unknown action", permitAll, request("git.pull", nil), bailey.Deny, "git.pull", ""},
		{"case variant", permitAll, request("Git.push", nil), bailey.Deny, "Git.push", ""},
		{"homoglyph", permitAll, request("gіt.push", nil), bailey.Deny, "gіt.push", ""},
		{"group name as action", permitAll, request("pack:git", nil), bailey.Deny, "pack:git", ""},
		{"irreversible by permit for all", permitAll, request("disk.wipe", nil), bailey.Deny, "is irreversible", ""},
		{"irreversible by its group", `@id("g") permit (principal, action in Action::"pack:disk", resource);`, request("disk.wipe", nil), bailey.Deny, "is irreversible", ""},
		{"irreversible by condition", `@id("g") permit (principal, action, resource) when { action == Action::"disk.wipe" };`, request("disk.wipe", nil), bailey.Deny, "is irreversible", ""},
		{"irreversible named", `@id("g") permit (principal, action == Action::"disk.wipe", resource);`, request("disk.wipe", nil), bailey.Allow, "", "g"},
		{"irreversible listed", `@id("g") permit (principal, action in [Action::"git.push", Action::"disk.wipe"], resource);`, request("disk.wipe", nil), bailey.Allow, "", "g"},
		{"irreversible named by a forbid", permitAll + `@id("g") @reason("x") forbid (principal, action == Action::"disk.wipe", resource) when { context.writes && context.cage == "none" };`, request("disk.wipe", nil), bailey.Deny, "is irreversible", ""},
		{"secrets given back, permit for all", permitAll, given("PASSWORD"), bailey.Deny, "secrets (PASSWORD)", ""},
		{"secrets given back, named action", permitPush, given("PASSWORD"), bailey.Deny, "context.restores", ""},
		{"secrets given back, looked at by a forbid", permitAll + `@id("g") @reason("x") forbid (principal, action, resource) when { context.restores.contains("JWT") };`, given("PASSWORD"), bailey.Deny, "context.restores", ""},
		{"secrets given back, released", releasePush, given("PASSWORD"), bailey.Allow, "", "rel"},
		{"secrets given back, released beside a permit for all", permitAll + releasePush, given("PASSWORD"), bailey.Allow, "", "rel all"},
		{"secrets given back, one too many", permitAll + releasePush, given("JWT", "PASSWORD"), bailey.Deny, "secrets (JWT, PASSWORD)", ""},
		{"secrets given back, forbidden", permitAll + releasePush + `@id("g") @reason("no keys") forbid (principal, action, resource) when { !context.restores.isEmpty() };`, given("PASSWORD"), bailey.Deny, "no keys", "g"},
		{"the network, permit for all", permitAll, reaching("a.example:443"), bailey.Deny, "would reach a.example:443, but no rule that allows it checks context.egress", ""},
		{"the network, named action", permitPush, reaching("a.example:443"), bailey.Deny, "context.egress", ""},
		{"the network, looked at by a forbid", permitAll + `@id("g") @reason("x") forbid (principal, action, resource) when { context.egress.contains("b.example:443") };`, reaching("a.example:443"), bailey.Deny, "context.egress", ""},
		{"the network, allowed", reachPush, reaching("a.example:443"), bailey.Allow, "", "out"},
		{"the network, allowed beside a permit for all", permitAll + reachPush, reaching("a.example:443"), bailey.Allow, "", "out all"},
		{"the network, one too many", permitAll + reachPush, reaching("a.example:443", "b.example:443"), bailey.Deny, "would reach a.example:443, b.example:443", ""},
		{"the network, below a name", permitAll + reachPush, reaching("*.a.example:443"), bailey.Deny, "would reach *.a.example:443", ""},
		{"the network, many", permitAll, reaching("a:1", "b:1", "c:1", "d:1", "e:1", "f:1"), bailey.Deny, "would reach a:1, b:1, c:1, d:1 and 2 more, but", ""},
		{"a waiver, permit for all", permitAll, waiving("fs.exec"), bailey.Deny, "git.push would run in a weaker jail than usual (fs.exec), but no rule that allows it checks context.waivers", ""},
		{"a waiver, named action", permitPush, waiving("fs.exec"), bailey.Deny, "context.waivers", ""},
		{"a waiver, looked at by a forbid", permitAll + `@id("g") @reason("x") forbid (principal, action, resource) when { context.waivers.contains("x") };`, waiving("fs.exec"), bailey.Deny, "context.waivers", ""},
		{"a waiver, allowed", waivePush, waiving("fs.exec"), bailey.Allow, "", "exec"},
		{"a waiver, one too many", permitAll + waivePush, waiving("fs.exec", "isolation"), bailey.Deny, "git.push would run without a jail (fs.exec, isolation), but", ""},
		{"without a jail, permit for all", permitAll, waiving("isolation"), bailey.Deny, "git.push would run without a jail (isolation), but no rule that allows it checks context.waivers", ""},
		{"without a jail, another waiver", permitAll + waivePush, waiving("isolation"), bailey.Deny, "without a jail (isolation), but no rule", ""},
		{"without a jail, by its kind", `@id("k") permit (principal, action, resource) when { context.cage == "none" || context.cage == "full" };`, waiving("isolation"), bailey.Deny, "context.waivers", ""},
		{"without a jail, no rule", "", waiving("isolation"), bailey.Deny, "no rule allows git.push, which would run without a jail (isolation)", ""},
		{"without a jail, looked at by what asks", permitAll + `@id("a") @reason("x") @approval("count=1") forbid (principal, action, resource) when { context.waivers.contains("isolation") } unless { context.approvals.contains("a") };`, waiving("isolation"), bailey.Deny, "checks context.waivers", ""},
		{"without a jail, allowed", openPush, waiving("isolation"), bailey.Allow, "", "open"},
		{"without a jail, asked", openPush + `@id("a") @reason("x") @approval("count=1") forbid (principal, action, resource) when { context.waivers.contains("isolation") } unless { context.approvals.contains("a") };`, waiving("isolation"), bailey.Ask, "x", "a"},
		{"a waiver, forbidden", waivePush + `@id("g") @reason("nothing of theirs runs") forbid (principal, action, resource) when { context.waivers.contains("fs.exec") };`, waiving("fs.exec"), bailey.Deny, "nothing of theirs runs", "g"},
		{"no network, none wanted", permitAll, push(), bailey.Allow, "", "all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want(t, load(t, c.text).Decide(c.req), c.effect, c.reason, strings.Fields(c.rules)...)
		})
	}
}

const releasePush = `@id("rel") permit (principal, action == Action::"git.push", resource) when { ["PASSWORD"].containsAll(context.restores) };`

const reachPush = `@id("out") permit (principal, action == Action::"git.push", resource) when { ["a.example:443"].containsAll(context.egress) };`

const waivePush = `@id("exec") permit (principal, action == Action::"git.push", resource) when { ["fs.exec"].containsAll(context.waivers) };`

const openPush = `@id("open") permit (principal, action == Action::"git.push", resource) when { ["isolation"].containsAll(context.waivers) };`

// waiving returns a push whose cage lacks the given restrictions.
func waiving(what ...string) bailey.Request {
	r := push()
	r.Waivers = what
	return r
}

// reaching returns a push that could reach the given endpoints.
func reaching(places ...string) bailey.Request {
	r := push()
	r.Egress = places
	return r
}

// given returns a push into whose input secrets of these categories were restored.
func given(categories ...string) bailey.Request {
	r := push()
	r.Restores = categories
	return r
}

func TestApprovals(t *testing.T) {
	second := `@id("force-asks") @approval("count=1,ttl=1m") @reason("history is rewritten")
forbid (principal, action in Action::"pack:git", resource)
when { context.input has force && context.input.force }
unless { context.session.unattended == false && context.approvals.contains("force-asks") };`
	e := load(t, permitPush+askMain, second)
	req := push("ref", "main", "force", true)
	d := e.Decide(req)
	want(t, d, bailey.Ask, "main is released; history is rewritten", "main-needs-human", "force-asks")
	if d.Hint != "a person must approve: main-needs-human, force-asks require 2 together with role sre, valid for 1m" {
		t.Errorf("hint %q", d.Hint)
	}
	a := d.Asks[0]
	if len(d.Asks) != 2 || a.Role != "sre" || a.Count != 2 || a.TTL != 5*time.Minute || a.Source != "a.cedar:2" {
		t.Errorf("asks %+v", d.Asks)
	}
	req.Approvals = []bailey.RuleID{"main-needs-human"}
	want(t, e.Decide(req), bailey.Ask, "history", "force-asks")
	req.Approvals = []bailey.RuleID{"main-needs-human", "force-asks"}
	want(t, e.Decide(req), bailey.Allow, "", "push")
	req.Approvals = []bailey.RuleID{"Main-needs-human", "push", "sre", ""}
	want(t, e.Decide(req), bailey.Ask, "", "main-needs-human", "force-asks")
	if len(req.Approvals) != 4 {
		t.Error("the request was changed")
	}
	req.Session.Unattended = true // its grant no longer lifts force-asks
	want(t, e.Decide(req), bailey.Deny, "history is rewritten", "force-asks")
}

// TestErrorDenies checks that an evaluation error in any rule denies, in the first and in the second pass.
func TestErrorDenies(t *testing.T) {
	overflow := `context.input has depth && context.input.depth + 1 > 5`
	big := json.Number("9223372036854775807")
	permit := `@id("p2") permit (principal, action, resource) when { ` + `context.time.epoch * context.time.epoch * context.time.epoch > 0` + ` };`
	forbid := `@id("f") @reason("deep") forbid (principal, action == Action::"git.push", resource) when { ` + overflow + ` };`
	late := `@id("late") @reason("x") @approval("count=1") forbid (principal, action == Action::"git.push", resource)
unless { context.approvals.contains("late") && ` + overflow + ` };`
	want(t, load(t, permitPush, forbid).Decide(push("depth", json.Number("3"))), bailey.Allow, "", "push")
	want(t, load(t, permitPush, forbid).Decide(push("depth", big)), bailey.Deny, "rule f cannot be evaluated", "f")
	want(t, load(t, permitPush, permit).Decide(push()), bailey.Deny, "rule p2 cannot be evaluated", "p2")
	want(t, load(t, permitPush, late).Decide(push("depth", big)), bailey.Deny, "rule late cannot be evaluated", "late")
}

func TestRequestMustBeWhole(t *testing.T) {
	e := load(t, permitAll)
	for name, spoil := range map[string]func(*bailey.Request){
		"names no agent":  func(r *bailey.Request) { r.Principal.Agent = "" },
		"names no target": func(r *bailey.Request) { r.Target.Kind = "" },
		"is not a target": func(r *bailey.Request) { r.Target.Kind = "vm" },
		`"local:" is no`:  func(r *bailey.Request) { r.Target = bailey.Target{Kind: "local:"} },
		"has no time":     func(r *bailey.Request) { r.Time = time.Time{} },
		"not UTF-8":       func(r *bailey.Request) { r.Paths = map[string]string{"repo": "/w/\xff"} },
	} {
		r := push()
		spoil(&r)
		want(t, e.Decide(r), bailey.Deny, name)
	}
	var zero Engine
	want(t, zero.Decide(push()), bailey.Deny, "git.push")
}

func TestContext(t *testing.T) {
	for _, cond := range []string{
		`principal == Agent::"claude" && principal.person == "ada" && principal.organisation == "acme" && principal.roles.contains("dev")`,
		`action in Action::"pack:git" && action in Action::"sideEffect:mutating" && action in Action::"risk:high"`,
		`action in Action::"reversibility:externallyReversible" && action in Action::"builtin"`,
		`resource == Target::"local" && resource.kind == "local" && resource.name == ""`,
		`context.paths.contains("/w/repo") && context.dir == "/w" && context.cage == "full"`,
		`context.profile == "default" && context.environment == "staging" && context.writes`,
		`context.session.id == "s-1" && !context.session.unattended && !context.unattended`,
		`context.time.epoch == 1795377900 && context.time.hour == 23 && context.time.weekday == 0`,
		`context.restores.isEmpty() && context.input._opaque.isEmpty()`,
		`context.input.repo == "." && context.input has depth && context.input.depth == -7`,
		`context.input has tags && context.input.tags.containsAll(["a", "b"]) && context.input has ports && context.input.ports.contains(80)`,
		`context.input has meta && context.input.meta.owner == "o" && context.input.meta has inner && context.input.meta.inner has n && context.input.meta.inner.n == 1`,
		`context.input has force && context.input.force && !(context.input has ref)`,
	} {
		req := push("depth", json.Number("-7"), "tags", []any{"a", "b", "a"}, "ports", []any{json.Number("80")}, "force", true,
			"meta", map[string]any{"owner": "o", "inner": map[string]any{"n": json.Number("1")}})
		e := load(t, `@id("p") permit (principal, action == Action::"git.push", resource) when { `+cond+` };`)
		if d := e.Decide(req); d.Effect != bailey.Allow {
			t.Errorf("%s: %+v", cond, d)
		}
	}
	e := load(t, `@id("p") permit (principal, action, resource == Target::"host:web1") when { resource.name == "web1" };`)
	req := push()
	req.Target = bailey.Target{Kind: "host", Name: "web1"}
	want(t, e.Decide(req), bailey.Allow, "", "p")
}

// TestWrites checks that a call with a path open for writing counts as writing, whatever class the manifest declares.
func TestWrites(t *testing.T) {
	e := load(t, permitAll+`@id("ro") @reason("nothing is written") forbid (principal, action, resource) when { context.writes };`)
	r := request("git.status", map[string]any{"repo": "."})
	want(t, e.Decide(r), bailey.Allow, "", "all")
	r.Writes = true
	want(t, e.Decide(r), bailey.Deny, "nothing is written", "ro")
	want(t, e.Decide(push()), bailey.Deny, "nothing is written", "ro")
}

func TestStarter(t *testing.T) {
	src := Starter()
	e, err := Load(Config{Sources: []Source{src}, Actions: testActions()})
	if err != nil {
		t.Fatal(err)
	}
	status := request("git.status", map[string]any{"repo": "."})
	want(t, e.Decide(status), bailey.Allow, "only reads", "look")
	want(t, e.Decide(request("system.echo", map[string]any{"message": "hi"})), bailey.Allow, "", "look")
	want(t, e.Decide(request("other.look", nil)), bailey.Deny, "no rule allows other.look") // not built in
	want(t, e.Decide(push()), bailey.Deny, "no rule allows git.push")
	want(t, e.Decide(request("disk.wipe", nil)), bailey.Deny, "")
	for _, c := range []struct {
		cage   string
		absent []string
		effect bailey.Effect
	}{
		{"full", nil, bailey.Allow}, {"full", []string{"cgroup"}, bailey.Allow}, {"landlock", []string{"cgroup"}, bailey.Allow},
		{"full", []string{"landlock"}, bailey.Deny}, {"full", []string{"cgroup", "landlock"}, bailey.Deny}, {"landlock", []string{"landlock"}, bailey.Deny},
		{"", nil, bailey.Deny}, {"none", nil, bailey.Deny}, {"seatbelt", nil, bailey.Deny}, {"FULL", nil, bailey.Deny},
	} {
		status.Cage, status.Absent = c.cage, c.absent
		if d := e.Decide(status); d.Effect != c.effect {
			t.Errorf("cage %q without %v: %+v", c.cage, c.absent, d)
		}
	}
	host := request("git.status", map[string]any{"repo": "."})
	host.Target = bailey.Target{Kind: "host", Name: "web1"}
	want(t, e.Decide(host), bailey.Deny, "no rule allows")
}

// TestElsewhere checks that without a cage, a separate rule allows the same queries and nothing more.
func TestElsewhere(t *testing.T) {
	e, err := Load(Config{Sources: []Source{Starter(), Elsewhere()}, Actions: testActions()})
	if err != nil {
		t.Fatal(err)
	}
	status := request("git.status", map[string]any{"repo": "."})
	want(t, e.Decide(status), bailey.Allow, "in a jail without network", "look")
	for _, cage := range []string{"none", "seatbelt"} {
		status.Cage = cage
		want(t, e.Decide(status), bailey.Allow, "no jail", "look-without-cage")
		for _, r := range []bailey.Request{push(), request("other.look", nil), request("disk.wipe", nil)} {
			r.Cage = cage
			want(t, e.Decide(r), bailey.Deny, "")
		}
		host := status
		host.Target = bailey.Target{Kind: "host", Name: "web1"}
		want(t, e.Decide(host), bailey.Deny, "no rule allows")
	}
	for _, cage := range []string{"", "None", "none ", "seatbelt2"} {
		status.Cage = cage
		want(t, e.Decide(status), bailey.Deny, "no rule allows")
	}
}

// TestStarterSamples checks that the samples in the starter policy load and match their comments.
func TestStarterSamples(t *testing.T) {
	lines := strings.Split(string(Starter().Text), "\n")
	on := false
	for i, l := range lines {
		bare := strings.TrimPrefix(strings.TrimPrefix(l, "//"), " ")
		on = on || strings.HasPrefix(l, "// @id(")
		if on {
			lines[i] = bare
		}
		on = on && bare != ""
	}
	get := testActions()[4]
	get.ID, get.Pack, get.SideEffect, get.Reversibility, get.BuiltIn = "http.get", "http", "readOnly", "readOnly", true
	ps := get
	ps.ID, ps.Pack = "docker.ps", "docker"
	e, err := Load(Config{Sources: []Source{{Name: "a.cedar", Text: []byte(strings.Join(lines, "\n"))}}, Actions: append(testActions(), get, ps)})
	if err != nil {
		t.Fatal(err)
	}
	reach := request("http.get", map[string]any{})
	reach.Egress = []string{"docs.example.com:443"}
	want(t, e.Decide(reach), bailey.Allow, "", "our-docs")
	reach.Egress = []string{"evil.example:443"}
	want(t, e.Decide(reach), bailey.Deny, "no rule allows http.get")
	want(t, e.Decide(push("ref", "dev")), bailey.Allow, "", "push")
	want(t, e.Decide(push("ref", "main")), bailey.Ask, "release", "main-needs-human")
	for n := range len(testActions()) + 1 {
		if _, err := Load(Config{Sources: []Source{Starter()}, Actions: testActions()[:n]}); err != nil {
			t.Errorf("with %d actions: %v", n, err)
		}
	}
	if _, err := Load(Config{Sources: []Source{Starter()}, Actions: testActions()[4:]}); err != nil {
		t.Errorf("without built-in packs: %v", err)
	}
}

func TestDigest(t *testing.T) {
	load := func(s ...Source) string {
		e, err := Load(Config{Sources: s})
		if err != nil {
			t.Fatal(err)
		}
		return e.Digest()
	}
	a, b := Source{"a", []byte("// 1\n")}, Source{"b", []byte("// 2\n")}
	if load(a, b) != load(b, a) {
		t.Error("the digest depends on order")
	}
	seen := map[string]bool{}
	for _, s := range [][]Source{{}, {a}, {b}, {a, b}, {{"a", b.Text}}, {{"a", []byte("// 1\n// 2\n")}}, {{"ab", []byte("// 1\n")}}} {
		d := load(s...)
		if len(d) != 64 || seen[d] {
			t.Errorf("%v: digest %s is short or not unique", s, d)
		}
		seen[d] = true
	}
}

func TestSchema(t *testing.T) {
	text, err := Schema(testActions())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`entity Agent`, `"git.push"`, `"pack:git"`, `ref`, `_opaque`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("no %s in\n%s", part, text)
		}
	}
	if strings.Contains(string(text), "score") {
		t.Error("a number has a type")
	}
}

func TestConcurrent(t *testing.T) {
	e := load(t, permitPush+askMain)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				ref, effect := "main", bailey.Ask
				if i%2 == 0 {
					ref, effect = "dev", bailey.Allow
				}
				if d := e.Decide(push("ref", ref)); d.Effect != effect {
					t.Errorf("%s: %v", ref, d.Effect)
				}
				e.Examine(push("ref", ref))
			}
		})
	}
	wg.Wait()
}

func TestErrorKind(t *testing.T) {
	_, err := tryLoad("permit (principal, action, resource);")
	var e *bailey.Error
	if !errors.As(err, &e) || bailey.KindOf(err) != bailey.Invalid || e.Hint == "" {
		t.Errorf("%v", err)
	}
}
