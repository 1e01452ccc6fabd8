package modelwire

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestLongKeys checks that long keys do not multiply: not in the places of texts, not in a cache, and not among the keys
// that become equal.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	e, _ := Recognise("POST", "/v1/messages")
	ask := func(input string) []byte {
		return []byte(`{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"t","input":` + input + `}]}]}`)
	}
	long := strings.Repeat("a", 1<<16)
	elements := strings.Repeat(`["b","c"],`, 10) + `"d"`
	longest := 0
	text := func(where Where, s string) string { longest = max(longest, len(where.Field)); return s }
	cache := NewCache(1 << 20)
	if _, _, err := cache.Edit(e, 1, ask(`{"`+long+`":[`+elements+`]}`), text); err != nil || longest > maxPlace {
		t.Errorf("%v; a place has %d bytes", err, longest)
	}
	for i := range 100 {
		cache.keepText(1, Where{Field: fmt.Sprint(i, long[:maxPlace-8])}, []byte(`"a"`), nil)
	}
	if cache.bytes < 100*(maxPlace-8) {
		t.Errorf("the cache counts %d bytes", cache.bytes)
	}
	cache.keepText(1, Where{Tool: long}, []byte(`"a"`), nil)
	if _, known := cache.findText(1, Where{Tool: long}, []byte(`"a"`)); known {
		t.Error("the cache keeps the long name of a tool")
	}

	var keys strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&keys, `"k%d":1,`, i)
	}
	equal := func(where Where, s string) string {
		if where.Key && s[0] == 'k' {
			return "x"
		}
		return s
	}
	out, _, err := Edit(e, ask(`{`+keys.String()+`"x_":1}`), equal)
	if err != nil || len(out) > 1<<18 {
		t.Fatalf("%d bytes, %v", len(out), err)
	}
	if doc, err := parseDocument(out, nil); err != nil || !strings.Contains(string(out), `"x_"`) {
		t.Errorf("%d values, %v", len(doc.nodes), err)
	}
}

// TestOneModel checks that a batch whose requests name different models is refused, because a rule sees one model.
func TestOneModel(t *testing.T) {
	t.Parallel()
	e, _ := Recognise("POST", "/v1/messages/batches")
	for second, want := range map[string]bool{"cheap": true, "dear": false} {
		request := func(model string) string { return `{"custom_id":"1","params":{"model":"` + model + `","messages":[]}}` }
		_, sum, err := Edit(e, []byte(`{"requests":[`+request("cheap")+`,`+request(second)+`]}`), hide)
		if (err == nil) != want || sum.Model != "cheap" {
			t.Errorf("cheap and %s: %v, %s", second, err, sum.Model)
		}
	}
}

// TestHostileReplies checks that a reply cannot grow what is kept of it: a key that never ends, calls that change their
// identifiers, and names of tools.
func TestHostileReplies(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newPartial(Where{}, wholeWriters(func(_ Where, s string) string { return s }), &out)
	want := `{"` + strings.Repeat("k", 1<<20) + `":"v"}`
	for i := 0; i < len(want); i += 1 << 10 {
		p.writePiece(want[i:min(i+1<<10, len(want))])
	}
	p.finishText()
	if out.String() != want || cap(p.key) > 32*maxPlace {
		t.Errorf("%d bytes were written, %d of a key are kept", out.Len(), cap(p.key))
	}
	const chunk = `{"choices":[{"index":%d,"delta":{"tool_calls":[{"index":0,"id":"c%d","function":{"name":"t"}}]}}]}`
	for _, choices := range []int{0, 1} { // new identifiers of one call, or of many
		s := NewStream(endpointOf(OpenAIChat), io.Discard, shower{})
		for i := range 2 * maxOpen {
			fmt.Fprintf(s, "data: "+chunk+"\n\n", i*choices, i)
		}
		if len(s.calls) > maxOpen || len(s.usage.ToolNames) > maxOpen {
			t.Errorf("%d calls and %d names are kept", len(s.calls), len(s.usage.ToolNames))
		}
	}
}
