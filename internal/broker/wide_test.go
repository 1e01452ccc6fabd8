//go:build linux || darwin

package broker

import (
	"slices"
	"strings"
	"testing"
)

// TestTooWide checks which leases are reported because they allow more than a call needs, and that a narrow lease of each
// adapter is not.
func TestTooWide(t *testing.T) {
	const head = "admitted: [1]\nleases:\n  x: {approval: none, "
	for entry, says := range map[string]string{
		`github: {app: a, key: k, installation: 7, repositories: [web], permissions: {administration: write}}`:                   "administration: write",
		`github: {app: a, key: k, installation: 7, repositories: [web], permissions: {contents: admin}}`:                         "contents: admin",
		`github: {app: a, key: k, installation: 7, repositories: [a,b,c,d,e,f,g,h,i,j,k], permissions: {contents: read}}`:        "all 11",
		`github: {app: a, key: k, installation: 7, repositories: [web], permissions: {contents: write}}`:                         "",
		`aws: {role: "arn:aws:iam::123456789012:role/agents", region: eu-west-1, keys: k}`:                                       "all rights of the role",
		`aws: {role: "arn:aws:iam::123456789012:role/agents", region: eu-west-1, keys: k, policy: p}`:                            "",
		`gcloud: {account: a@p.iam.gserviceaccount.com, key: k, scopes: [https://www.googleapis.com/auth/cloud-platform]}`:       "every API",
		`gcloud: {account: a@p.iam.gserviceaccount.com, key: k, scopes: [https://www.googleapis.com/auth/devstorage.read_only]}`: "",
		`vault: {server: "https://v.example", token: k, path: secret/data/x}`:                                                    "fixed token",
		`vault: {server: "https://v.example", appRole: {role: r, secret: k}, path: secret/data/x}`:                               "",
		`infisical: {token: k, project: p, environment: e, name: n}`:                                                             "fixed token",
		`exchange: {server: "https://v.example", path: t, subject: s, audience: a, scopes: [read]}`:                              "stays valid after its call",
		`exchange: {server: "https://v.example", path: t, subject: s, audience: a, scopes: [read], revoke: r}`:                   "",
		`kubectl: {server: "https://k.example", ca: c, credential: k, namespace: kube-system, account: agents}`:                  "kube-system",
		`kubectl: {server: "https://k.example", ca: c, credential: k, namespace: dev, account: default}`:                         "every pod",
		`kubectl: {server: "https://k.example", ca: c, credential: k, namespace: dev, account: agents}`:                          "",
		`literal: x, ttl: 2h`: "2h0m0s",
		`literal: x, ttl: 1h`: "",
	} {
		table, err := ParseTable([]byte(head+entry+"}\n"), t.TempDir(), Adapters())
		if err != nil {
			t.Fatal(entry, err)
		}
		got := table.TooWide()
		if says == "" && len(got) > 0 || says != "" && !slices.ContainsFunc(got, func(l string) bool {
			return strings.HasPrefix(l, "x: ") && strings.Contains(l, says)
		}) {
			t.Errorf("%s: %q", entry, got)
		}
	}
}
