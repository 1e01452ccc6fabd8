package gateway

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/localapi"
)

// TestOwnWords checks that the arguments of a tool become the one call that they mean, with standard input if the tool
// reads it. Arguments without such a meaning, and an invalid standard input (for example one that is not UTF-8), must
// be refused before the gate.
func TestOwnWords(t *testing.T) {
	_, client, _ := start(t, func(c *Config) {
		c.Means = func(argv []string, _ string) (Meant, error) {
			switch argv[0] {
			case "wc":
				return Meant{Capability: "x", Stdin: "stdin", MostStdin: 8}, nil
			case "git":
				return Meant{Capability: "x", Input: map[string]any{"words": argv[1:]}}, nil
			}
			return Meant{}, &bailey.Error{Kind: bailey.NotFound, Message: "m", Hint: "h"}
		}
	})
	given := ""
	client.Stdin = func(context.Context, int) ([]byte, error) { return []byte(given), nil }
	for name, c := range map[string]struct {
		call  localapi.CallQuery
		stdin string
		want  string // the input that the gate got, or a part of the error
		kind  bailey.Kind
	}{
		"words":       {call: localapi.CallQuery{Argv: []string{"git", "log"}}, want: "map[words:[log]]"},
		"stdin":       {call: localapi.CallQuery{Argv: []string{"wc"}}, stdin: "12345678", want: "map[stdin:12345678]"},
		"no stdin":    {call: localapi.CallQuery{Argv: []string{"wc"}}, want: "map[stdin:]"},
		"too much":    {call: localapi.CallQuery{Argv: []string{"wc"}}, stdin: "123456789", want: "8", kind: bailey.Invalid},
		"not UTF-8":   {call: localapi.CallQuery{Argv: []string{"wc"}}, stdin: "a\xff", want: "UTF-8", kind: bailey.Invalid},
		"no meaning":  {call: localapi.CallQuery{Argv: []string{"rm"}}, want: "m", kind: bailey.NotFound},
		"both":        {call: localapi.CallQuery{Argv: []string{"git"}, Capability: "y"}, want: "cannot translate", kind: bailey.Invalid},
		"both inputs": {call: localapi.CallQuery{Argv: []string{"git"}, Input: map[string]any{"a": 1}}, want: "cannot translate", kind: bailey.Invalid},
	} {
		given = c.stdin
		var out bytes.Buffer
		_, err := client.Call(t.Context(), c.call, &out, &out)
		switch {
		case c.kind == "" && (err != nil || !strings.Contains(out.String(), c.want)):
			t.Errorf("%s: %q, %v", name, out.String(), err)
		case c.kind != "" && (bailey.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || out.Len() != 0):
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
	client.Stdin = nil
	if _, err := client.Call(t.Context(), localapi.CallQuery{Argv: []string{"wc"}}, nil, nil); bailey.KindOf(err) != bailey.Internal {
		t.Errorf("no stdin to send: %v", err)
	}
}
