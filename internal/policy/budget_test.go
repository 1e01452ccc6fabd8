package policy

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"bailey"
)

func readBudgets(t testing.TB, text string) ([]bailey.Budget, error) {
	t.Helper()
	return load(t, permitPush).Budgets(Source{"budgets.yaml", []byte(text)})
}

// TestBudgets checks that a budget file is read as written, that group names expand to their capabilities, and that an
// omitted limit bounds nothing.
func TestBudgets(t *testing.T) {
	got, err := readBudgets(t, `
budgets:
  - {id: looks, capabilities: [git.status, "pack:git"], per: [agent, capability], within: 24h, calls: 3, concurrent: 2}
  - id: a-session
    agents: [claude]
    wall: 2h
    cpu: 30m
    output: 200MiB
  - {id: few, per: agent, concurrent: 1}
`)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v %v", got, err)
	}
	if ids := got[0].Capabilities; len(ids) < 2 || ids[0] >= ids[1] {
		t.Errorf("%v", ids)
	}
	got[0].Capabilities = nil
	if want := []bailey.Budget{
		{ID: "looks", Source: "budgets.yaml:3", Agent: true, Capability: true, Within: 24 * time.Hour, Calls: 3, Concurrent: 2},
		{ID: "a-session", Source: "budgets.yaml:4", Session: true, Agents: []string{"claude"}, Wall: 2 * time.Hour, CPU: 30 * time.Minute, Output: 200 << 20},
		{ID: "few", Source: "budgets.yaml:9", Agent: true, Concurrent: 1},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, none := range []string{"", "budgets: []", "budgets:", "# nothing\n"} {
		if got, err := readBudgets(t, none); err != nil || len(got) != 0 {
			t.Errorf("%q: %+v %v", none, got, err)
		}
	}
}

// TestBudgetsRefused checks that a file is refused if one budget would bound nothing or could be misread.
func TestBudgetsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"budgets: [{id: a, per: agent, calls: 1}]":                           "is never refilled",
		"budgets: [{id: a}]":                                                 "has no limit",
		"budgets: [{calls: 1}]":                                              "needs an id",
		"budgets: [{id: A, calls: 1}]":                                       "needs an id",
		"budgets: [{id: a, calls: 0}]":                                       "whole number from 1",
		"budgets: [{id: a, calls: -1}]":                                      "whole number from 1",
		"budgets: [{id: a, calls: 1.5}]":                                     "whole number from 1",
		"budgets: [{id: a, calls: 99999999999999999999}]":                    "whole number from 1",
		"budgets: [{id: a, calls: \"1\"}]":                                   "whole number from 1",
		"budgets: [{id: a, calls: 1, calls: 2}]":                             "calls",
		"budgets: [{id: a, cals: 1}]":                                        "cals",
		"budgets: [{id: a, calls: 1}, {id: a, calls: 2}]":                    "two budgets a",
		"budgets: [{id: a, wall: -1s}]":                                      "duration, for example",
		"budgets: [{id: a, wall: 1}]":                                        "duration, for example",
		"budgets: [{id: a, wall: 9000h}]":                                    "duration, for example",
		"budgets: [{id: a, within: 0s, per: agent, calls: 1}]":               "duration, for example",
		"budgets: [{id: a, output: 1MB}]":                                    "must be a number of bytes",
		"budgets: [{id: a, output: -1MiB}]":                                  "must be a number of bytes",
		"budgets: [{id: a, output: 9999999999GiB}]":                          "must be a number of bytes",
		"budgets: [{id: a, per: person, calls: 1}]":                          "per must be session",
		"budgets: [{id: a, capabilities: [], calls: 1}]":                     "capabilities is empty",
		"budgets: [{id: a, capabilities: [git.statsu], calls: 1}]":           "git.statsu",
		"budgets: {id: a, calls: 1}":                                         "list",
		"budget: []":                                                         "budget",
		"- {id: a, calls: 1}":                                                "budgets.yaml",
		"budgets: &a [*a]":                                                   "budgets.yaml",
		"budgets: []\n---\nbudgets: []":                                      "documents",
		"budgets: " + strings.Repeat("[", 1000):                              "budgets.yaml",
		"budgets:\n" + strings.Repeat("- {id: a, calls: 1}\n", maxBudgets+1): "two budgets a",
		"x: &a [1]\ny: &b [*a, *a]\nz: &c [*b, *b]\nbudgets: [{id: a, calls: 1, agents: *c}]": "budgets.yaml",
	} {
		got, err := readBudgets(t, text)
		if !errors.Is(err, bailey.Invalid) || len(got) > 0 || !strings.HasPrefix(err.Error(), "budgets.yaml") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %+v, %v; want %q", text, got, err, want)
		}
	}
}

// FuzzBudgets checks that a file is refused with the place of the error, or that every budget in it bounds something
// and is not used up forever.
func FuzzBudgets(f *testing.F) {
	f.Add("budgets:\n- {id: a, per: [agent, capability], within: 24h, capabilities: [\"pack:git\"], calls: 3}\n")
	f.Add("budgets: [{id: a, wall: 1h, cpu: 1s, output: 1KiB, concurrent: 2, agents: [claude]}]")
	f.Add(string(StarterBudgets().Text))
	e := load(f, permitPush)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := e.Budgets(Source{"b.yaml", []byte(text)})
		if err != nil {
			if len(list) != 0 || !strings.HasPrefix(err.Error(), "b.yaml") || strings.ContainsFunc(err.Error(), IsHiddenRune) {
				t.Fatalf("%+v, %q", list, err)
			}
			return
		}
		for _, b := range list {
			if b.Calls < 0 || b.Concurrent < 0 || b.Wall < 0 || b.CPU < 0 || b.Output < 0 || b.Within < 0 || b.ID == "" {
				t.Fatalf("%+v", b)
			}
			if b.Calls == 0 && b.Concurrent == 0 && b.Wall == 0 && b.CPU == 0 && b.Output == 0 || !b.Session && b.Within == 0 && b.Concurrent == 0 {
				t.Fatalf("bounds nothing, or for ever: %+v", b)
			}
		}
	})
}
