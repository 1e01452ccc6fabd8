package cedar

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/cedar-policy/cedar-go"

	"bailey"
	"bailey/internal/policy"
)

// kind is a type of Cedar that rules can use here.
type kind uint8

const (
	boolean kind = iota
	long
	str
	strs
	longs
	rec
	agent
	target
	act
	kinds
)

// attr is an attribute of a request that a rule can read.
type attr struct {
	path     string // as a Cedar expression
	kind     kind
	optional string // as a `has` test, if it may be absent
}

// capability is an action with the attributes of its input.
type capability struct {
	policy.Action
	input []attr
	typed map[string]kind // property name → type; a required name ends in "!"
}

// capabilities have inputs of every type, and names that must be quoted in Cedar.
func capabilities() []capability {
	one := func(id, pack, side, risk, back, schema string, typed map[string]kind, input ...attr) capability {
		return capability{policy.Action{ID: bailey.CapabilityID(id), Pack: pack, SideEffect: side, Risk: risk, Reversibility: back, InputSchema: json.RawMessage(schema), BuiltIn: pack == "git"}, input, typed}
	}
	return []capability{
		one("git.push", "git", "mutating", "high", "externallyReversible", `{"type":"object","required":["repo"],"properties":{
			"repo":{"type":"string"},"ref":{"type":"string"},"force":{"type":"boolean"},"depth":{"type":"integer"},
			"tags":{"type":"array","items":{"type":"string"}},"ports":{"type":"array","items":{"type":"integer"}},
			"meta":{"type":"object","required":["owner"],"properties":{"owner":{"type":"string"},"n":{"type":"integer"}}}}}`,
			map[string]kind{"repo!": str, "ref": str, "force": boolean, "depth": long, "tags": strs, "ports": longs, "meta": rec},
			attr{"context.input.repo", str, ""}, attr{"context.input.ref", str, "context.input has ref"}, attr{"context.input.force", boolean, "context.input has force"},
			attr{"context.input.depth", long, `context.input has "depth"`}, attr{"context.input.tags", strs, "context.input has tags"},
			attr{"context.input.ports", longs, "context.input has ports"}, attr{"context.input.meta.owner", str, "context.input has meta"},
			attr{"context.input.meta.n", long, "context.input has meta && context.input.meta has n"}, attr{`context.input.meta["n"]`, long, "context.input has meta.n"},
			attr{"context.input.meta", rec, "context.input has meta"}),
		one("odd.names", "odd", "additive", "medium", "reversible", `{"type":"object","required":["a b","if"],"properties":{
			"a b":{"type":"string"},"if":{"type":"integer"},"ünï":{"type":"string"},"quo\"te":{"type":"boolean"},"1st":{"type":"string"},"":{"type":"string"},"__x":{"type":"integer"}}}`,
			map[string]kind{"a b!": str, "if!": long, "ünï": str, `quo"te`: boolean, "1st": str, "": str, "__x": long},
			attr{`context.input["a b"]`, str, ""}, attr{`context.input["if"]`, long, ""}, attr{`context.input["ünï"]`, str, `context.input has "ünï"`},
			attr{`context["input"]["\u{fc}n\u{ef}"]`, str, `context.input has "\u{fc}n\u{ef}"`}, attr{`context.input["quo\"te"]`, boolean, `context.input has "quo\"te"`},
			attr{`context.input["1st"]`, str, `context.input has "1st"`}, attr{`context.input[""]`, str, `context.input has ""`}, attr{"context.input.__x", long, "context.input has __x"}),
		one("git.status", "git", "readOnly", "low", "readOnly", `{"type":"object","required":["repo"],"properties":{"repo":{"type":"string"},"limit":{"type":"integer"}}}`,
			map[string]kind{"repo!": str, "limit": long}, attr{"context.input.repo", str, ""}, attr{"context.input.limit", long, "context.input has limit"}),
		one("disk.wipe", "disk", "destructive", "high", "irreversible", ``, nil),
		one("other.look", "other", "none", "low", "readOnly", `{"type":"object","properties":{"n":{"type":"number"}}}`, map[string]kind{}),
	}
}

// everywhere returns the attributes of every action.
func everywhere() []attr {
	return []attr{
		{"context.dir", str, ""}, {"context.cage", str, ""}, {"context.profile", str, ""}, {`context["environment"]`, str, ""}, {"context.session.id", str, ""},
		{"principal.person", str, ""}, {"principal.organisation", str, ""}, {"resource.kind", str, ""}, {"resource.name", str, ""},
		{"context.paths", strs, ""}, {"context.absent", strs, ""}, {"context.restores", strs, ""}, {"context.egress", strs, ""}, {"context.waivers", strs, ""}, {"principal.roles", strs, ""}, {"context.input._opaque", strs, ""},
		{"context.changed", boolean, ""}, {"context.writes", boolean, ""}, {"context.unattended", boolean, ""}, {"context.session.unattended", boolean, ""},
		{"context.time.epoch", long, ""}, {"context.time.hour", long, ""}, {`context.time["weekday"]`, long, ""},
		{"context.session", rec, ""}, {"context.time", rec, ""}, {"context.input", rec, ""},
	}
}

