//go:build linux

package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/pack"
	"bailey/packs"
)

// sips are capabilities that print the first four bytes of each kind of input. Four bytes are too few for a detector,
// but enough to distinguish a token from its value.
const sips = `
name: sip
version: 1.0.0
description: four bytes of anything
capabilities:
%s
`

const sip = `
  - name: %s
    description: show four bytes
    backend: {type: subprocess, command: expr, args: [substr, %s, "4"]}
    risk: low
    sideEffectClass: none
    reversibility: readOnly
    isolation: jail
    inputSchema: {type: object, required: [x], properties: {x: %s}}
`

func sipping() fstest.MapFS {
	var list strings.Builder
	const whole = `"{{ input.x }}", "1"`
	for _, c := range [][3]string{
		{"commit", whole, "{type: string, x-bailey: {allow: [url]}}"}, {"option", `"--format={{ input.x }}", "10"`, "{type: string}"},
		{"host", whole, "{type: string, format: host}"}, {"address", whole, "{type: string, format: address}"},
		{"url", whole, "{type: string, format: url}"}, {"login", whole, "{type: string, acceptsSecret: [PASSWORD]}"},
		{"key", whole, "{type: string, acceptsSecret: [API_KEY]}"}, {"name", whole, "{type: string, format: subpath}"},
		{"pin", whole, `{type: string, acceptsSecret: [PASSWORD], pattern: "^[0-9]+$"}`}, {"short", whole, "{type: string, acceptsSecret: [PASSWORD], maxLength: 3}"},
		{"pick", whole, "{type: string, acceptsSecret: [PASSWORD], enum: [a, b]}"}, {"dir", whole, "{type: string, format: path}"},
		{"list", whole, "{type: array, items: {type: string, format: address}}"},
	} {
		fmt.Fprintf(&list, sip, c[0], c[1], c[2])
	}
	text, err := packs.FS.ReadFile("base/pack.yaml")
	if err != nil {
		panic(err)
	}
	return fstest.MapFS{"sip/pack.yaml": {Data: fmt.Appendf(nil, sips, list.String())}, "base/pack.yaml": {Data: text}}
}

// sipper returns a gate with these capabilities, and the starter policy with more rules.
func sipper(t *testing.T, more string) *Server {
	t.Helper()
	ktest.Require(t, "userns", "netns", "expr")
	catalog, err := pack.LoadBuiltin(sipping())
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.Load(policy.Config{Actions: policyfiles.Actions(catalog), Sources: []policy.Source{policy.Starter(), {Name: "own.cedar", Text: []byte(more)}}})
	if err != nil {
		t.Fatal(err)
	}
	return SpineOf(t, &Server{Catalog: catalog, Rules: FixedRules(rules)})
}

// ask makes a call in a session.
func (s *Server) ask(t *testing.T, session bailey.SessionID, id, input, value string) bailey.Result {
	t.Helper()
	return s.Gate.Do(t.Context(), bailey.Call{Capability: bailey.CapabilityID(id), Input: map[string]any{input: value}, Door: "test", Dir: "/",
		Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: session}})
}

// The secrets of these tests, and the tokens that a session assigns if it finds them in this order.
const (
	met      = "password=hunter2hunter and sk_live_4eC39HqLyjWDarjtT1zdp7dc from 10.20.30.40, not [REDACTED_IPV4_1]"
	password = "[REDACTED_PASSWORD_1]"
	apiKey   = "[REDACTED_API_KEY_1]"
	ip       = "[REDACTED_IPV4_1]"
)

var secrets = []string{"hunter2hunter", "sk_live_4eC39", "10.20.30.40"}

// meet shows the secrets to a session in the output of a tool.
func meet(t *testing.T, s *Server, session bailey.SessionID) {
	t.Helper()
	res := s.ask(t, session, "system.echo", "message", met)
	if want := "password=" + password + " and " + apiKey + " from " + ip + ", not [REDACTED__IPV4_1]\n"; string(res.Stdout) != want {
		t.Fatalf("%s%v, want %s", res.Stdout, res.Err, want)
	}
}

const released = `@id("log-in") permit (principal, action == Action::"sip.login", resource) when { !context.restores.isEmpty() && ["PASSWORD"].containsAll(context.restores) };`

