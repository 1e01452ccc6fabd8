package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/pack"
	"bailey/packs"
)

// The table stands between these lines.
const (
	tableBegins = "<!-- written by: go test ./internal/mcp -run TestTableOfPacks -update -->\n"
	tableEnds   = "<!-- end of the table -->\n"
)

// TestTableOfPacks holds the table of docs/packs.md against the packs: what each capability does, where it reaches, and what it
// costs an agent to know of it.
func TestTableOfPacks(t *testing.T) {
	all, err := pack.LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("../..", "docs", "packs.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(data), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines %q and %q", path, tableBegins, tableEnds)
	}
	text := before + tableBegins + tableOf(t, slices.SortedStableFunc(slices.Values(all.All()), func(a, b *pack.Capability) int { return strings.Compare(a.Pack, b.Pack) })) + tableEnds + after
	switch {
	case text == string(data):
	case *update:
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of %s is not what the packs say: go test ./internal/mcp -run TestTableOfPacks -update", path)
	}
}

// tableOf is one of all packs, in their order, each with what all of it costs.
func tableOf(t *testing.T, all []*pack.Capability) string {
	t.Helper()
	sum := map[string]int{}
	for _, m := range all {
		sum[m.Pack] += tokens(t, m)
	}
	var b strings.Builder
	b.WriteString("| capability | side effects | reversibility | risk | network | credential | tokens |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for i, m := range all {
		if i == 0 || all[i-1].Pack != m.Pack {
			fmt.Fprintf(&b, "| **%s** %s | | | | | | **%s** |\n", m.Pack, m.Version, cost(sum[m.Pack]))
		}
		var reaches, wants []string
		for _, to := range m.Reaches() {
			reaches = append(reaches, "`"+strings.NewReplacer("{{ input.", "", " }}", "").Replace(to)+"`")
		}
		for _, w := range m.Wants() {
			how := "lent"
			if w.Inject != nil {
				how = "kept outside"
			} else if w.File {
				how = "a file"
			}
			wants = append(wants, fmt.Sprintf("%s (%s)", w.Name, how))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", m.ID, m.SideEffect, m.Reversibility, m.Risk, none(reaches), none(wants), cost(tokens(t, m)))
	}
	return b.String()
}

func none(list []string) string {
	if len(list) == 0 {
		return "–"
	}
	return strings.Join(list, ", ")
}

func cost(n int) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprint(n)
}

// tokens is what the definition takes in a list of tools, at four bytes a token. What agents do by themselves is in no list.
func tokens(t *testing.T, m *pack.Capability) int {
	t.Helper()
	if m.Isolation == pack.Agent {
		return 0
	}
	tool, err := describe(strings.ReplaceAll(string(m.ID), ".", "_"), Tool{ID: m.ID, Description: m.Description, InputSchema: m.InputSchema(),
		ReadOnly: m.SideEffect == pack.None || m.SideEffect == pack.ReadOnly, Destructive: m.SideEffect == pack.Destructive})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(tool)
	if err != nil {
		t.Fatal(err)
	}
	return (len(text) + 3) / 4
}
