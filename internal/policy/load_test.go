package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"

	"bailey"
)

func when(cond string) string {
	return `@id("r") permit (principal, action == Action::"git.push", resource) when { ` + cond + ` };`
}

func asking(tail string) string {
	return `@id("r") @reason("x") @approval("count=1") forbid (principal, action == Action::"git.push", resource) ` + tail + `;`
}

// TestRefused checks that none of these texts loads, and that the error names the place and the cause.
func TestRefused(t *testing.T) {
	const own = `unless { context.approvals.contains("r") }`
	for _, c := range []struct{ name, text, want string }{
		{"no id", `permit (principal, action, resource);`, "a.cedar:1: rule: has no @id"},
		{"empty id", `@id("") permit (principal, action, resource);`, "@id("},
		{"bare id", `@id permit (principal, action, resource);`, "@id("},
		{"upper case id", `@id("Main") permit (principal, action, resource);`, `@id("Main")`},
		{"homoglyph id", `@id("mаin") permit (principal, action, resource);`, "@id("},
		{"id with a newline", `@id("a\nb") permit (principal, action, resource);`, "@id("},
		{"long id", `@id("` + strings.Repeat("a", 65) + `") permit (principal, action, resource);`, "@id("},
		{"same id", permitAll + "\n" + permitAll, "a.cedar:3: rule all: has the same @id as the rule at a.cedar:1"},
		{"forbid without reason", `@id("r") forbid (principal, action, resource);`, "without @reason"},
		{"empty reason", `@id("r") @reason("") permit (principal, action, resource);`, "@reason must be"},
		{"escape in reason", `@id("r") @reason("\u{1b}[2J") permit (principal, action, resource);`, "@reason must be"},
		{"two lines of reason", `@id("r") @reason("a\nb") permit (principal, action, resource);`, "@reason must be"},
		{"misspelled annotation", `@id("r") @aproval("count=1") permit (principal, action, resource);`, "@aproval is not a known annotation"},
		{"annotation twice", `@id("r") @id("s") permit (principal, action, resource);`, "duplicate annotation"},
		{"permit that asks", `@id("r") @approval("count=1") permit (principal, action, resource);`, "only a forbid can ask"},

		{"syntax", "\n\n" + `@id("r") permit (principal, action resource);`, "a.cedar:3: "},
		{"no semicolon", `@id("r") permit (principal, action, resource)`, "a.cedar:1: "},
		{"open string", "\n" + `@id("r`, "a.cedar:2: "},
		{"open comment", `/* `, "a.cedar:1: "},
		{"truncated", permitAll[:20], "a.cedar:1: "},
		{"invalid UTF-8", "\n// \xff", "a.cedar:2: invalid UTF-8"},
		{"NUL", "\n\x00", "a.cedar:2: invisible character U+0000"},
		{"bidi", "// a \u202e b", "invisible character U+202E"},
		{"zero width", `@id("r` + "\u200b" + `") permit (principal, action, resource);`, "invisible character U+200B"},
		{"byte order mark", "\ufeff" + permitAll, "invisible character U+FEFF"},

		{"unknown action", `@id("r") permit (principal, action == Action::"git.pull", resource);`, `unrecognized action`},
		{"case variant of an action", `@id("r") permit (principal, action == Action::"git.Push", resource);`, `unrecognized action`},
		{"misspelt action", `@id("r") permit (principal, action == Action::"git.psuh", resource);`, `did you mean Action::"git.push"?`},
		{"misspelt group", `@id("r") permit (principal, action in Action::"risk:lwo", resource);`, `did you mean Action::"risk:low"?`},
		{"homoglyph of an action", `@id("r") permit (principal, action == Action::"gіt.push", resource);`, `unrecognized action`},
		{"unknown action in a list", `@id("r") permit (principal, action in [Action::"git.push", Action::"git.pull"], resource);`, `unrecognized action`},
		{"unknown action in a condition", `@id("r") permit (principal, action, resource) when { action == Action::"git.pull" };`, `unrecognized action`},
		{"unknown group", `@id("r") permit (principal, action in Action::"pack:nope", resource);`, `unrecognized action`},
		{"unknown class", `@id("r") permit (principal, action in Action::"risk:none", resource);`, `unrecognized action`},
		{"equal to a group", `@id("r") permit (principal, action == Action::"pack:git", resource);`, `unable to find an applicable action`},
		{"equal to an empty group", `@id("r") permit (principal, action == Action::"risk:medium", resource);`, `unable to find an applicable action`},
		{"empty list", `@id("r") permit (principal, action in [], resource);`, `empty set`},
		{"unknown principal type", `@id("r") permit (principal == User::"x", action, resource);`, "unrecognized entity type"},
		{"target as principal", `@id("r") permit (principal == Target::"local", action, resource);`, "unable to find an applicable action"},

		{"optional without has", when(`context.input.ref == "main"`), "unable to guarantee safety of access to optional attribute `input.ref`"},
		{"has in another clause", when(`context.input has ref }  when { context.input.ref == "main"`), "unable to guarantee safety"},
		{"has after use", when(`context.input.ref == "main" && context.input has ref`), "unable to guarantee safety"},
		{"has or use", when(`context.input has ref || context.input.ref == "main"`), "unable to guarantee safety"},
		{"optional inside", when(`context.input has meta && context.input.meta.inner has n`), "unable to guarantee safety"},
		{"unknown input", when(`context.input.reff == "main"`), "`reff`"},
		{"unknown input under has", when(`context.input has reff && context.input.reff == "main"`), "false for every call"},
		{"always false", when(`1 == 2`), "false for every call"},
		{"unless true", `@id("r") @reason("x") forbid (principal, action, resource) unless { true };`, "false for every call"},
		{"unmapped input", when(`context.input has score`), "false for every call"},
		{"input of another action", `@id("r") permit (principal, action == Action::"git.status", resource) when { context.input.ref == "main" };`, "`ref`"},
		{"required of one action only", `@id("r") permit (principal, action, resource) when { context.input.repo == "." };`, "`repo`"},
		{"wrong type", when(`context.input.repo == 1`), "type"},
		{"not a Bool", when(`context.input.repo`), "expected Bool"},
		{"unknown context", when(`context.cagge == "full"`), "`cagge`"},
		{"unknown attribute", when(`principal.email == "a"`), "`email`"},
		{"unknown function", when(`foo("a")`), "not a function"},
		{"empty set", when(`context.restores == []`), "empty set"},
		{"huge literal", when(`context.time.hour < 9223372036854775808`), "a.cedar:1: "},

		{"approvals in a permit", when(`context.approvals.contains("r")`), "context.approvals is allowed only"},
		{"approvals in an unless of a permit", `@id("r") permit (principal, action, resource) unless { context.approvals.contains("r") };`, "context.approvals is allowed only"},
		{"approvals in when", asking(`when { context.approvals.contains("r") } ` + own), "context.approvals is allowed only"},
		{"negated", asking(`unless { !context.approvals.contains("r") } ` + own), "context.approvals is allowed only"},
		{"not in when", asking(`when { !context.approvals.contains("r") }`), "context.approvals is allowed only"},
		{"or", asking(`unless { context.unattended || context.approvals.contains("r") }`), "context.approvals is allowed only"},
		{"or beside own", asking(own + ` unless { context.unattended || context.approvals.contains("r") }`), "context.approvals is allowed only"},
		{"another's id", asking(`unless { context.approvals.contains("s") }`), "context.approvals is allowed only"},
		{"case variant", asking(`unless { context.approvals.contains("R") }`), "context.approvals is allowed only"},
		{"computed id", asking(`unless { context.approvals.contains(context.dir) }`), "context.approvals is allowed only"},
		{"containsAll", asking(`unless { context.approvals.containsAll(["r"]) }`), "context.approvals is allowed only"},
		{"containsAny", asking(`unless { context.approvals.containsAny(["r"]) }`), "context.approvals is allowed only"},
		{"isEmpty", asking(`unless { context.approvals.isEmpty() }`), "context.approvals is allowed only"},
		{"index", asking(`when { !context["approvals"].contains("r") } ` + own), "context.approvals is allowed only"},
		{"has", asking(`when { context has approvals } ` + own), "context.approvals is allowed only"},
		{"equality", asking(`when { context.approvals == context.restores } ` + own), "context.approvals is allowed only"},
		{"through a record", asking(`when { !{c: context}.c.approvals.contains("r") } ` + own), "context is used without an attribute"},
		{"through a choice", asking(`when { (if true then context else context).approvals.contains("r") } ` + own), "context is used without an attribute"},
		{"through a set", asking(`when { [context].contains(context) } ` + own), "context is used without an attribute"},
		{"asks without a grant", asking(``), "no approval lifts it"},
		{"grant without asking", `@id("r") @reason("x") forbid (principal, action, resource) ` + own + `;`, "context.approvals is allowed only"},
		{"unknown target", `@id("r") permit (principal, action, resource == Target::"lokal");`, `no call has the target Target::"lokal"`},
		{"case variant of a target", `@id("r") permit (principal, action, resource == Target::"Local");`, `no call has the target`},
		{"target without a name", `@id("r") permit (principal, action, resource in Target::"host:");`, `no call has the target`},
		{"name of this machine", `@id("r") permit (principal, action, resource == Target::"local:web1");`, `no call has the target`},
		{"unknown target in a condition", when(`[Target::"local", Target::"vm:a"].contains(resource)`), `no call has the target Target::"vm:a"`},
		{"unknown kind of target", when(`context.writes && "lokal" == resource.kind`), `no target is of kind "lokal"`},
		{"agent without a name", `@id("r") permit (principal == Agent::"", action, resource);`, `no call comes from Agent::""`},
		{"permit under a blanket forbid", permitPush + blanketForbid(""), "a.cedar:1: rule push: allows nothing: every call that it covers is denied by the forbid never at a.cedar:2"},
		{"asking rule under a blanket forbid", askMain + "\n" + blanketForbid(""), "a.cedar:1: rule main-needs-human: asks for nothing: every call that it covers is denied by the forbid never at a.cedar:6"},
		{"is in", when(`principal is Agent in Agent::"x"`), "`is … in`"},
		{"permit in the built-in's place", `@id("opaque-input") permit (principal, action, resource);`, "built-in forbid"},
		{"permit in the other built-in's place", `@id("changed-tool") permit (principal, action, resource);`, "built-in forbid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := tryLoad(c.text)
			if err == nil {
				t.Fatal("loads")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwants %q", err, c.want)
			}
			if !strings.Contains(err.Error(), "\n  a.cedar:") {
				t.Errorf("%v\nnames no place", err)
			}
		})
	}
}