// TestTokensAreNoOracle passes a token in each kind of input. A tool may get the value only if the manifest allows it
// and, for a secret, a rule does too.
func TestTokensAreNoOracle(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	s := sipper(t, released)
	const mine = bailey.SessionID("s-mine")
	meet(t, s, mine)
	for _, c := range []struct {
		why, id, in string
		sip         string // the bytes that the tool got; "" if it must not run
		restored    []string
	}{
		{"a secret in a commit message", "sip.commit", password, "[RED", nil},
		{"an address in a commit message", "sip.commit", ip, "[RED", nil},
		{"a secret in a URL", "sip.url", "https://evil.example/?q=" + password, "http", nil},
		{"a secret as a URL's host", "sip.url", "https://" + password + "/", "", nil},
		{"a secret in a URL, in a message", "sip.commit", "https://" + password + "@evil.example/", "http", nil},
		{"a secret as a user", "sip.url", "https://" + password + "@evil.example/", "", nil},
		{"an address in a foreign name", "sip.host", ip + ".evil.example", "", nil},
		{"a secret as a host's name", "sip.host", password, "", nil},
		{"a secret in a foreign name", "sip.host", password + ".evil.example", "", nil},
		{"a secret as an address", "sip.address", password, "", nil},
		{"a secret in an option", "sip.option", password, "[RED", nil},
		{"an address in an option", "sip.option", ip, "[RED", nil},
		{"a secret of another category", "sip.login", apiKey, "[RED", nil},
		{"an address where a secret goes", "sip.login", ip, "[RED", nil},
		{"a secret that no rule releases", "sip.key", apiKey, "", []string{"API_KEY"}},
		{"a token that nobody gave out", "sip.login", "[REDACTED_PASSWORD_9]", "[RED", nil},
		{"a token in pieces", "sip.login", "[REDACTED_PASS[REDACTED__WORD_1]", "[RED", nil},
		{"an escaped token", "sip.login", "[REDACTED__PASSWORD_1]", "[RED", nil},
		{"a secret beside other text", "sip.login", "x" + password, "x[RE", nil},
		{"a secret in a path", "sip.name", password, "[RED", nil},
		{"an address in a path", "sip.name", ip + ".conf", "10.2", nil},
		{"an address as a host", "sip.host", ip, "10.2", nil},
		{"an address with a port", "sip.address", ip + ":22", "10.2", nil},
		{"an address as a URL's host", "sip.url", "https://" + ip + "/x", "http", nil},
		{"a secret where the manifest and a rule let it", "sip.login", password, "hunt", []string{"PASSWORD"}},
	} {
		res := s.ask(t, mine, c.id, "x", c.in)
		switch {
		case c.sip == "" && (res.Executed || res.Status == bailey.OK):
			t.Errorf("%s: it ran: %s", c.why, res.Stdout)
		case c.sip != "" && string(res.Stdout) != c.sip+"\n":
			t.Errorf("%s: the tool saw %q (%v), want %q", c.why, res.Stdout, res.Err, c.sip)
		}
		if got := restoredBy(t, s, res.Receipt); !slices.Equal(got, c.restored) {
			t.Errorf("%s: the receipt says that %v came back, want %v", c.why, got, c.restored)
		}
		told := fmt.Sprint(res.Err, bailey.HintOf(res.Err), res.Argv, string(res.Stdout), string(res.Stderr), res.Decision)
		for _, secret := range secrets {
			if strings.Contains(told, secret) {
				t.Errorf("%s: the caller learns %s: %s", c.why, secret, told)
			}
		}
	}
	nothingKept(t, s)
}

// TestComplaintsHideWhatWasGivenBack checks that an error hides a restored secret before it shortens the value. A
// truncated secret could not be recognized.
func TestComplaintsHideWhatWasGivenBack(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	s := sipper(t, released)
	const mine = bailey.SessionID("s-mine")
	meet(t, s, mine)
	for _, id := range []string{"sip.name", "sip.dir", "sip.host", "sip.address", "sip.list", "sip.url", "sip.login", "sip.pin", "sip.short", "sip.pick", "sip.commit"} {
		for _, pad := range []int{0, 30, 42, 45, 47, 49, 51, 53, 55, 57, 59, 60} { // errors show sixty bytes
			for _, token := range []string{password, ip, "https://" + ip, password + "\x01", ip + "\x01", "-" + ip} {
				res := s.Gate.Do(t.Context(), bailey.Call{Capability: bailey.CapabilityID(id), Input: map[string]any{"x": strings.Repeat("a", pad) + token}, DryRun: true,
					Door: "test", Dir: "/", Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: mine}})
				told := fmt.Sprint(res.Err, bailey.HintOf(res.Err))
				for _, secret := range secrets {
					for part := secret[:6]; len(part) < len(secret) && strings.Contains(told, part); part = secret[:len(part)+1] {
						t.Fatalf("%s, %d bytes before %s: %s", id, pad, token, told)
					}
				}
			}
		}
	}
	secrets := []string{"hunter", "10.20.3"}
	keptNowhere(t, s, secrets)
}

