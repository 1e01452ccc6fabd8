package pack

import (
	"strings"
	"testing"
)

// TestPlaces checks that a value of format host, address or url has one unambiguous reading.
func TestPlaces(t *testing.T) {
	long := strings.Repeat("a", 63)
	for format, cases := range map[string]struct{ good, bad []string }{
		"host": {
			good: []string{"localhost", "db-1.internal", "a_b.example", "example.com.", "10.0.0.1", "::1", "fe80::12", "1.example", long + ".x"},
			bad: []string{"", ".", "-a", "a-", "a..b", "a b", "a/b", "a:80", "[::1]", "fe80::1%eth0", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "10.0.0.01",
				"1.2.3.4.5", "a.1", "u@a", "[REDACTED_IPV4_1]", "[REDACTED_IPV4_1].evil.example", "a\\b", "ａ.example", long + "a.x", strings.Repeat("a.", 127) + "a", "$(id)"},
		},
		"address": {
			good: []string{"db:5432", "10.0.0.1:22", "[::1]:22", "10.0.0.0/8", "fe80::/10", "10.0.0.1", "a"},
			bad:  []string{"", ":22", "a:", "a:0", "a:65536", "a:022", "a:ssh", "a:-1", "::1:22/", "[::1]", "[10.0.0.1]:22", "[a]:22", "10.0.0.0/33", "10.0.0.0/8:22", "a/8", "a:22:33", "fe80::%1/10"},
		},
		"url": {
			good: []string{"https://example.com", "http://10.0.0.1:8080/a?b=c#d", "https://[::1]:8443/", "git+ssh://h/x", "ftp://a_b/x"},
			bad: []string{"", "example.com", "//example.com", "/x", "mailto:a@b", "https:", "https://", "https:///x", "https://u@h/", "https://u:p@h/", "https://h:0/", "https://h:/",
				"https://h:99999/", "https://127.1/", "https://a b/", "https://h/\\x", "https://h\\@e/", "https://[fe80::1%25eth0]/", "https://h%2e/", "https://[REDACTED_IPV4_1]/",
				"javascript:alert(1)", "file:///etc/passwd", "https://[h]/", "1http://h/"},
		},
	} {
		for _, v := range cases.good {
			if what := locationFault(format, v); what != "" {
				t.Errorf("%s %q %s", format, v, what)
			}
		}
		for _, v := range cases.bad {
			if locationFault(format, v) == "" {
				t.Errorf("%s takes %q", format, v)
			}
		}
	}
}

const reaching = `
name: reach
version: 1.0.0
description: reaching out
capabilities:
  - name: login
    description: log in
    backend: {type: subprocess, command: echo, args: ["{{ input.host }}", "{{ input.password }}", "{{ input.more }}"], cwdFromInput: dir}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: jail
    inputSchema:
      type: object
      properties:
        dir: {type: string}
        host: {type: string, format: host}
        site: {type: string, format: url}
        password: {type: string, acceptsSecret: [PASSWORD, API_KEY]}
        more: {type: array, items: {type: string, format: address}}
        deep: {type: object, properties: {to: {$ref: "#/$defs/to"}}}
        any: {anyOf: [{type: string, format: host}, {type: integer}]}
        count: {type: integer, acceptsSecret: [PASSWORD]}
      $defs: {to: {type: string, format: host, acceptsSecret: [TOKEN]}}
`

// TestRewrite checks that each string is passed with the properties that the schema gives it, and without properties if
// the schema gives none.
func TestRewrite(t *testing.T) {
	m := mustParse(t, reaching).Capabilities[0]
	var seen []string
	in := map[string]any{
		"dir": "d", "host": "h", "site": "s", "password": "p", "more": []any{"m", true, []any{"n"}}, "any": "a", "count": "c", "unknown": "u",
		"deep": map[string]any{"to": "t", "else": map[string]any{"x": "y"}},
	}
	out := m.Rewrite(in, func(s string, t Text) string {
		seen = append(seen, s+":"+t.Format+":"+strings.Join(t.AcceptsSecret, ","))
		return strings.ToUpper(s)
	})
	want := "a:: c:: y:: t:host:TOKEN d:path: h:host: m:address: n:: p::PASSWORD,API_KEY s:url: u::"
	if got := strings.Join(seen, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if out["more"].([]any)[2].([]any)[0] != "N" || out["deep"].(map[string]any)["to"] != "T" || in["host"] != "h" {
		t.Errorf("%v of %v", out, in)
	}
	if m.Rewrite(nil, nil) != nil {
		t.Error("something of nothing")
	}
}

// TestAcceptsSecretIsStrict checks that acceptsSecret must list single categories.
func TestAcceptsSecretIsStrict(t *testing.T) {
	for _, bad := range []string{"[]", "PASSWORD", "true", "[password]", "['*']", "[1X]", "[PASSWORD, 'A B']", "[[PASSWORD]]"} {
		text := strings.Replace(reaching, "[PASSWORD, API_KEY]", bad, 1)
		if _, err := Parse("pack.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "acceptsSecret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