// blanketForbid returns an unconditional forbid of some actions.
func blanketForbid(action string) string {
	return `@id("never") @reason("x") forbid (principal, action ` + action + `, resource);` + "\n"
}

// TestShadowed checks that a permit is reported if unconditional forbids cover all its calls, for every way in which
// one scope includes another. No rule that can still decide a call may be reported.
func TestShadowed(t *testing.T) {
	head := func(id, what, principal, action, resource string) string {
		return fmt.Sprintf("@id(%q) @reason(\"x\") %s (%s, %s, %s)", id, what, principal, action, resource)
	}
	const p, a, r = "principal", "action", "resource"
	const claude, push, local = `principal == Agent::"claude"`, `action == Action::"git.push"`, `resource == Target::"local"`
	for _, c := range []struct {
		rule, forbid string
		want         bool
	}{
		{head("r", "permit", p, a, r), head("f", "forbid", p, a, r), true},
		{head("r", "permit", p, push, r), head("f", "forbid", p, a, r) + " when { true } unless { false }", true},
		{head("r", "permit", p, push, r) + ` when { context.writes }`, head("f", "forbid", p, `action in Action::"pack:git"`, r), true},
		{head("r", "permit", claude, push, local), head("f", "forbid", `principal is Agent`, `action in Action::"risk:high"`, r), true},
		{head("r", "permit", claude, push, local), head("f", "forbid", `principal in Agent::"claude"`, push, `resource in Target::"local"`), true},
		{head("r", "permit", p, `action in [Action::"git.push", Action::"disk.wipe"]`, r), head("f", "forbid", p, `action in [Action::"disk.wipe", Action::"pack:git"]`, r), true},
		{head("r", "permit", p, `action in Action::"pack:git"`, r), head("f", "forbid", p, `action in Action::"builtin"`, r), true},
		{head("r", "permit", p, `action in Action::"pack:git"`, r), head("f", "forbid", p, `action in [Action::"git.push", Action::"git.status"]`, r), true},

		{head("r", "permit", p, a, r), head("f", "forbid", p, push, r), false},
		{head("r", "permit", p, push, r), head("f", "forbid", p, push, r) + ` when { context.writes }`, false},
		{head("r", "permit", p, push, r), head("f", "forbid", p, push, r) + ` when { true } unless { context.writes }`, false},
		{head("r", "permit", p, push, r), head("f", "forbid", claude, push, r), false},
		{head("r", "permit", p, push, r), head("f", "forbid", p, push, local), false},
		{head("r", "permit", claude, push, r), head("f", "forbid", `principal == Agent::"codex"`, push, r), false},
		{head("r", "permit", p, push, local), head("f", "forbid", p, push, `resource == Target::"host:web1"`), false},
		{head("r", "permit", p, `action in [Action::"git.push", Action::"disk.wipe"]`, r), head("f", "forbid", p, `action in Action::"pack:git"`, r), false},
		{head("r", "permit", p, `action in Action::"pack:git"`, r), head("f", "forbid", p, `action in [Action::"git.push"]`, r), false},
		{head("r", "permit", p, `action in Action::"sideEffect:destructive"`, r), head("f", "forbid", p, `action == Action::"disk.wipe"`, r), false},
		{head("r", "permit", p, `action in Action::"sideEffect:additive"`, r), head("f", "forbid", p, `action in Action::"builtin"`, r), false},
		{head("r", "forbid", p, push, r), head("f", "forbid", p, a, r), false},
		{"", head("f", "forbid", p, a, r), false}, // the built-in rules are not reported either
	} {
		text := c.forbid + ";\n"
		if c.rule != "" {
			text += c.rule + ";\n"
		}
		_, err := tryLoad(text)
		switch {
		case !c.want && err != nil:
			t.Errorf("%s%v", text, err)
		case c.want && (err == nil || !strings.Contains(err.Error(), "a.cedar:2: rule r: allows nothing: every call that it covers is denied by the forbid f at a.cedar:1")):
			t.Errorf("%sfound: %v", text, err)
		}
	}
	two := head("f", "forbid", p, push, r) + ";\n" + head("g", "forbid", p, `action == Action::"disk.wipe"`, r) + ";\n"
	_, err := tryLoad(two + head("r", "permit", p, `action in [Action::"git.push", Action::"disk.wipe"]`, r) + ";")
	if err == nil || !strings.Contains(err.Error(), "the forbid f at a.cedar:1, the forbid g at a.cedar:2") {
		t.Errorf("two forbids that divide a permit between them: %v", err)
	}
}

