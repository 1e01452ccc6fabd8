//go:build linux || darwin

package broker

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestTryLease checks that the trial of a lease asks its issuer, shows no value, leaves no valid credential where the
// issuer can revoke, and says why a source fails.
func TestTryLease(t *testing.T) {
	for name, c := range issuerCases() {
		h, f := withIssuer(t, c)
		table, err := LoadTable(h.dir)
		if err != nil {
			t.Fatal(err)
		}
		r := table.TryLease(t.Context(), "free")
		if r.Error != "" || r.Bytes == 0 || r.Revoked != c.revocable {
			t.Errorf("%s: %+v", name, r)
		}
		silent(t, r)
		f.mu.Lock()
		for token, purpose := range f.valid {
			if c.revocable && purpose != "login" {
				t.Errorf("%s: %s of %s is still valid", name, token, purpose)
			}
		}
		f.mu.Unlock()
		f.setReply(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true })
		if r := table.TryLease(t.Context(), "free"); !strings.Contains(r.Error, "status 503") || r.Hint == "" || r.Revoked {
			t.Errorf("%s: %+v", name, r)
		}
		h.end()
	}
}

// TestSetupText checks that the document for each issuer names what the lease is for, and no credential.
func TestSetupText(t *testing.T) {
	says := map[string]string{"github": "contents: read", "vault": `path "database/creds/app"`,
		"vault with a token": "sys/leases/revoke",
		"aws":                `"Action": "sts:AssumeRole"`, "aws with a web identity": "sts:AssumeRoleWithWebIdentity", "gcloud": "roles/iam.serviceAccountTokenCreator",
		"azure": "az ad app federated-credential create --id app-1", "exchange": "https://api.example", "infisical": "DB_PASSWORD"}
	for name, c := range issuerCases() {
		h, _ := withIssuer(t, c)
		table, err := LoadTable(h.dir)
		if err != nil {
			t.Fatal(err)
		}
		text := table.SetupText("free")
		if text == "" || !strings.Contains(text, says[name]) {
			t.Errorf("%s: %s", name, text)
		}
		if strings.Contains(text, "own-credential") || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s shows a credential", name)
		}
		if other := table.SetupText("other"); other != "" {
			t.Errorf("a literal: %s", other)
		}
		h.end()
	}
}

// TestIssuerTables checks that an entry without what makes it narrow, or with an address that is not HTTPS, is refused.
func TestIssuerTables(t *testing.T) {
	const app = "app: a, key: k, installation: 1, "
	const role = "role: 'arn:aws:iam::1:role/x', region: eu-central-1, "
	for entry, says := range map[string]string{
		"github: {server: 'http://x', " + app + "repositories: [a], permissions: {contents: read}}": "https://",
		"github: {" + app + "permissions: {contents: read}}":                                        "needs repositories",
		"github: {" + app + "repositories: [a/b], permissions: {contents: read}}":                   "needs repositories",
		"github: {" + app + "repositories: [..], permissions: {contents: read}}":                    "needs repositories",
		"github: {" + app + "repositories: [a]}":                                                    "needs permissions",
		"github: {" + app + "repositories: [a], permissions: {contents: all}}":                      "permission",
		"github: {" + app + "repositories: [a], permissions: {Contents: read}}":                     "permission",
		"github: {app: a, key: k, installation: 0, repositories: [a], permissions: {x: read}}":      "installation",
		"vault: {server: 'https://x', path: secret/data/a}":                                         "one login",
		"vault: {server: 'https://x', token: t, appRole: {role: r, secret: s}, path: a}":            "one login",
		"vault: {server: 'https://x', token: t, path: a/../b}":                                      "path and mount",
		"vault: {server: 'https://x', token: t, path: /a}":                                          "path and mount",
		"vault: {server: 'https://x', appRole: {role: r}, path: a}":                                 "appRole.secret",
		"vault: {server: 'https://x', kubernetes: {role: r}, path: a}":                              "kubernetes.token",
		"vault: {server: 'https://x', appRole: {role: r, secret: s, mount: ../sys}, path: a}":       "path and mount",
		"aws: {role: x, region: eu-central-1, keys: k}":                                             "needs role",
		"aws: {" + role + "}":                  "either keys",
		"aws: {" + role + "keys: k, token: t}": "either keys",
		"aws: {role: 'arn:aws:iam::1:role/x', region: 'evil.example/', keys: k}":                                "needs region",
		"gcloud: {account: me@example.org, key: k, scopes: [x]}":                                                "needs account",
		"gcloud: {account: 'a/../b@p.iam.gserviceaccount.com', key: k, scopes: [x]}":                            "needs account",
		"gcloud: {account: a@p.iam.gserviceaccount.com, scopes: [x]}":                                           "needs key",
		"gcloud: {account: a@p.iam.gserviceaccount.com, key: k}":                                                "needs scopes",
		"gcloud: {account: a@p.iam.gserviceaccount.com, key: k, scopes: [x], boundary: [{resource: r}]}":        "each rule",
		"azure: {tenant: ../x, client: c, token: t, resource: 'https://x'}":                                     "needs tenant",
		"azure: {tenant: t, client: c, resource: 'https://x'}":                                                  "needs token",
		"azure: {tenant: t, client: c, token: t, resource: x}":                                                  "needs resource",
		"azure: {tenant: t, client: c, token: t, resource: 'https://x', form: y}":                               "form must be",
		"infisical: {client: c, secret: s, name: n}":                                                            "needs project",
		"infisical: {client: c, secret: s, project: p, environment: e, name: a/../b}":                           "needs name",
		"infisical: {client: c, secret: s, token: t, project: p, environment: e, name: n}":                      "either client",
		"infisical: {client: c, project: p, environment: e, name: n}":                                           "either client",
		"exchange: {server: 'https://x', path: t, subject: s, scopes: [a]}":                                     "audience or resource",
		"exchange: {server: 'https://x', path: t, subject: s, audience: a}":                                     "needs scopes",
		"exchange: {server: 'https://x', path: t, audience: a, scopes: [a]}":                                    "needs subject",
		"exchange: {server: 'https://x', path: ../t, subject: s, audience: a, scopes: [a]}":                     "needs path",
		"exchange: {server: 'https://x', path: t, client: c, subject: s, audience: a, scopes: [a]}":             "belong together",
		"exchange: {server: 'https://u:p@x', path: t, subject: s, audience: a, scopes: [a]}":                    "https://",
		"exchange: {server: 'https://x', path: t, subject: s, audience: a, scopes: [a], subject_token: inline}": "subject_token",
	} {
		_, err := ParseTable(fmt.Appendf(nil, "leases:\n  a: {%s, approval: none}\n", entry), "/d", Adapters())
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", entry, err)
		}
	}
}
