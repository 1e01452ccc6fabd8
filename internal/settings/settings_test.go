//go:build linux || darwin

package settings

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/redact"
)

func TestSettingsAreReadStrictly(t *testing.T) {
	many := "workspaces:\n"
	for i := range maxWorkspaces + 1 {
		many += fmt.Sprintf("  - /w/%d\n", i)
	}
	for _, c := range []struct{ name, text, want string }{ // want: the workspaces, or a part of the error
		{"nothing", "", "[]"},
		{"comments", "# a\n\n# b\n", "[]"},
		{"no value", "workspaces:\n", "[]"},
		{"empty list", "workspaces: []\n", "[]"},
		{"block", "workspaces:\n  - /a\n  - \"/b c\" # why\n", "[/a /b c]"},
		{"flow", "workspaces: [/a, /b]", "[/a /b]"},
		{"unknown key", "workspaces: []\nworkspace: /a\n", ":2:1: \"workspace\" is not a setting"},
		{"key twice", "workspaces: []\nworkspaces: []\n", ":2:1"},
		{"a text", "workspaces: /a\n", ":1:13"},
		{"no mapping", "- /a\n", ":1:1"},
		{"relative", "workspaces:\n  - a\n", ":2:5"},
		{"home sign", "workspaces: [~/a]", ":1:14"},
		{"unclean", "workspaces:\n  - /a/../b\n", "clean"},
		{"slash at the end", "workspaces:\n  - /a/\n", "clean"},
		{"twice", "workspaces: [/a, /a]\n", "twice"},
		{"number", "workspaces: [1]\n", "path of a directory"},
		{"null", "workspaces: [null]\n", "path of a directory"},
		{"mapping", "workspaces: [{a: b}]\n", "path of a directory"},
		{"alias", "workspaces: [&a /a, *a]\n", ":1:14: anchors"},
		{"escape hides", `workspaces: ["/a\u202e"]`, "clean"},
		{"newline hides", `workspaces: ["/a\nb"]`, "clean"},
		{"two documents", "workspaces: []\n---\nworkspaces: [/a]\n", "2 documents"},
		{"torn", "workspaces: [/a", ":1:"},
		{"tab", "workspaces:\n\t- /a\n", ":2:"},
		{"not UTF-8", "workspaces: [/a\xff]\n", "UTF-8"},
		{"huge", strings.Repeat("#", MaxSettings+1), "bytes"},
		{"deep", strings.Repeat("[", MaxSettings), "settings.yaml"},
		{"signer", "policySigners: [\"ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\"]", "[]"},
		{"no signer", "policySigners: [ada]", ":1:17: a signer is a name"},
		{"a signer's options", "policySigners: [\"ada cert-authority ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\"]", ":1:17: a signer is a name"},
		{"signer twice", "policySigners: [\"ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\", \"ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\"]", "twice"},
		{"many signers", "policySigners: [" + strings.Repeat("\"ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\", ", 40) + "]", "twice"},
		{"approver", "approvers:\n  - name: ada\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\n    roles: [sre, lead]", "[]"},
		{"pages of the control plane", "controlPlanePages: true", "[]"},
		{"pages, not yes or no", "controlPlanePages: maybe", ":1:20"},
		{"clients that ask", "agents:\n  asking: [claude-code, another client]", "[]"},
		{"a client that asks twice", "agents: {asking: [a, a]}", ":1:22: a client's name"},
		{"a client with its version", "agents: {asking: [a/1]}", "a client's name must have no '/'"},
		{"no list of clients", "agents: {asking: a}", "asking must be a list"},
		{"no approver", "approvers: [ada]", ":1:13: must have keys and values"},
		{"an approver without a key", "approvers:\n  - name: ada", "an approver needs a name and a key"},
		{"an approver without a name", "approvers:\n  - key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x", "an approver needs a name and a key"},
		{"an approver's name of two words", "approvers:\n  - name: ada ssh-rsa\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x", "an approver needs a name and a key"},
		{"an approver's options", "approvers:\n  - name: ada\n    key: cert-authority ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x", "an approver's name is a word"},
		{"an approver that is a comment", "approvers:\n  - name: '#ada'\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x", "an approver's name is a word"},
		{"a key of two approvers", "approvers:\n  - name: ada\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\n  - name: eve\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x eve", "must not count as two"},
		{"an approver's role twice", "approvers:\n  - name: ada\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\n    roles: [sre, sre]", "be listed once"},
		{"an approver's role with a space", "approvers:\n  - name: ada\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\n    roles: [s re]", "a role must be lower case"},
		{"an approver's unknown key", "approvers:\n  - name: ada\n    touch: yes", "is not a part of an approver"},
		{"approvers are no list", "approvers: ada", "approvers must be a list"},
		{"broker", "broker: {socket: /run/bailey-broker/broker.sock, uid: 61000}", "[]"},
		{"a broker of root", "broker:\n  socket: /run/b.sock\n  uid: 0", "[]"},
		{"a broker with the log's key", "broker: {socket: /b, uid: 1, checkpointKey: true}", "[]"},
		{"a broker with a key of a word", "broker: {socket: /b, uid: 1, checkpointKey: \"true\"}", "checkpointKey must be true or false"},
		{"a key by itself", "broker: {checkpointKey: true}", "needs socket"},
		{"a key twice", "broker: {socket: /b, uid: 1, checkpointKey: true, checkpointKey: false}", "already defined"},
		{"no broker", "broker:\n", "[]"},
		{"a broker's path alone", "broker: {socket: /run/b.sock}", "needs uid"},
		{"a broker's uid alone", "broker: {uid: 1}", "needs socket"},
		{"a broker's path from somewhere", "broker: {socket: b.sock, uid: 1}", "absolute path"},
		{"a broker's path around", "broker: {socket: /run/../b.sock, uid: 1}", "absolute path"},
		{"a broker's user by name", "broker: {socket: /b, uid: bailey-broker}", "uid must be a number"},
		{"a broker's uid below zero", "broker: {socket: /b, uid: -1}", "not a uid"},
		{"a broker's huge uid", "broker: {socket: /b, uid: 4294967296}", "not a uid"},
		{"a broker's unknown key", "broker: {socket: /b, uid: 1, token: x}", "is not a part of broker"},
		{"a broker of a word", "broker: /b", "must have keys and values"},
		{"notify", "notify:\n  desktop: true\n  webhook: {url: \"https://hooks.example.com/T0/secret\"}", "[]"},
		{"notify, http here", "notify: {webhook: {url: \"http://127.0.0.1:8080/hook\"}}", "[]"},
		{"notify, http by name", "notify: {webhook: {url: \"http://localhost/\"}}", "[]"},
		{"notify, http there", "notify: {webhook: {url: \"http://192.0.2.1/secret\"}}", ":1:25: the url of a webhook must be https"},
		{"notify, another scheme", "notify: {webhook: {url: \"file:///etc/passwd\"}}", "malformed"},
		{"notify, a user", "notify: {webhook: {url: \"https://ada:secret@a.example/\"}}", "neither a user"},
		{"notify, no url", "notify: {webhook: {}}", "a webhook needs a url"},
		{"notify, no mapping", "notify: {webhook: \"https://a.example\"}", "must have keys and values"},
		{"notify, a word", "notify: {desktop: \"yes\"}", ":1:19: desktop must be true or false"},
		{"notify, unknown", "notify: {email: true}", ":1:10: \"email\" is not a way to notify"},
		{"notify, unknown part", "notify: {webhook: {url: \"https://a.example\", secret: x}}", "is not a part of a webhook"},
		{"notify, hidden", "notify: {webhook: {url: \"https://a.example/\\u202e\"}}", "malformed"},
		{"signers are no list", "policySigners: ada", "must be a list of keys"},
		{"many", many, "there are more than 64 directories in workspaces"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, err := ParseSettings([]byte(c.text))
			if got := fmt.Sprint(said.Workspaces); strings.HasPrefix(c.want, "[") {
				if err != nil || got != c.want {
					t.Errorf("%s, %v; want %s", got, err, c.want)
				}
			} else if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "" {
				t.Errorf("%s, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestAddWorkspaceKeepsTheRest(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"after the last", "# mine\nworkspaces:\n- /a # first\n- /b\n# end\n", "# mine\nworkspaces:\n- /a # first\n- /b\n- \"/x y\"\n# end\n"},
		{"no newline at the end", "workspaces:\n    - /a", "workspaces:\n    - /a\n    - \"/x y\"\n"},
		{"below the key", "workspaces:\n# none yet\n", "workspaces:\n  - \"/x y\"\n# none yet\n"},
		{"without the key", "# mine\n", "# mine\nworkspaces:\n  - \"/x y\"\n"},
		{"an empty file", "", "workspaces:\n  - \"/x y\"\n"},
		{"a form it does not know", "workspaces: [/a]\n", ""},
		{"an empty list", "workspaces: []\n", ""},
		{"damaged", "workspace: []\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := AddWorkspace([]byte(c.text), "/x y")
			if c.want == "" {
				if err == nil || bailey.HintOf(err) == "" {
					t.Errorf("%q, %v: want an error with a cure", got, err)
				}
			} else if err != nil || strings.TrimLeft(string(got), "\n") != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if fresh, err := AddWorkspace(nil, "/x"); err != nil || !bytes.HasPrefix(fresh, []byte(freshSettings)) {
		t.Errorf("%s, %v", fresh, err)
	}
	if _, err := AddWorkspace(nil, "/x\x1b[2J"); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a path that moves the cursor: %v", err)
	}
}

// FuzzSettings checks that any file is refused or names absolute paths, and that an added path comes after all paths
// that were there before.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{"", freshSettings, "workspaces: [/a]", "workspaces:\n- /a\n-   '/b'\n", "workspaces:\n  -\n    /a\n", "? workspaces\n: - /a\n",
		"approvers:\n  - name: ada\n    key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\n    roles: [sre]\n",
		"notify: {desktop: true, webhook: {url: \"https://a.example/b\"}}\nworkspaces:\n", "notify:\n  webhook:\n    url: http://[::1]:80/\n",
		"network:\n  upstream: http://proxy.example:3128\n  endpoints:\n    - to: \"*.corp.example:443\"\n      private: true\n      for: [wrap, \"http.*\"]\n",
		ownRules, "policySigners: [\"ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFAPbAmkIJXm9JApv5m7iNYG8sXVgPrs2PnZFzPXrd/x\"]", "redaction:\n  without: [IPV4]\nworkspaces:\n", "redaction: {patterns: [{category: A, regexp: b, hides: [b]}]}", "{redaction: {allow: [{regexp: '.', passes: [a]}]}}",
		"workspaces:\n  - |\n    /a\n", "{workspaces: [\"/a\"]}", "workspaces: !!seq [/a]", "\ufeffworkspaces:\n", "a: &a [*a]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		said, err := ParseSettings(text)
		if err != nil {
			if !errors.Is(err, bailey.Invalid) {
				t.Fatalf("no kind: %v", err)
			}
			return
		}
		if n := said.Notify; n.Webhook == "" && n.URL.Reveal() != "" || strings.ContainsAny(n.Webhook, "\n?#") || strings.Count(n.Webhook, "/") > 2 {
			t.Fatalf("a webhook is shown as %q", n.Webhook)
		}
		for _, r := range said.Network.Endpoints {
			if e, err := bailey.ParseEndpoint(r.String()); err != nil || e.String() != r.String() {
				t.Fatalf("an endpoint is %q: %v", r, err)
			}
		}
		dirs := said.Workspaces
		if _, err := redact.Compile(Expressions(said.Redaction)); err != nil {
			t.Fatalf("what was read does not compile: %v", err)
		}
		for _, d := range dirs {
			if !filepath.IsAbs(d) || !isPrintable(d) {
				t.Fatalf("%q is a workspace", d)
			}
		}
		if more, err := AddWorkspace(text, "/new"); err == nil {
			if now, err := ParseSettings(more); err != nil || !slices.Equal(now.Workspaces, append(dirs, "/new")) || !reflect.DeepEqual(now.Redaction, said.Redaction) || !slices.Equal(now.Signers, said.Signers) {
				t.Fatalf("%q became %q: %v, %v", text, more, now, err)
			}
		}
	})
}
