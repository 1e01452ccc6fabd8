package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/pack"
	"bailey/packs"
)

// The table of packs is between these lines. The other table has the same last line.
const (
	tableBegins = "<!-- written by: go test ./internal/mcp -run TestTableOfPacks -update -->\n"
	tableEnds   = "<!-- end of the table -->\n"
)

// TestTableOfPacks checks the table of docs/packs.md against the packs: the effects of each capability, the endpoints
// it reaches, and the tokens that its definition costs an agent.
func TestTableOfPacks(t *testing.T) {
	all, err := pack.LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	heldTable(t, tableBegins, tableOf(t, slices.SortedStableFunc(slices.Values(all.All()), func(a, b *pack.Capability) int { return strings.Compare(a.Pack, b.Pack) })))
}

// TestTableOfExports checks the table of the costs of each format.
func TestTableOfExports(t *testing.T) {
	ktest.Long(t)
	heldTable(t, "<!-- written by: go test ./internal/mcp -run TestTableOfExports -update -->\n", exportCosts(t))
}

// heldTable checks the text after a line of docs/packs.md.
func heldTable(t *testing.T, line, want string) {
	t.Helper()
	path := filepath.Join("../..", "docs", "packs.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(data), line)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines %q and %q", path, line, tableEnds)
	}
	text := before + line + want + tableEnds + after
	switch {
	case text == string(data):
	case *update:
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("a table of %s is not what the packs say: go test ./internal/mcp -run %s -update", path, t.Name())
	}
}

// builtIn returns the tools of all packs that ship.
func builtIn(t *testing.T) (tools []Tool) {
	t.Helper()
	all, err := pack.LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all.All() {
		if m.Isolation != pack.Agent && m.Isolation != pack.Model { // agents' own tools are not listed
			tools = append(tools, toolOf(m))
		}
	}
	return tools
}

func toolOf(m *pack.Capability) Tool {
	return Tool{ID: m.ID, Description: m.Description, InputSchema: m.InputSchema(),
		ReadOnly: m.SideEffect == pack.None || m.SideEffect == pack.ReadOnly, Destructive: m.SideEffect == pack.Destructive}
}

// tableOf returns the table of all packs, in their order, each with its total cost.
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

// tokens returns the size of the definition in a list of tools, at four bytes per token. The agents' own tools are not
// listed.
func tokens(t *testing.T, m *pack.Capability) int {
	t.Helper()
	if m.Isolation == pack.Agent || m.Isolation == pack.Model {
		return 0
	}
	tool, err := convertTool(strings.ReplaceAll(string(m.ID), ".", "_"), toolOf(m))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(tool)
	if err != nil {
		t.Fatal(err)
	}
	return (len(text) + 3) / 4
}
