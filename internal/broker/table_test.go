//go:build linux || darwin

package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"bailey"
)

// TestTable checks every valid form of a table entry and its description in one line.
func TestTable(t *testing.T) {
	text := "admitted: [1000, 1001]\napprovers:\n" + ada.approver("sre") + bob.approver() + `leases:
  registry: {env: REGISTRY_TOKEN, scope: read packages, approval: none}
  deploy: {file: deploy.token, ttl: 90s, approval: {level: signed-software, roles: [sre]}}
  api: {token: {file: /etc/api}, scope: "repo:status", ttl: 1h, approval: {level: signed-software, count: 2}}
  cluster:
    kubectl: {server: "https://10.0.0.1:6443", ca: ca.pem, credential: own, namespace: web, account: reader}
    approval: none
  lit:
    literal: "` + value + `"
    approval: none
`
	got, err := ParseTable([]byte(text), "/d", Adapters())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Join(got.Lines(), "\n")
	for _, want := range []string{
		"admitted 1000\nadmitted 1001\n", "approver ada ssh-ed25519 AAAA", " with sre\n",
		"lease registry: env REGISTRY_TOKEN, for read packages, 10m0s, no approval",
		"lease deploy: file /d/deploy.token, for anything that it allows, 1m30s, approval of 1 at signed-software with sre",
		"lease api: token of file /etc/api, for repo:status, 1h0m0s, approval of 2 at signed-software",
		"lease cluster: kubectl web/reader of 10.0.0.1:6443", "lease lit: literal, ",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in\n%s", want, lines)
		}
	}
	silent(t, lines)
	silent(t, got)
	silent(t, *got)
	silent(t, got.Leases["lit"])
	if e := got.Leases["deploy"]; e.TTL != 90*time.Second || e.Approval.Count != 1 || e.Adapter != "file" {
		t.Errorf("%+v", e)
	}
	if got, err := ParseTable(nil, "/d", Adapters()); err != nil || len(got.Leases)+len(got.Admitted) > 0 {
		t.Errorf("an empty file: %+v %v", got, err)
	}
}