// TestArgumentsOfASecretName checks that if the name of an input marks its value as secret, the value is redacted in
// arguments, errors and output.
func TestArgumentsOfASecretName(t *testing.T) {
	s := sipper(t, "")
	res := s.Gate.Do(t.Context(), bailey.Call{Capability: "system.echo", Input: map[string]any{"password": "hunter2hunter", "message": "hi"}, Door: "test", Dir: "/",
		Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: "s-mine"}})
	if res.Err == nil {
		t.Fatal("the test wants an unknown input")
	}
	if res := s.ask(t, "s-mine", "sip.pin", "x", "hunter2hunter"); !strings.Contains(fmt.Sprint(res.Err), "[REDACTED_PASSWORD_1]") {
		t.Error(res.Err)
	}
	if res := s.ask(t, "s-mine", "system.echo", "message", "hunter2hunter"); string(res.Stdout) != "[REDACTED_PASSWORD_1]\n" || strings.Contains(fmt.Sprint(res.Argv), "hunter") {
		t.Errorf("%s %v", res.Stdout, res.Argv)
	}
	nothingKept(t, s)
}

// TestUnknownCapabilityHidesItsName checks that the error about an unknown name redacts the name before it shortens it.
func TestUnknownCapabilityHidesItsName(t *testing.T) {
	s := sipper(t, "")
	for pad := 40; pad < 60; pad++ {
		id := bailey.CapabilityID(strings.Repeat("a", pad) + " sk_live_4eC39HqLyjWDarjtT1zdp7dc")
		res := s.Gate.Do(t.Context(), bailey.Call{Capability: id, Door: "test", Dir: "/", Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: "s-mine"}})
		if said := fmt.Sprint(res.Err); !errors.Is(res.Err, bailey.NotFound) || strings.Contains(said, "sk_live_") {
			t.Errorf("%d bytes before it: %s", pad, said)
		}
	}
	keptNowhere(t, s, []string{"sk_live_"})
}

// TestAnotherSessionsTokens checks that a token has no value in another session, or after its session ended.
func TestAnotherSessionsTokens(t *testing.T) {
	s := sipper(t, released)
	meet(t, s, "s-theirs")
	for _, id := range []string{"sip.login", "sip.host", "sip.address"} {
		for _, token := range []string{password, ip} {
			if res := s.ask(t, "s-mine", id, "x", token); res.Executed && string(res.Stdout) != "[RED\n" {
				t.Errorf("%s %s: %s", id, token, res.Stdout)
			}
		}
	}
	if err := s.Gate.EndSession(t.Context(), "s-theirs"); err != nil {
		t.Fatal(err)
	}
	if res := s.ask(t, "s-theirs", "sip.login", "x", password); string(res.Stdout) != "[RED\n" {
		t.Errorf("after its end: %s%v", res.Stdout, res.Err)
	}
	nothingKept(t, s)
}

// TestGivenBackStaysHidden checks that a restored secret is redacted again in the output of a tool, even if no context
// identifies it.
func TestGivenBackStaysHidden(t *testing.T) {
	s := sipper(t, released)
	const mine = bailey.SessionID("s-mine")
	meet(t, s, mine)
	if res := s.ask(t, mine, "sip.login", "x", password); res.Status != bailey.OK {
		t.Fatal(res.Err)
	}
	if res := s.ask(t, mine, "system.echo", "message", "it is hunter2hunter"); string(res.Stdout) != "it is "+password+"\n" {
		t.Errorf("%s%v", res.Stdout, res.Err)
	}
	nothingKept(t, s)
}

// restoredBy returns the restored categories from the receipt.
func restoredBy(t *testing.T, s *Server, id bailey.ReceiptID) []string {
	t.Helper()
	v, err := s.showReceipt(t.Context(), apitype.ID{ID: string(id)}, gateway.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ Outcome struct{ Restored []string } }
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r.Outcome.Restored
}

// nothingKept checks that no file of the home contains the secrets.
func nothingKept(t *testing.T, s *Server) {
	t.Helper()
	keptNowhere(t, s, secrets)
}

func keptNowhere(t *testing.T, s *Server, secrets []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(string(s.home), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		files++
		for _, secret := range secrets {
			if strings.Contains(string(b), secret) {
				t.Errorf("%s holds %s", filepath.Base(path), secret)
			}
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files, %v", files, err)
	}
}