// words returns the strings of requests and of many rules.
func words() []string {
	return []string{"", "a", "ab", "a*b", "main", "full", "none", "sre", "/w/repo", "ünï", "u\u0308", "ü", "😀", "a\nb", "tab\there", `quo"te\`, "\x00", "PASSWORD", "ı", "İ"}
}

// numbers returns integers that fit a JSON number of 53 bits, because the oracle reads no others.
func numbers() []int64 {
	return []int64{0, 1, -1, 2, 12, 23, 1 << 31, 3037000500, 1<<53 - 1, -(1<<53 - 1)}
}

type dice struct{ *rand.Rand }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// some returns a few of the elements, possibly with repetitions.
func some[T any](d dice, of []T) (out []T) {
	for range d.IntN(4) {
		out = append(out, pick(d, of...))
	}
	return out
}

// request returns a random call, and its context according to the documentation of package policy.
func (d dice) request(ids []string) (bailey.Request, question) {
	c := pick(d, capabilities()...)
	in, seen, unseen := d.input(c)
	w := words()
	r := bailey.Request{
		Capability: c.ID, Input: in,
		Principal: bailey.Principal{Agent: pick(d, "claude", "codex", "ünï"), Person: pick(d, w...), Organisation: pick(d, "", "acme"), Roles: some(d, w)},
		Session:   bailey.Session{ID: bailey.SessionID(pick(d, w...)), Unattended: d.IntN(3) == 0},
		Target:    pick(d, bailey.Target{Kind: "local"}, bailey.Target{Kind: "host", Name: "web1"}, bailey.Target{Kind: "sandbox", Name: "box-1"}),
		Dir:       pick(d, w...), Cage: pick(d, "full", "none", "landlock"), Profile: pick(d, w...), Environ: pick(d, w...),
		Absent: some(d, w), Changed: d.IntN(8) == 0, Writes: d.IntN(3) == 0, Paths: map[string]string{},
		Time: time.Unix(1700000000+int64(d.IntN(1e7)), 0),
	}
	if d.IntN(4) == 0 {
		r.Restores = some(d, []string{"PASSWORD", "JWT", "a"})
	}
	if d.IntN(4) == 0 {
		r.Egress = some(d, []string{"a.example:443", "*.b.example:443", "a"})
		r.Waivers = some(d, []string{"fs.exec", "isolation"})
	}
	for i, p := range some(d, w) {
		r.Paths["p"+strconv.Itoa(i)] = p
	}
	for _, id := range append(ids, "opaque-input", "changed-tool") {
		if d.IntN(4) == 0 {
			r.Approvals = append(r.Approvals, bailey.RuleID(id))
		}
	}
	seen["_opaque"] = list(unseen)
	return r, d.question(c, r, seen)
}

// input returns values that fit the schema, and some that no rule can see.
func (d dice) input(c capability) (in, seen map[string]any, unseen []string) {
	in, seen = map[string]any{}, map[string]any{}
	// in a fixed order, so that a seed always gives the same case
	for _, name := range slices.Sorted(maps.Keys(c.typed)) {
		k := c.typed[name]
		plain, required := name, false
		if name != "" && name[len(name)-1] == '!' {
			plain, required = name[:len(name)-1], true
		}
		if !required && d.IntN(2) == 0 {
			continue
		}
		if k == rec {
			m := map[string]any{"owner": pick(d, words()...)}
			if d.IntN(2) == 0 {
				m["n"] = pick(d, numbers()...)
			}
			in[plain], seen[plain] = m, m
			continue
		}
		v := d.value(k)
		in[plain], seen[plain] = v, v
	}
	if d.IntN(6) == 0 {
		in["extra"] = 1.5
		unseen = append(unseen, "extra")
	}
	return in, seen, unseen
}

func (d dice) value(k kind) any {
	switch k {
	case boolean:
		return d.IntN(2) == 0
	case long:
		return pick(d, numbers()...)
	case strs:
		return list(some(d, words()))
	case longs:
		return list(some(d, numbers()))
	}
	return pick(d, words()...)
}

func list[T any](in []T) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = v
	}
	return out
}

// value returns the Cedar value of a JSON value. A context contains no entities.
func value(v any) cedar.Value {
	switch v := v.(type) {
	case bool:
		return cedar.Boolean(v)
	case int64:
		return cedar.Long(v)
	case string:
		return cedar.String(v)
	case []any:
		out := make([]cedar.Value, len(v))
		for i, e := range v {
			out[i] = value(e)
		}
		return cedar.NewSet(out...)
	case map[string]any:
		return record(v)
	}
	panic("no value of Cedar's")
}

func record(m map[string]any) cedar.Record {
	out := cedar.RecordMap{}
	for k, e := range m {
		out[cedar.String(k)] = value(e)
	}
	return cedar.NewRecord(out)
}
