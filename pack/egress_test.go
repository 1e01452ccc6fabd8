package pack

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
)

// outbound returns the sample with inputs for endpoints, an egress list and a credential.
func outbound(egress, credential string) string {
	return strings.NewReplacer("egress: []", "egress: "+egress, "{name: token, env: DEMO_TOKEN}", credential,
		"all: {type: boolean}", "all: {type: boolean}\n        url: {type: string, format: url}\n        host: {type: string, format: host}\n        words: {type: string}\n        urls: {type: array, items: {type: string, format: url}}").Replace(sample)
}

const lent = "{name: token, env: DEMO_TOKEN}"

// TestEgressPlain checks the destinations of urls that may be plain: the scheme selects the port, and is http:// if missing.
func TestEgressPlain(t *testing.T) {
	text := strings.Replace(outbound(`["{{ input.url }}"]`, lent), "format: url}", "format: url, x-bailey: {allow: [plain]}}", 1)
	m := mustParse(t, text).Capabilities[0]
	for url, want := range map[string]string{
		"http://b.example/": "b.example:80", "https://b.example": "b.example:443", "b.example": "b.example:80",
		"b.example:8080/x?y=z": "b.example:8080", "http://b.example:443": "b.example:443",
		"ftp://b.example": "", "file:///etc": "", "": "", "b.example/?u=https://c.example": "", "//b.example": "",
	} {
		got, err := m.Egress(map[string]any{"url": url})
		if strings.Join(got, " ") != want || (err == nil) != (want != "") {
			t.Errorf("%s: %v, %v", url, got, err)
		}
	}
}

func TestEgress(t *testing.T) {
	m := mustParse(t, outbound(`["B.example.:443", "*.a.example:8443", "{{ input.url }}", "{{ input.host }}:22", "192.0.2.7:443"]`, lent)).Capabilities[0]
	for _, c := range []struct {
		input map[string]any
		more  []string // in addition to the fixed endpoints
		err   string
	}{
		{input: map[string]any{}},
		{input: map[string]any{"url": "https://Other.Example/x?https://evil.example:1/"}, more: []string{"other.example:443"}},
		{input: map[string]any{"url": "https://other.example:8443"}, more: []string{"other.example:8443"}},
		{input: map[string]any{"url": "https://b.example/#@evil.example"}},
		{input: map[string]any{"url": "https://[fd12::1]/"}, more: []string{"[fd12::1]:443"}},
		{input: map[string]any{"host": "h.example", "url": nil}, more: []string{"h.example:22"}},
		{input: map[string]any{"host": "fd12::1"}, more: []string{"[fd12::1]:22"}},
		{input: map[string]any{"url": "http://b.example/"}, err: `input /url: "http://b.example/" is not https://`},
		{input: map[string]any{"url": "ftp://b.example/"}, err: "is not https://"},
		{input: map[string]any{"url": "HTTPS://b.example"}},
		{input: map[string]any{"url": "https:///x"}, err: "is not https://"},
		{input: map[string]any{"url": "https://*.b.example/"}, err: "names no host in canonical spelling"},
		{input: map[string]any{"url": "https://[FD12::1]/"}, err: "names no host in canonical spelling"},
		{input: map[string]any{"url": "https://127.1/"}, err: "names no host in canonical spelling"},
		{input: map[string]any{"host": "*.b.example"}, err: "names no host in canonical spelling"},
		{input: map[string]any{"host": "a.example:1"}, err: "names no host in canonical spelling"},
	} {
		want := append([]string{"*.a.example:8443", "192.0.2.7:443", "b.example:443"}, c.more...)
		slices.Sort(want)
		got, err := m.Egress(c.input)
		switch {
		case c.err == "" && (err != nil || !slices.Equal(got, want)):
			t.Errorf("%v: %v, %v", c.input, got, err)
		case c.err != "" && (err == nil || got != nil || bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%v: %v, %v", c.input, got, err)
		}
	}
	if places, err := mustParse(t, sample).Capabilities[0].Egress(nil); places != nil || err != nil {
		t.Errorf("without the key: %v, %v", places, err)
	}
	secret := m.Quoting(func(s string) string { return strings.ReplaceAll(s, "sesame", "[R]") })
	if _, err := secret.Egress(map[string]any{"url": "http://sesame.example"}); err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%v", err)
	}
}

