package server

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
	"bailey/internal/egress"
	"bailey/internal/ktest"
	"bailey/internal/settings"
	"bailey/pack"
	"bailey/packs"
)

// keyPack has a tool that sends a credential of which it has only a placeholder.
const keyPack = `
name: key
version: 1.0.0
capabilities:
  - name: send
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    backend: {type: subprocess, command: sh, args: ["-c", "exec curl -q -sS -H \"Authorization: Bearer $TOKEN\" \"$0\"", "{{ input.url }}"]}
    sandboxProfile:
      fs: {exec: [/usr/bin/curl]}
      network: {egress: ["example.com:443", "www.example.com:443"]}
    credentials: [{name: token, env: TOKEN, inject: {to: ["example.com:443"], headers: [Authorization]}}]
    inputSchema: {type: object, required: [url], properties: {url: {type: string, format: url, x-bailey: {allow: [url]}}}}
`

// names is a resolver.
type names map[string]string

func (n names) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	if n[name] == "" {
		return nil, errors.New("no such host")
	}
	return []netip.Addr{netip.MustParseAddr(n[name])}, nil
}

// outside gives an office a network in which a server of the test is example.com.
func (o *office) outside(network settings.Network) (heard *[]string) {
	o.t.Helper()
	ktest.Require(o.t, "curl")
	heard = &[]string{}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*heard = append(*heard, r.Host+r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "https://evil.example/", http.StatusFound)
		default:
			fmt.Fprintln(w, "the page", r.Header.Get("Authorization"))
		}
	}))
	o.t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	o.open = true
	o.ways = EgressPlanner{Settings: func() settings.Network { return network }, World: egress.WayConfig{
		Authorities: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
		Config: egress.Config{Roots: roots, Resolver: names{"example.com": "93.184.216.34", "www.example.com": "93.184.216.34", "inside.example.com": "10.0.0.7", "rebound.example.com": "::ffff:127.0.0.1"},
			Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", srv.Listener.Addr().String())
			}},
	}}
	return heard
}

// TestHTTPGet checks that a page is fetched only from the host of its URL, and that the caller is told which connection
// was refused.
func TestHTTPGet(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	o := officeOf(t, packs.FS)
	heard := o.outside(settings.Network{})
	get := func(url string) bailey.Result { return o.call("http.get", map[string]any{"url": url}) }
	res := get("https://example.com/page")
	if res.Err != nil || string(res.Stdout) != "the page \n" || res.Refused != nil {
		t.Fatalf("%v %s: %s%s", res.Err, bailey.HintOf(res.Err), res.Stdout, res.Stderr)
	}
	out := o.sealed[0]
	if !slices.Equal(out.Reaches, []string{"example.com:443"}) || out.Egress == nil || out.Egress.Connections != 1 || out.Egress.Events[0].Target != "example.com:443" || out.Egress.Events[0].Down == 0 {
		t.Errorf("the receipt has %q, %+v", out.Reaches, out.Egress)
	}
	if res := get("https://example.com/away"); strings.Contains(string(res.Stdout), "the page") || len(*heard) != 2 {
		t.Errorf("a redirect was followed: %s", res.Stdout)
	}
	for url, want := range map[string]struct {
		kind  bailey.Kind
		words string
	}{
		"http://example.com/":           {bailey.Invalid, "does not match"},
		"https://10.0.0.7/":             {bailey.Denied, ":443 is private"},
		"https://127.0.0.1:8443/":       {bailey.Denied, "is loopback"},
		"https://[::1]/":                {bailey.Denied, "is loopback"},
		"https://169.254.169.254/":      {bailey.Denied, "cloud metadata service"},
		"https://inside.example.com/":   {bailey.ToolFailed, ""},
		"https://rebound.example.com/":  {bailey.ToolFailed, ""},
		"https://nowhere.example.com/":  {bailey.ToolFailed, ""},
		"https://user@example.com/page": {bailey.Invalid, "user"},
		"file:///etc/passwd":            {bailey.Invalid, ""},
		"https://example.com:0/":        {bailey.Invalid, ""},
	} {
		res := get(url)
		if !errors.Is(res.Err, want.kind) || !strings.Contains(fmt.Sprint(res.Err), want.words) || len(*heard) != 2 {
			t.Errorf("%s: %v, %q", url, res.Err, *heard)
		}
	}
	res = get("https://inside.example.com/")
	if len(res.Refused) != 1 || !strings.Contains(res.Refused[0], "egress to inside.example.com:443 is not allowed: its address") || !strings.Contains(bailey.HintOf(res.Err), res.Refused[0]) {
		t.Errorf("told: %q, hint %q", res.Refused, bailey.HintOf(res.Err))
	}
}