// TestTableRefuses checks that any other form is an error that names the place or the cause and contains no value.
func TestTableRefuses(t *testing.T) {
	lease := func(parts string) string { return "leases:\n  a: {" + parts + "}\n" }
	literal := `literal: "` + value + `", `
	for name, c := range map[string]struct{ text, says string }{
		"unknown key":           {"admited: [1]\n", "line 1"},
		"a key twice":           {"admitted: [1]\nadmitted: [2]\n", "line 2"},
		"a lease twice":         {"leases:\n  a: {env: A, approval: none}\n  a: {env: B, approval: none}\n", "line 3"},
		"a part twice":          {lease("env: A, env: B, approval: none"), "line 2"},
		"a field twice":         {lease("token: {env: A, env: B}, scope: x, approval: none"), "line 2"},
		"a level twice":         {lease(literal + "approval: {level: signed-touch, level: signed-software}"), "line 2"},
		"two documents":         {"admitted: [1]\n---\nadmitted: [2]\n", "more than one"},
		"no YAML":               {"leases: {a: [\n", ""},
		"a broken literal":      {"leases:\n  a:\n    literal: \"" + value + "\n    approval: none\n", ""},
		"not a uid":             {"admitted: [me]\n", "line 1"},
		"below zero":            {"admitted: [-1]\n", "not a uid"},
		"no approval":           {lease(literal + "ttl: 1m"), "approval: none"},
		"no source":             {lease("approval: none"), "has no source"},
		"two sources":           {lease(literal + "env: A, approval: none"), "use one"},
		"an unknown source":     {lease("spell: rm, approval: none"), `"spell" is not a key`},
		"an unknown part":       {lease(literal + "approval: none, roles: [x]"), `"roles" is not a key`},
		"a bad name":            {"leases:\n  A B: {env: A, approval: none}\n", "not a lease name"},
		"nothing":               {"leases:\n  a:\n", "lease a"},
		"a list":                {"leases: [1]\n", ""},
		"empty literal":         {lease(`literal: "", approval: none`), "empty"},
		"a literal of a NUL":    {lease(`literal: "x\0y", approval: none`), "NUL"},
		"a bad variable":        {lease("env: A-B, approval: none"), "name of a variable"},
		"no ttl":                {lease(literal + "ttl: soon, approval: none"), "whole seconds"},
		"a long ttl":            {lease(literal + "ttl: 25h, approval: none"), "whole seconds"},
		"half a second":         {lease(literal + "ttl: 1500ms, approval: none"), "whole seconds"},
		"a level of nobody":     {lease(literal + "approval: {level: local}"), "level must be"},
		"no level":              {lease(literal + "approval: {count: 1}"), "level must be"},
		"an approval of a word": {lease(literal + "approval: yes please"), ""},
		"unknown in approval":   {lease(literal + "approval: {level: signed-touch, who: x}"), ""},
		"a count of zero":       {lease(literal + "approval: {level: signed-software, count: 0}"), "count must be"},
		"nobody to approve":     {lease(literal + "approval: {level: signed-software}"), "only 0 approvers"},
		"too few":               {"approvers:\n" + ada.approver() + lease(literal+"approval: {level: signed-software, count: 2}"), "only 1 approvers"},
		"nobody with the role":  {"approvers:\n" + ada.approver() + lease(literal+"approval: {level: signed-software, roles: [x]}"), "only 0 approvers"},
		"nobody with hardware":  {"approvers:\n" + ada.approver() + lease(literal+"approval: {level: signed-touch}"), "only 0 approvers"},
		"one key, two names":    {"approvers:\n" + ada.approver() + strings.Replace(ada.approver(), "ada", "eve", 1), "listed twice"},
		"a bad key":             {"approvers:\n  - name: ada\n    key: ssh-ed25519 AAAA\n", "approver"},
		"a bad role":            {"approvers:\n" + ada.approver("A B"), "not a role"},
		"a name of two words":   {"approvers:\n" + strings.Replace(ada.approver(), "name: ada", "name: ada x", 1), "approver"},
		"a token of nothing":    {lease("token: {}, scope: x, approval: none"), "either env or file"},
		"a token of both":       {lease("token: {env: A, file: b}, scope: x, approval: none"), "either env or file"},
		"a token of no scope":   {lease("token: {env: A}, approval: none"), "needs a scope"},
		"a scope of lines":      {lease(literal + `scope: "a\nb", approval: none`), "one line"},
		"kubectl over http":     {lease("kubectl: {server: 'http://x', ca: a, credential: b, namespace: c, account: d}, approval: none"), "https://"},
		"kubectl with a user":   {lease("kubectl: {server: 'https://u:p@x', ca: a, credential: b, namespace: c, account: d}, approval: none"), "https://"},
		"kubectl without a ca":  {lease("kubectl: {server: 'https://x', credential: b, namespace: c, account: d}, approval: none"), "needs ca"},
		"kubectl elsewhere":     {lease("kubectl: {server: 'https://x', ca: a, credential: b, namespace: ../x, account: d}, approval: none"), "namespace and account"},
		"kubectl in a form":     {lease("kubectl: {server: 'https://x', ca: a, credential: b, namespace: c, account: d, form: x}, approval: none"), "form must be"},
		"kubectl and more":      {lease("kubectl: {server: 'https://x', ca: a, credential: b, namespace: c, account: d, exec: e}, approval: none"), "exec"},
		"deep in brackets":      {lease("env: " + strings.Repeat("[", 50) + strings.Repeat("]", 50)), "nested too deeply"},
		"deep in open brackets": {"leases: " + strings.Repeat("[", maxTable/2), "nested too deeply"},
		"deep in braces":        {"leases: " + strings.Repeat("{a: ", maxTable/5), "nested too deeply"},
		"deep in dashes":        {"admitted:\n  " + strings.Repeat("- ", maxTable/3) + "1\n", "nested too deeply"},
		"deep in blocks":        {"leases:\n" + stairs(300), "nested too deeply"},
		"an alias":              {"admitted: &a [*a]\n", "line 1, column 11: anchors"},
		"long":                  {"# " + strings.Repeat("x", maxTable), "at most"},
		"no UTF-8":              {"# \xff", "UTF-8"},
	} {
		got, err := ParseTable([]byte(c.text), "/d", Adapters())
		if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), TableName) || bailey.HintOf(err) == "" || got != nil && got.checkTable() == nil {
			t.Errorf("%s: %v (%s)", name, err, bailey.HintOf(err))
		}
		silent(t, err)
	}
}

// stairs returns n mappings, each inside the one before.
func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i+1) + "a:\n")
	}
	return b.String()
}

func FuzzTable(f *testing.F) {
	f.Add([]byte(table()))
	f.Add([]byte("leases:\n  a: {token: {env: A}, scope: x, approval: none}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("leases: " + strings.Repeat("{a: [", 100)))
	f.Add([]byte("leases:\n" + stairs(70)))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ParseTable(text, "/d", Adapters())
		if err != nil {
			if !errors.Is(err, bailey.Invalid) {
				t.Errorf("%v", err)
			}
			return
		}
		for name, e := range got.Leases {
			if e.mint == nil || e.TTL < minTTL || e.Approval != nil && (e.Approval.Count < 1 || e.Approval.Level == bailey.Local) {
				t.Errorf("%s: %+v", name, e)
			}
		}
	})
}

// TestAzureLoginIsRefusedByName checks that a typed line of az is refused with its cause and what to use instead, and not
// with the advice to add a lease that cannot exist.
func TestAzureLoginIsRefusedByName(t *testing.T) {
	h := newHouse(t, table())
	l := loanOf("", nil, "free")
	l.Wants = []bailey.Want{{Name: azureLogin, Env: "AZURE_LOGIN", File: true}}
	h.refused("a typed line of az", l, bailey.Unavailable, "no lease has that form")
	if _, err := h.client.Lend(t.Context(), l); !strings.Contains(bailey.HintOf(err), "azure-headers") {
		t.Errorf("%v", bailey.HintOf(err))
	}
}