// TestEgressIsInTheDigest checks that the digest depends on the endpoints and not on their spelling, and that an empty
// list equals no list.
func TestEgressIsInTheDigest(t *testing.T) {
	digest := func(text string) string { return mustParse(t, text).Capabilities[0].Digest }
	none := digest(outbound("[]", lent))
	one, two := digest(outbound("[\"a.example:443\"]", lent)), digest(outbound("[\"a.example:444\"]", lent))
	if none != digest(strings.Replace(outbound("[]", lent), "      network: {egress: []}\n", "", 1)) || none == one || one == two || one != digest(outbound("[\"A.example.:443\"]", lent)) {
		t.Error("digests do not follow places")
	}
	in := func(rest string) string {
		return digest(outbound("[\"a.example:443\", \"b.example:443\"]", "{name: token, env: DEMO_TOKEN, inject: {"+rest+"}}"))
	}
	seen := map[string]bool{digest(outbound("[\"a.example:443\", \"b.example:443\"]", lent)): true}
	for _, rest := range []string{"to: [\"a.example:443\"], headers: [X]", "to: [\"b.example:443\"], headers: [X]", "to: [\"a.example:443\"], headers: [Y]", "to: [\"a.example:443\"], query: [X]",
		"to: [\"a.example:443\"], headers: [Authorization]", "to: [\"a.example:443\"], headers: [Authorization], basic: a", "to: [\"a.example:443\"], headers: [Authorization], basic: b"} {
		if d := in(rest); seen[d] {
			t.Errorf("%s changes nothing", rest)
		} else {
			seen[d] = true
		}
	}
}

