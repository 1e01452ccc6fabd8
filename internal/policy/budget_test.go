package policy

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"bailey"
)

// TestBudgets: what a file of budgets says, with its defaults, and groups written out.
func TestBudgets(t *testing.T) {
	e := load(t, permitPush+askMain)
	text := `# what agents may use up
budgets:
  - id: all
    calls: 10
  - id: push-a-day
    capabilities: [git.push, "sideEffect:readOnly"]
    agents: [claude, cursor]
    per: [agent, capability]
    within: 24h
    concurrent: 2
    wall: 10m
    cpu: 90s
    output: 64KiB
  - {id: bytes, per: session, output: 4096}
`
	got, err := e.Budgets(Source{"budgets.yaml", []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	want := []bailey.Budget{
		{ID: "all", Source: "budgets.yaml:3", Session: true, Calls: 10},
		{ID: "push-a-day", Source: "budgets.yaml:5", Capabilities: []bailey.CapabilityID{"git.push", "git.status", "other.look"}, Agents: []string{"claude", "cursor"},
			Agent: true, Capability: true, Within: 24 * time.Hour, Concurrent: 2, Wall: 10 * time.Minute, CPU: 90 * time.Second, Output: 64 << 10},
		{ID: "bytes", Source: "budgets.yaml:14", Session: true, Output: 4096},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if b, err := e.Budgets(StarterBudgets()); err != nil || b != nil {
		t.Errorf("the starter's: %v, %v", b, err)
	}
}

// TestBudgetsRefused: what bounds nothing, never ends, or cannot be read is a fault with its place.
func TestBudgetsRefused(t *testing.T) {
	e := load(t, permitPush+askMain)
	for text, want := range map[string]string{
		"budgets: {}": "budgets.yaml:1:", "budgets:\n- x": "budgets.yaml:2:3: a budget wants keys and values",
		"budgets:\n- {id: a}":                                          "bounds nothing",
		"budgets:\n- {calls: 1}":                                       "wants an id",
		"budgets:\n- {id: Ab, calls: 1}":                               "wants an id",
		"budgets:\n- {id: a, calls: 0}":                                "wants a whole number from 1",
		"budgets:\n- {id: a, calls: -3}":                               "wants a whole number from 1",
		"budgets:\n- {id: a, calls: 1.5}":                              "wants a whole number",
		"budgets:\n- {id: a, calls: 9999999999}":                       "wants a whole number",
		"budgets:\n- {id: a, calls: \"3\"}":                            "wants a whole number",
		"budgets:\n- {id: a, wall: 10}":                                "wants a span of time",
		"budgets:\n- {id: a, wall: -1s}":                               "wants a span of time",
		"budgets:\n- {id: a, wall: 10000h}":                            "wants a span of time",
		"budgets:\n- {id: a, output: 3MB}":                             "wants bytes",
		"budgets:\n- {id: a, output: 99999999999GiB}":                  "wants bytes",
		"budgets:\n- {id: a, per: agent, calls: 3}":                    "would be used up for ever",
		"budgets:\n- {id: a, per: person, calls: 3}":                   "per is session, agent or capability",
		"budgets:\n- {id: a, calls: 3, capabilities: [git.psuh]}":      `"git.psuh" is no capability`,
		"budgets:\n- {id: a, calls: 3, capabilities: []}":              "leave it out for all",
		"budgets:\n- {id: a, calls: 3, call: 4}":                       `"call" is no key of a budget`,
		"budgets:\n- {id: a, calls: 3}\n- {id: a, calls: 4}":           "there are two budgets a",
		"budgets:\n- {id: a, calls: 3, calls: 4}":                      "calls stands here twice",
		"budgets:\n- &a {id: a, calls: 3}\n- *a":                       "anchors",
		"limits: []":                                                   `"limits" is no key of a file of budgets`,
		"budgets:\n- {id: a, calls: 3, agents: [\"cla\\u202eude\"]}\n": "visible",
	} {
		if b, err := e.Budgets(Source{"budgets.yaml", []byte(text)}); bailey.KindOf(err) != bailey.Invalid || len(b) > 0 || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "budgets.yaml") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzBudgets(f *testing.F) {
	f.Add("budgets:\n- {id: a, per: agent, within: 24h, calls: 3, wall: 1m, cpu: 1s, output: 3MiB, concurrent: 2, capabilities: [git.push], agents: [x]}\n")
	f.Add("budgets: []\n")
	e := load(f, permitPush+askMain)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := e.Budgets(Source{"b.yaml", []byte(text)})
		if err != nil {
			if len(list) != 0 || !strings.HasPrefix(err.Error(), "b.yaml") || strings.ContainsFunc(err.Error(), hidden) {
				t.Fatalf("%d budgets, %q", len(list), err)
			}
			return
		}
		for _, b := range list {
			if b.Calls < 0 || b.Concurrent < 0 || b.Wall < 0 || b.CPU < 0 || b.Output < 0 || b.Calls+b.Concurrent == 0 && b.Wall+b.CPU == 0 && b.Output == 0 {
				t.Fatalf("%+v", b)
			}
		}
	})
}
