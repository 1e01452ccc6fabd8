//go:build linux || darwin

package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
)

// recordBodies keeps the bodies of the requests to an issuer, whose path contains a text.
func recordBodies(f *fakeIssuer, path string) *[]string {
	var bodies []string
	f.setReply(func(_ http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if strings.Contains(r.URL.Path, path) {
			f.mu.Lock()
			defer f.mu.Unlock()
			bodies = append(bodies, string(body))
		}
		return false
	})
	return &bodies
}

// limitedLoan is a loan of the lease free with limits.
func limitedLoan(limits string) bailey.Loan {
	l := loanOf("", nil, "free")
	l.Wants[0].Limits = limits
	return l
}

// wideGitHub is a lease for two repositories.
func wideGitHub() issuerCase {
	c := issuerCases()["github"]
	c.entry = `github: {server: URL, ca: ca.pem, app: Iv1.app, key: own, installation: 7, owner: octo, repositories: [web, api], permissions: {contents: write, pull_requests: read}}`
	return c
}

// TestNarrowGitHub checks which rights GitHub is asked for, and that the terms of the loan say the same.
func TestNarrowGitHub(t *testing.T) {
	h, f := withIssuer(t, wideGitHub())
	bodies := recordBodies(f, "access_tokens")
	for limits, want := range map[string][2]string{
		"": {`{"permissions":{"contents":"write","pull_requests":"read"},"repositories":["web","api"]}`, ""},
		"repository=octo/web": {`{"permissions":{"contents":"write","pull_requests":"read"},"repositories":["web"]}`,
			"contents:write pull_requests:read in web"},
		"access=read repository=Octo/API": {`{"permissions":{"contents":"read","pull_requests":"read"},"repositories":["api"]}`,
			"contents:read pull_requests:read in api"},
		"access=read": {`{"permissions":{"contents":"read","pull_requests":"read"},"repositories":["web","api"]}`,
			"contents:read pull_requests:read in web, api"},
		"repository=evil/x,octo/web": {`{"permissions":{"contents":"write","pull_requests":"read"},"repositories":["web"]}`,
			"contents:write pull_requests:read in web"},
		"access=write repository=evil/web": {`{"permissions":{"metadata":"read"},"repositories":["web"]}`, "metadata:read in web"},
		"region=eu-west-1":                 {`{"permissions":{"contents":"write","pull_requests":"read"},"repositories":["web","api"]}`, ""},
	} {
		f.mu.Lock()
		*bodies = nil
		f.mu.Unlock()
		l := limitedLoan(limits)
		terms, err := h.client.Scope(t.Context(), l.Wants)
		if err != nil {
			t.Fatal(limits, err)
		}
		h.lend(l).Return()
		f.mu.Lock()
		if len(*bodies) != 1 || (*bodies)[0] != want[0] {
			t.Errorf("%s: %q", limits, *bodies)
		}
		f.mu.Unlock()
		if got := terms[0].Scope; strings.TrimPrefix(strings.TrimPrefix(got, "anything"), "; for this call: ") != want[1] {
			t.Errorf("%s: %q", limits, got)
		}
	}
}

// TestNarrowOtherOwner checks that a table with one repository and without an owner lends nothing to a call for a
// repository of that name elsewhere.
func TestNarrowOtherOwner(t *testing.T) {
	h, _ := withIssuer(t, issuerCases()["github"])
	h.refused("another owner", limitedLoan("repository=evil/web"), bailey.Unavailable, "set owner to tell them apart")
	h.lend(limitedLoan("repository=octo/web")).Return()
}

// TestNarrowPermissionsWithoutRead checks that a call that reads asks for no permission that can only be written, and never for
// an empty list, which would mean all.
func TestNarrowPermissionsWithoutRead(t *testing.T) {
	for permissions, want := range map[string]string{
		"{contents: write, workflows: write}": `{"permissions":{"contents":"read"},"repositories":["web","api"]}`,
		"{workflows: write}":                  `{"permissions":{"metadata":"read"},"repositories":["web","api"]}`,
	} {
		c := wideGitHub()
		c.entry = strings.Replace(c.entry, "{contents: write, pull_requests: read}", permissions, 1)
		h, f := withIssuer(t, c)
		bodies := recordBodies(f, "access_tokens")
		h.lend(limitedLoan("access=read")).Return()
		f.mu.Lock()
		if len(*bodies) != 1 || (*bodies)[0] != want {
			t.Errorf("%s: %q", permissions, *bodies)
		}
		f.mu.Unlock()
	}
}