// TestLoads checks texts that look unusual but are valid.
func TestLoads(t *testing.T) {
	for _, text := range []string{
		"", " \n\t", "// only a comment", "/* a; b { */",
		`@id("r") permit (principal, action in Action::"sideEffect:additive", resource) when { context.cage == "full" };`,
		`@id("r") permit (principal, action in [Action::"pack:git", Action::"risk:medium"], resource);`,
		`@id("r") permit (principal is Agent, action, resource is Target) when { principal.roles.containsAny(["a", "b"]) };`,
		`@id("r") permit (principal, action, resource) when { action in Action::"git.push" && context.input.repo == "." };`,
		`@id("r") permit (principal, action in [Action::"git.push", Action::"git.status"], resource) when { context.input.repo like "/w/*" };`,
		when(`context.dir == "a;b{\"//\\"`),
		when(`context.dir == "приве́т"`),
		when(`resource.kind == "sandbox" || resource == Target::"host:web1"`),
		when(`context.input has meta && context.input.meta.owner == "x"`),
		asking(`unless { context.cage == "full" && (context.approvals.contains("r") && context.dir == "/w") }`),
	} {
		if _, err := tryLoad(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestEveryFinding(t *testing.T) {
	_, err := tryLoad("permit (principal, action, resource);\n"+when("context.x")+"\n"+asking(""), "\nnonsense", "@id(\"r\") permit (principal, action == Action::\"a.b\", resource);")
	for _, part := range []string{"a.cedar:1: rule: has no @id", "a.cedar:2: rule r: ", "a.cedar:3: rule r: asks", "a.cedar:3: rule r: has the same @id", "b.cedar:2: ", "c.cedar:1: rule r: "} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in %v", part, err)
		}
	}
	_, err = tryLoad(strings.Repeat("permit (principal, action, resource);\n", 60))
	if !strings.Contains(err.Error(), "and 10 more") {
		t.Error(err)
	}
}

func TestApprovalTerms(t *testing.T) {
	text := func(v string) string {
		return fmt.Sprintf(`@id("r") @reason("x") @approval(%q) forbid (principal, action, resource) unless { context.approvals.contains("r") };`, v)
	}
	for _, v := range []string{"", " ", ",", "role", "role=", "role=SRE", "role=sré", "role=a b", "count=0", "count=-1", "count=+1", "count=1.0", "count=17",
		"count=99999999999999999999", "count=", "ttl=0s", "ttl=-1m", "ttl=1", "ttl=1d", "ttl=1.5h", "ttl=25h", "ttl=1h30m", "ttl=999999h", "ttl=1µs", "role=a,role=b",
		"count=1,count=1", "role=a,", ",role=a", "role=a, count=1", "Role=a", "quorum=1", "role=a=b", "role=a;count=1", "rolе=a",
		"level", "level=", "level=any", "level=Local", "level=touch", "level=signed", "level=webauthn", "level=signed-touch ", "level=local,level=signed-touch", "Level=local",
		"for", "for=", "for=day", "for=session,for=session", "for=Session"} {
		if _, err := tryLoad(text(v)); err == nil || !strings.Contains(err.Error(), "@approval(") {
			t.Errorf("%q: %v", v, err)
		}
	}
	for v, want := range map[string]string{
		"role=sre": "sre  1 10m0s", "count=16": "  16 10m0s", "ttl=24h": "  1 24h0m0s", "ttl=90s,count=2,role=a.b-c_d": "a.b-c_d  2 1m30s",
		"level=local": " local 1 10m0s", "level=signed-software": " signed-software 1 10m0s", "role=sre,level=signed-touch,count=2": "sre signed-touch 2 10m0s",
		"for=session": "  1 10m0s",
	} {
		e := load(t, permitAll+text(v))
		r := e.Decide(push()).Asks[0]
		if got := fmt.Sprintf("%s %s %d %v", r.Role, r.Level, r.Count, r.TTL); got != want || r.Session != (v == "for=session") {
			t.Errorf("%q: %s, want %s", v, got, want)
		}
	}
}

// TestHostileText checks that text that could exhaust the parser, the checks or the evaluator is refused or processed
// quickly.
func TestHostileText(t *testing.T) {
	ktest.Long(t)
	deep := func(open, close string, n int) string {
		return when(strings.Repeat(open, n) + "true" + strings.Repeat(close, n))
	}
	for name, text := range map[string]string{
		"parentheses":      deep("(", ")", 500_000),
		"just too deep":    deep("(", ")", maxDepth),
		"sets":             deep("[", "]", 300_000),
		"records":          deep("{a:", "}", 200_000),
		"unclosed":         strings.Repeat("(", 1<<20),
		"one MiB of rule":  when(`context.dir == "` + strings.Repeat("a", 1<<20) + `"`),
		"one MiB of list":  when("[" + strings.Repeat(`"a",`, 1<<18) + `"a"].contains("a")`),
		"too large a file": strings.Repeat(" ", maxSource+1),
		"nots":             when(strings.Repeat("!", maxRule-200) + "context.unattended"),
		"open string":      `"` + strings.Repeat("a", 1<<20),
	} {
		if _, err := tryLoad(text); err == nil || len(err.Error()) > 4096 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	for name, text := range map[string]string{
		"one MiB of rules":   manyRules(1 << 20),
		"one MiB of comment": "//" + strings.Repeat("a", 1<<20) + "\n" + permitAll,
		"ands":               when("context.writes" + strings.Repeat("&&context.writes", 3500)),
		"ors":                when("context.writes" + strings.Repeat("||context.writes", 3500)),
		"sums":               when("1" + strings.Repeat("+1", 30000) + " == context.time.hour"),
		"ifs":                when(strings.Repeat("if context.writes then true else ", 1500) + "false"),
		"names":              when("[" + strings.Repeat(`"aaaaaaaaaaaaa",`, 3000) + `"a"].contains(context.dir)`),
		"has":                when("context.input has ref" + strings.Repeat(" && context.input has ref", 2000)),
		"chain":              when("context.input has " + strings.Repeat("meta.", 2000) + "owner && true || context.writes"),
	} {
		start := time.Now()
		e, err := tryLoad(text)
		if err != nil {
			t.Errorf("%s: %.300v", name, err)
			continue
		}
		e.Decide(push())
		e.Examine(push())
		if d := time.Since(start); d > 2*time.Minute { // a second, unless the time is quadratic
			t.Errorf("%s took %v", name, d)
		} else if testing.Verbose() {
			t.Logf("%s: %v", name, d)
		}
	}
}

func manyRules(bytes int) string {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, "@id(\"r%d\") permit (principal, action == Action::\"git.push\", resource) when { context.dir == \"/w/%d\" };\n", i, i)
	}
	return b.String()
}