func TestInjectIsWanted(t *testing.T) {
	m := mustParse(t, outbound(`["a.example:443"]`, "{name: token, env: DEMO_TOKEN, inject: {to: [\"A.example:443\"], headers: [Authorization], query: [key]}}")).Capabilities[0]
	want := []bailey.Want{{Name: "token", Env: "DEMO_TOKEN", Inject: &bailey.InjectWant{To: []string{"a.example:443"}, Headers: []string{"Authorization"}, Query: []string{"key"}}}}
	if got := m.Wants(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if j := m.Job(nil, nil); !slices.Equal(j.EnvNames, []string{"DEMO_TOKEN"}) {
		t.Errorf("%v", j.EnvNames)
	}
}

// TestInjectBasic checks that the variable holds the whole header, with the placeholder in place of the password.
func TestInjectBasic(t *testing.T) {
	m := mustParse(t, outbound(`["a.example:443"]`, "{name: token, env: DEMO_TOKEN, inject: {to: [\"a.example:443\"], headers: [authorization], basic: x-access-token}}")).Capabilities[0]
	in := m.Wants()[0].Inject
	scheme, code, _ := strings.Cut(in.Shown("p-1"), "Basic ")
	pair, err := base64.StdEncoding.DecodeString(code)
	if scheme != "Authorization: " || err != nil || string(pair) != "x-access-token:p-1" {
		t.Errorf("%q, %v", in.Shown("p-1"), err)
	}
	if in.Basic = ""; in.Shown("p-1") != "p-1" {
		t.Error(in.Shown("p-1"))
	}
}

func TestEgressRefused(t *testing.T) {
	inject := func(rest string) string { return "{name: token, env: DEMO_TOKEN, inject: {" + rest + "}}" }
	var many []string
	for i := range maxEgress + 1 {
		many = append(many, fmt.Sprintf("h%d.example:1", i))
	}
	for name, c := range map[string]struct{ egress, credential, want string }{
		"a text":                 {"a.example:443", lent, "19:25: egress must be a list"},
		"no port":                {"[a.example]", lent, `19:26: egress "a.example": it is not in the form host:port; write`},
		"a url":                  {"[\"https://a.example\"]", lent, "it is not in the form host:port"},
		"any":                    {"[\"*:443\"]", lent, "egress \"*:443\""},
		"a whole domain":         {"[\"*.com:443\"]", lent, "too wide"},
		"an address in disguise": {"[\"0x7f.1:443\"]", lent, "non-standard spelling"},
		"unquoted":               {"[a.example:443]", lent, `egress must be host:port in quotes`},
		"a number":               {"[443]", lent, "egress must be a string, not a number"},
		"twice":                  {"[\"a.example:443\", \"A.example:443\"]", lent, `names "a.example:443" twice`},
		"many":                   {"[\"" + strings.Join(many, `", "`) + "\"]", lent, "at most 64 places, not 65"},
		"no input":               {`["{{ input.urk }}"]`, lent, `input.urk is not in the inputSchema; did you mean "url"?`},
		"an input of words":      {`["{{ input.words }}"]`, lent, "egress needs input.words to be a string of format url"},
		"words and a port":       {`["{{ input.words }}:443"]`, lent, "of format host"},
		"a url and a port":       {`["{{ input.url }}:443"]`, lent, "of format host"},
		"a host alone":           {`["{{ input.host }}"]`, lent, "of format url"},
		"a list":                 {`["{{ input.urls }}"]`, lent, "a string of format url"},
		"a path":                 {`["{{ input.dir }}"]`, lent, "of format url"},
		"a port of none":         {`["{{ input.host }}:0"]`, lent, "egress needs a port after input.host"},
		"a name behind":          {`["{{ input.host }}.example:443"]`, lent, "egress needs a port after input.host"},
		"a name before":          {`["a.{{ input.host }}:443"]`, lent, "egress must be host:port"},
		"a star before":          {`["*.{{ input.host }}:443"]`, lent, "egress must be host:port"},
		"a port of an input":     {`["a.example:{{ input.width }}"]`, lent, "egress must be host:port"},
		"two inputs":             {`["{{ input.host }}{{ input.host }}"]`, lent, "egress must be host:port"},
		"a default":              {`["{{ input.url | default: \"https://a.example\" }}"]`, lent, "egress must be host:port"},
		"nothing":                {`[""]`, lent, "egress must be host:port"},
		"not a placeholder":      {`["{{ url }}"]`, lent, "is not a placeholder"},

		"inject elsewhere":       {"[\"a.example:443\"]", inject("to: [\"b.example:443\"], headers: [X]"), `inject sends a credential to "b.example:443", which is not in network.egress`},
		"inject below":           {"[\"*.a.example:443\"]", inject("to: [\"b.a.example:443\"], headers: [X]"), "which is not in network.egress"},
		"inject where it likes":  {`["{{ input.url }}"]`, inject(`to: ["{{ input.url }}"], headers: [X]`), "it is not in the form host:port"},
		"inject without places":  {"[\"a.example:443\"]", inject("to: [], headers: [X]"), "inject needs places"},
		"inject without to":      {"[\"a.example:443\"]", inject("headers: [X]"), "inject needs to"},
		"inject nowhere":         {"[\"a.example:443\"]", inject("to: [\"a.example:443\"]"), "inject needs places, and headers or query"},
		"inject into framing":    {"[\"a.example:443\"]", inject("to: [\"a.example:443\"], headers: [host]"), "inject cannot use the header host"},
		"inject into two lines":  {"[\"a.example:443\"]", inject(`to: [\"a.example:443\"], headers: ["A:b"]`), "headers \"A:b\" does not match"},
		"inject into a query":    {"[\"a.example:443\"]", inject(`to: [\"a.example:443\"], query: ["a=b&c"]`), "query \"a=b&c\" does not match"},
		"inject as nobody":       {"[\"a.example:443\"]", inject(`to: [\"a.example:443\"], headers: [Authorization], basic: ""`), `basic needs a user`},
		"inject as two":          {"[\"a.example:443\"]", inject(`to: [\"a.example:443\"], headers: [Authorization], basic: "a:b"`), `basic needs a user of letters, digits, dots, - and _, not "a:b"`},
		"inject as a line":       {"[\"a.example:443\"]", inject(`to: [\"a.example:443\"], headers: [Authorization], basic: "a\nb"`), `basic`},
		"inject as one, in X":    {"[\"a.example:443\"]", inject(`to: [\"a.example:443\"], headers: [X], basic: a`), "basic makes its own header"},
		"inject as one, in two":  {"[\"a.example:443\"]", inject(`to: [\"a.example:443\"], headers: [Authorization, X], basic: a`), "basic makes its own header"},
		"inject as one, a query": {"[\"a.example:443\"]", inject(`to: [\"a.example:443\"], headers: [Authorization], query: [k], basic: a`), "basic makes its own header"},
		"inject a header twice":  {"[\"a.example:443\"]", inject("to: [\"a.example:443\"], headers: [X, X]"), "headers names \"X\" twice"},
		"inject to twice":        {"[\"a.example:443\"]", inject("to: [\"a.example:443\", \"A.example:443\"], headers: [X]"), "to names \"A.example:443\" twice"},
		"inject's unknown key":   {"[\"a.example:443\"]", inject("to: [\"a.example:443\"], headers: [X], body: true"), `inject has no key "body"`},
		"inject a file":          {"[\"a.example:443\"]", "{name: token, env: DEMO_TOKEN, file: true, inject: {to: [\"a.example:443\"], headers: [X]}}", "both a file and injected"},
		"sign without a file":    {"[\"a.example:443\"]", inject("to: [\"a.example:443\"], sign: aws"), "signs requests and must be a file"},
		"sign another way":       {"[\"a.example:443\"]", "{name: token, env: DEMO_TOKEN, file: true, inject: {to: [\"a.example:443\"], sign: gcp}}", "inject signs as sign: aws"},
		"sign and send":          {"[\"a.example:443\"]", "{name: token, env: DEMO_TOKEN, file: true, inject: {to: [\"a.example:443\"], sign: aws, headers: [X]}}", "inject signs as sign: aws"},
		"sign for no place":      {"[\"a.example:443\"]", "{name: token, env: DEMO_TOKEN, file: true, inject: {to: [], sign: aws}}", "inject signs as sign: aws"},
		"sign elsewhere":         {"[\"a.example:443\"]", "{name: token, env: DEMO_TOKEN, file: true, inject: {to: [\"b.example:443\"], sign: aws}}", "which is not in network.egress"},
		"inject without network": {"[]", inject("to: [\"a.example:443\"], headers: [X]"), "which is not in network.egress"},
	} {
		t.Run(name, func(t *testing.T) { wantErr(t, outbound(c.egress, c.credential), c.want) })
	}
	wantErr(t, outbound("[\"a.example:443\"]", "{name: key, env: DEMO_TOKEN}\n      - "+inject("to: [\"a.example:443\"], headers: [X]")), "two credentials use DEMO_TOKEN")
	silent := strings.Replace(outbound("[\"a.example:443\"]", lent), "sideEffectClass: readOnly", "sideEffectClass: none", 1)
	wantErr(t, silent, "sideEffectClass none contradicts egress")
}

// TestEgressOfAnAgent checks that a capability that the agent itself runs cannot have egress, because it has neither a
// cage nor a network of the gateway.
func TestEgressOfAnAgent(t *testing.T) {
	const text = `name: x
version: 1.0.0
capabilities:
  - name: fetch
    description: fetches
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    backend: {type: agent}
    sandboxProfile: {network: {egress: ["a.example:443"]}}
    inputSchema: {type: object}
`
	if _, err := LoadBuiltin(fstest.MapFS{"x/pack.yaml": {Data: []byte(text)}}); err == nil || !strings.Contains(err.Error(), "isolation agent contradicts egress") {
		t.Errorf("%v", err)
	}
}
