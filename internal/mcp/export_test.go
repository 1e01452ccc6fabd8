package mcp

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bailey"
)

var exported = []Tool{
	{ID: "b.two", Description: "two", InputSchema: json.RawMessage(`{"type":"object","properties":{"x-bailey":{"type":"string","x-bailey":{"allow":["at"]},"acceptsSecret":["PASSWORD"],` +
		`"enum":["x-bailey"]},"l":{"type":"array","items":{"type":"string","x-bailey":{"allow":["at"]}}}},"required":["l"]}`)},
	{ID: "a.one", Description: "one"},
}

// TestExport checks that each format has every tool, in the order and with the name of tools/list, with its schema and
// without Bailey's keywords.
func TestExport(t *testing.T) {
	const schema = `{"properties":{"l":{"items":{"type":"string"},"type":"array"},"x-bailey":{"enum":["x-bailey"],"type":"string"}},"required":["l"],"type":"object"}`
	for format, want := range map[string]string{
		"claude": `[{"description":"one","input_schema":{"type":"object"},"name":"a_one"},{"description":"two","input_schema":` + schema + `,"name":"b_two"}]`,
		"openai": `[{"function":{"description":"one","name":"a_one","parameters":{"type":"object"},"strict":false},"type":"function"},` +
			`{"function":{"description":"two","name":"b_two","parameters":` + schema + `,"strict":false},"type":"function"}]`,
		"gemini": `[{"functionDeclarations":[{"description":"one","name":"a_one","parametersJsonSchema":{"type":"object"}},{"description":"two","name":"b_two","parametersJsonSchema":` + schema + `}]}]`,
	} {
		got, err := Export(exported, format)
		text, _ := json.Marshal(got)
		if err != nil || string(text) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", format, err, text, want)
		}
		other := slices.Clone(exported)
		slices.Reverse(other)
		again, _ := Export(other, format)
		if b, _ := json.Marshal(again); string(b) != string(text) {
			t.Errorf("%s: another order is another text", format)
		}
	}
	two, err := Export(exported, "two-tool")
	if text, _ := json.Marshal(two); err != nil || strings.Count(string(text), `"inputSchema"`) != 2 || strings.Contains(string(text), "a_one") {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := Export(exported, "xml"); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(bailey.HintOf(err), "claude, gemini, openai, two-tool") {
		t.Error(err)
	}
	if _, err := Export([]Tool{{ID: "a.b", InputSchema: json.RawMessage(`[]`)}}, "claude"); err == nil {
		t.Error("a schema that is none was written")
	}
}

// TestExportNames checks that every model interface accepts a name, and that the name identifies its capability.
func TestExportNames(t *testing.T) {
	fits := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	all := builtIn(t)
	got, err := Export(all, "claude")
	if err != nil || len(got.([]any)) != len(all) {
		t.Fatalf("%d of %d tools, %v", len(got.([]any)), len(all), err)
	}
	for _, one := range got.([]any) {
		name := one.(map[string]any)["name"].(string)
		id := bailey.CapabilityID(strings.Replace(name, "_", ".", 1)) // as `bailey tools` says
		if !fits.MatchString(name) || !slices.ContainsFunc(all, func(t Tool) bool { return t.ID == id }) {
			t.Errorf("%q", name)
		}
	}
}

// exportCosts returns the size of all built-in tools in each format, at four bytes per token.
func exportCosts(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| format | tokens |\n| --- | --- |\n")
	for _, format := range Formats() {
		got, err := Export(builtIn(t), format)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(got)
		fmt.Fprintf(&b, "| `%s` | %d |\n", format, (len(text)+3)/4)
	}
	return b.String()
}