func TestSourceNames(t *testing.T) {
	for _, names := range [][]string{{""}, {"a", "a"}, {"a\nb"}, {"a\x1b[2J"}} {
		var c Config
		for _, n := range names {
			c.Sources = append(c.Sources, Source{Name: n})
		}
		if _, err := Load(c); err == nil {
			t.Errorf("%q load", names)
		}
	}
}

// TestRuleDigest checks that the digest of an asking rule depends on every part of its meaning, and on nothing else.
func TestRuleDigest(t *testing.T) {
	digest := func(text, ref string) string {
		t.Helper()
		d := load(t, permitPush+text).Decide(push("ref", ref))
		if d.Effect != bailey.Ask || len(d.Asks) != 1 || len(d.Asks[0].Digest) != 64 {
			t.Fatalf("%+v", d)
		}
		return d.Asks[0].Digest
	}
	base := digest(askMain, "main")
	if digest("// x\n"+strings.ReplaceAll(askMain, ", ", ",\n  "), "main") != base {
		t.Error("comments and white space change the digest")
	}
	for name, c := range map[string]struct{ old, now, ref string }{
		"the condition": {`== "main"`, `== "prod"`, "prod"}, "the count": {"count=2", "count=1", "main"}, "the role": {"role=sre,", "", "main"}, "the level": {"role=sre,", "role=sre,level=signed-touch,", "main"},
		"the time": {"ttl=5m", "ttl=6m", "main"}, "the reason": {"main is released", "main is main", "main"},
	} {
		if text := strings.Replace(askMain, c.old, c.now, 1); text == askMain || digest(text, c.ref) == base {
			t.Errorf("%s does not change the digest", name)
		}
	}
}