// TestNarrowIsVerified checks that a broker lends only within the limits that the approved text names, and asks the
// issuer for nothing otherwise.
func TestNarrowIsVerified(t *testing.T) {
	c := wideGitHub()
	h, f := withIssuer(t, c)
	now, err := os.ReadFile(filepath.Join(h.dir, TableName))
	if err != nil {
		t.Fatal(err)
	}
	h.reapply(strings.Replace(string(now), "approval: none", "approval: {level: signed-software}", 1))
	approved := limitedLoan("access=read repository=octo/web")
	terms, err := h.client.Scope(t.Context(), approved.Wants)
	if err != nil {
		t.Fatal(err)
	}
	approved.Text = textOf(question(terms))
	approved.Signatures = []string{ada.sign(approved.Text)}
	for _, other := range []string{"", "access=read", "repository=octo/web", "access=read repository=octo/api",
		"access=read repository=octo/api,octo/web"} {
		l := approved
		l.Wants = limitedLoan(other).Wants
		h.refused("limits "+other, l, bailey.Denied, "the answer is to lend")
	}
	for _, malformed := range []string{"repository=octo/web access=read", "access=read access=read", "access", "access=",
		"repository=a b", "owner=octo", "access=read ", "repository=" + strings.Repeat("a", maxWord+1)} {
		l := approved
		l.Wants = limitedLoan(malformed).Wants
		h.refused("limits "+malformed, l, bailey.Invalid, "malformed")
	}
	if n := f.requests(); n > 0 {
		t.Errorf("the issuer was asked %d times", n)
	}
	h.lend(approved).Return()
	if n := f.requests(); n == 0 {
		t.Error("not live: the issuer was never asked")
	}
}

// requests returns the number of requests so far.
func (f *fakeIssuer) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// TestNarrowForeignOwner checks that a token for a repository of the same name but another owner is revoked and not lent.
func TestNarrowForeignOwner(t *testing.T) {
	c := wideGitHub()
	c.entry = strings.Replace(c.entry, "owner: octo, ", "", 1)
	h, f := withIssuer(t, c)
	h.refused("another owner", limitedLoan("repository=evil/web"), bailey.Unavailable, "issued more than was asked for")
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.valid) > 0 {
		t.Error("the issuer still accepts it")
	}
}

// policyOf returns the session policy of a request to STS.
func policyOf(t *testing.T, body string) (p struct{ Statement []map[string]any }) {
	t.Helper()
	form, err := url.ParseQuery(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(form.Get("Policy")), &p); err != nil {
		t.Fatal(err, form.Get("Policy"))
	}
	return p
}

