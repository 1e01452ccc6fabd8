package review

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/policy"
)

const pushSchema = `{"type":"object","additionalProperties":false,"required":["repo"],"properties":{
	"repo":{"type":"string"},"ref":{"type":"string"},"force":{"type":"boolean"},"depth":{"type":"integer"},
	"tags":{"type":"array","items":{"type":"string"}},"ports":{"type":"array","items":{"type":"integer"}},
	"score":{"type":"number"},"mixed":{"type":"array","items":{"oneOf":[{"type":"string"},{"type":"integer"}]}},
	"maybe":{"type":["string","null"]},"_opaque":{"type":"string"},
	"meta":{"type":"object","required":["owner"],"properties":{"owner":{"type":"string"},"weight":{"type":"number"},
		"inner":{"type":"object","properties":{"n":{"type":"integer"}}}}}}}`

func testActions() []policy.Action {
	repo := json.RawMessage(`{"type":"object","required":["repo"],"properties":{"repo":{"type":"string"},"limit":{"type":"integer"}}}`)
	return []policy.Action{
		{ID: "git.status", Pack: "git", SideEffect: "readOnly", Risk: "low", Reversibility: "readOnly", InputSchema: repo, BuiltIn: true},
		{ID: "git.push", Pack: "git", SideEffect: "mutating", Risk: "high", Reversibility: "externallyReversible", InputSchema: json.RawMessage(pushSchema), BuiltIn: true},
		{ID: "system.echo", Pack: "base", SideEffect: "none", Risk: "low", Reversibility: "readOnly", InputSchema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}}}`), BuiltIn: true},
		{ID: "disk.wipe", Pack: "disk", SideEffect: "destructive", Risk: "critical", Reversibility: "irreversible"},
		{ID: "other.look", Pack: "other", SideEffect: "readOnly", Risk: "low", Reversibility: "readOnly"},
	}
}

func load(t testing.TB, texts ...string) *policy.Engine {
	t.Helper()
	e, err := tryLoad(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func tryLoad(texts ...string) (*policy.Engine, error) {
	c := policy.Config{Actions: testActions()}
	for i, s := range texts {
		c.Sources = append(c.Sources, policy.Source{Name: string(rune('a'+i)) + ".cedar", Text: []byte(s)})
	}
	return policy.Load(c)
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

// given returns a push into whose input secrets of these categories were restored.
func given(categories ...string) bailey.Request {
	r := push()
	r.Restores = categories
	return r
}

func when(cond string) string {
	return `@id("r") permit (principal, action == Action::"git.push", resource) when { ` + cond + ` };`
}

// blanketForbid returns an unconditional forbid of some actions.
func blanketForbid(action string) string {
	return `@id("never") @reason("x") forbid (principal, action ` + action + `, resource);` + "\n"
}

type dice struct{ *rand.Rand }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func (d dice) rule(i int) string {
	id := fmt.Sprintf("r%d", i)
	scope := pick(d, ``, ` == Action::"git.push"`, ` == Action::"git.status"`, ` == Action::"disk.wipe"`, ` in Action::"pack:git"`,
		` in Action::"sideEffect:readOnly"`, ` in Action::"risk:low"`, ` in Action::"builtin"`, ` in Action::"disk.wipe"`,
		` in [Action::"git.push", Action::"pack:disk"]`, ` in [Action::"risk:medium", Action::"other.look"]`)
	who := pick(d, `principal`, `principal == Agent::"claude"`, `principal == Agent::"codex"`)
	what := pick(d, `resource`, `resource == Target::"local"`, `resource == Target::"host:web1"`)
	cond := pick(d, `context.cage == "full"`, `context.cage == "none"`, `context.time.hour > 12`, `principal.roles.contains("sre")`,
		`context.writes`, `context.unattended`, `context.time.epoch * context.time.epoch * context.time.epoch > 0`,
		`action in Action::"pack:git"`, `context.dir like "/w*"`)
	clause := pick(d, ``, fmt.Sprintf(` when { %s }`, cond), fmt.Sprintf(` unless { %s }`, cond))
	head := fmt.Sprintf("@id(%q) @reason(%q) ", id, id)
	switch d.IntN(6) {
	case 0, 1, 2:
		return fmt.Sprintf("%s permit (%s, action%s, %s)%s;\n", head, who, scope, what, clause)
	case 3:
		return fmt.Sprintf("%s forbid (%s, action%s, %s)%s;\n", head, who, scope, what, pick(d, clause, ` when { context.cage == "none" }`))
	}
	grant := fmt.Sprintf("context.approvals.contains(%q)", id)
	grant = pick(d, grant, grant, grant+" && "+cond, cond+" && "+grant)
	return fmt.Sprintf("%s @approval(\"role=sre\") forbid (%s, action%s, %s)%s unless { %s };\n", head, who, scope, what, clause, grant)
}

func (d dice) request() bailey.Request {
	r := request(pick(d, testActions()...).ID, nil)
	if strings.HasPrefix(string(r.Capability), "git.") {
		r.Input = map[string]any{"repo": "."}
	}
	if d.IntN(4) == 0 {
		r.Input = map[string]any{"repo": ".", "odd": 1.5}
	}
	r.Principal.Agent = pick(d, "claude", "codex")
	r.Principal.Roles = pick(d, nil, []string{"sre"})
	r.Target = pick(d, bailey.Target{Kind: "local"}, bailey.Target{Kind: "host", Name: "web1"})
	r.Cage = pick(d, "full", "none")
	r.Session.Unattended = d.IntN(4) == 0
	r.Time = pick(d, r.Time, r.Time.Add(12*time.Hour), time.Unix(9, 0).UTC())
	for i := range 12 {
		if d.IntN(6) == 0 {
			r.Approvals = append(r.Approvals, bailey.RuleID(fmt.Sprintf("r%d", i)))
		}
	}
	return r
}

// seeded returns a random source with a fixed seed.
func seeded(n uint64) dice { return dice{rand.New(rand.NewPCG(n, 1))} }

func loads(text string) bool {
	_, err := tryLoad(text)
	return err == nil
}

func manyRules(bytes int) string {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, "@id(\"r%d\") permit (principal, action == Action::\"git.push\", resource) when { context.dir == \"/w/%d\" };\n", i, i)
	}
	return b.String()
}