// TestSettingsOpenWhatManifestsName checks that a flag of an endpoint, for example private, applies to that endpoint
// only, and that named capabilities can reach more endpoints.
func TestSettingsOpenWhatManifestsName(t *testing.T) {
	o := officeOf(t, packs.FS)
	o.outside(settings.Network{Endpoints: []settings.Reach{
		{Endpoint: bailey.Endpoint{Host: "inside.example.com", Port: 443, Private: true}}, {Endpoint: bailey.Endpoint{Host: "more.example.com", Port: 443}, For: []string{"http.*"}},
		{Endpoint: bailey.Endpoint{Host: "wall.example.com", Port: 443}, For: []string{settings.ForWrap}}}})
	res := o.call("http.get", map[string]any{"url": "https://inside.example.com/"})
	if out := o.sealed[0]; len(res.Refused) > 0 || out.Egress.Connections != 1 || !slices.Equal(out.Reaches, []string{"inside.example.com:443", "more.example.com:443"}) {
		t.Errorf("%v %q: %q, %+v", res.Err, res.Refused, out.Reaches, out.Egress)
	}
	if res := o.call("system.echo", map[string]any{"message": "x"}); res.Err != nil || o.sealed[1].Egress != nil || o.sealed[1].Reaches != nil {
		t.Errorf("a tool without a network has one: %v, %+v", res.Err, o.sealed[1])
	}
}

// TestAnAgentsOwnHasNoNetworkOfOurs checks that the settings give network access only to Bailey's own cages.
func TestAnAgentsOwnHasNoNetworkOfOurs(t *testing.T) {
	w := EgressPlanner{Settings: func() settings.Network {
		return settings.Network{Endpoints: []settings.Reach{{Endpoint: bailey.Endpoint{Host: "a.example", Port: 443}, For: []string{"*"}}}}
	}}
	for isolation, want := range map[pack.Isolation]bool{pack.Jail: true, pack.Agent: false, pack.Open: false, "": false} {
		n, err := w.Plan(&pack.Capability{ID: "a.b", Isolation: isolation}, nil)
		if err != nil || (n != nil) != want {
			t.Errorf("isolation %q: %+v, %v", isolation, n, err)
		}
	}
}

// TestCredentialStaysOutside checks that the tool never has the credential that it sends, and that it is sent only to
// the allowed host.
func TestCredentialStaysOutside(t *testing.T) {
	o := officeOf(t, fstest.MapFS{"key/pack.yaml": {Data: []byte(keyPack)}})
	heard := o.outside(settings.Network{})
	o.env = []string{"TOKEN=sesame-open-9f2c"}
	res := o.call("key.send", map[string]any{"url": "https://example.com/own"})
	if res.Err != nil || len(*heard) != 1 || (*heard)[0] != "example.com/own Bearer sesame-open-9f2c" {
		t.Fatalf("%v %s: %q\n%s%s", res.Err, bailey.HintOf(res.Err), *heard, res.Stdout, res.Stderr)
	}
	if text := allSaid(t, o, res); strings.Contains(text, "sesame") {
		t.Errorf("the value is told: %s", text)
	}
	*heard = nil
	res = o.call("key.send", map[string]any{"url": "https://www.example.com/own"})
	if text := allSaid(t, o, res); strings.Contains(text+strings.Join(*heard, ""), "sesame") {
		t.Errorf("it went elsewhere: %q, %s", *heard, text)
	}
}

// allSaid returns all output and records of a call.
func allSaid(t *testing.T, o *office, res bailey.Result) string {
	t.Helper()
	sealed, err := json.Marshal(o.sealed)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s %s %v %q", sealed, res.Stdout, res.Stderr, res.Err, res.Refused)
}