// TestNarrowAWS checks that a limit only adds statements that deny, to the table's own policy if there is one.
func TestNarrowAWS(t *testing.T) {
	c := issuerCases()["aws"]
	const own = `{"Effect":"Allow","Action":["s3:Get*","logs:*"],"Resource":"*"}`
	for _, form := range []string{`{"Version":"2012-10-17","Statement":[` + own + `]}`,
		`{"Version":"2012-10-17","Statement":` + own + `}`, ""} {
		c.files["policy.json"] = form
		entry := c.entry
		if form == "" {
			c.entry = strings.Replace(c.entry, ", policy: policy.json", "", 1)
		}
		h, f := withIssuer(t, c)
		c.entry = entry
		for limits, want := range map[string]string{
			"service=logs region=eu-west-1": "",
			"bucket=b-1,b-2 region=eu-west-1 service=s3": `service s3, bucket b-1, b-2
{"Condition":{"BoolIfExists":{"aws:ViaAWSService":"false"}},"Effect":"Deny","NotAction":["s3:*","iam:PassRole"],"Resource":"*"}
{"Action":"s3:*","Effect":"Deny","NotResource":["arn:aws:s3:::b-1","arn:aws:s3:::b-1/*","arn:aws:s3:::b-2","arn:aws:s3:::b-2/*"]}`,
			"access=read region=eu-west-1 service=elbv2": `service elbv2, region eu-west-1
{"Condition":{"BoolIfExists":{"aws:ViaAWSService":"false"}},"Effect":"Deny","NotAction":["elasticloadbalancing:*","iam:PassRole"],"Resource":"*"}
{"Action":"elasticloadbalancing:*","Condition":{"StringNotEquals":{"aws:RequestedRegion":"eu-west-1"}},"Effect":"Deny","Resource":"*"}`,
			"region=eu-west-1 service=unheard-of": "\n",
		} {
			bodies := recordBodies(f, "/")
			l := limitedLoan(limits)
			if want == "" { // the order of the kinds
				h.refused(limits, l, bailey.Invalid, "malformed")
				continue
			}
			rights, denied, _ := strings.Cut(want, "\n")
			terms, err := h.client.Scope(t.Context(), l.Wants)
			if err != nil {
				t.Fatal(limits, err)
			}
			if got := strings.TrimPrefix(strings.TrimPrefix(terms[0].Scope, "anything"), "; for this call: "); got != rights {
				t.Errorf("%s: %q", limits, got)
			}
			h.lend(l).Return()
			f.mu.Lock()
			body := (*bodies)[0]
			f.mu.Unlock()
			if rights == "" { // no limit: the table's own policy as it is
				if form, err := url.QueryUnescape(body); err != nil || strings.Contains(form, "Deny") {
					t.Errorf("%s: %s, %v", limits, form, err)
				}
				continue
			}
			first := policyOf(t, body).Statement[0]
			if form != "" && fmt.Sprint(first["Action"]) != "[s3:Get* logs:*]" || form == "" && first["Action"] != "*" {
				t.Errorf("%s: the table's own statement became %v", limits, first)
			}
			var more []string
			for _, s := range policyOf(t, body).Statement[1:] {
				text, _ := json.Marshal(s)
				more = append(more, string(text))
			}
			if got := strings.Join(more, "\n"); got != denied {
				t.Errorf("%s: %s", limits, got)
			}
		}
	}
	c.files["policy.json"] = `{"Version":"2012-10-17","Statement":[{"Sid":"` + strings.Repeat("a", 1900) + `"}]}`
	h, _ := withIssuer(t, c)
	h.refused("a long policy", limitedLoan("service=s3"), bailey.Unavailable, "longer than 2048 characters")
	for _, broken := range []string{`[]`, `{"Statement":["x"]}`, `{}`} {
		putPrivate(t, h.dir, "policy.json", broken)
		h.refused("the policy "+broken, limitedLoan("service=s3"), bailey.Unavailable, "is not a policy")
	}
}

// TestNarrowKubectl checks that a call for a namespace of the table gets a token of the account there, and that a call for
// another namespace gets nothing.
func TestNarrowKubectl(t *testing.T) {
	var asked []string
	f := newFakeIssuer(t, func(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		writeJSON(w, 201, map[string]any{"kind": "TokenRequest", "status": map[string]any{
			"token": f.issue("token"), "expirationTimestamp": time.Now().Add(10 * time.Minute)}})
	})
	entry := "kubectl: {server: " + f.URL + ", ca: ca.pem, credential: own, namespace: dev, namespaces: [stage], account: agents, form: kubeconfig}"
	h := newHouse(t, strings.Replace(table(), `literal: "`+value+`", scope: anything, ttl: 1m`, entry, 1))
	putPrivate(t, h.dir, "own", "own-credential")
	putPrivate(t, h.dir, "ca.pem", f.authority())
	for limits, space := range map[string]string{"": "dev", "namespace=dev": "dev", "namespace=stage": "stage"} {
		f.mu.Lock()
		asked = nil
		f.mu.Unlock()
		lease := h.lend(limitedLoan(limits))
		if text := lease.Secrets[0].Reveal(); !strings.Contains(text, `"namespace":"`+space+`"`) {
			t.Errorf("%s: %s", limits, text)
		}
		lease.Return()
		f.mu.Lock()
		if len(asked) != 1 || !strings.Contains(asked[0], "/namespaces/"+space+"/serviceaccounts/agents/token") {
			t.Errorf("%s: %q", limits, asked)
		}
		f.mu.Unlock()
	}
	h.refused("another namespace", limitedLoan("namespace=prod"), bailey.Denied, "namespace prod is not in the broker's table")
}

// FuzzParseLimits checks that limits have one encoding, and that nothing in them can become a part of a path or of JSON.
func FuzzParseLimits(f *testing.F) {
	f.Add("access=read repository=octo/web")
	f.Add("bucket=a,b region=eu-west-1 service=s3")
	f.Add("namespace=..")
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := parseLimits(text)
		if err != nil {
			return
		}
		var list []string
		for _, kind := range limitKinds() {
			if v, ok := limits[kind]; ok {
				list = append(list, kind+"="+v)
			}
		}
		if strings.Join(list, " ") != text || strings.ContainsAny(text, "\"\\\n{}") {
			t.Errorf("%q", text)
		}
	})
}
