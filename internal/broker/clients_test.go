//go:build linux || darwin

package broker

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/internal/sigv4"
)

// runClient runs a real client with a lent value. Its home is empty.
func runClient(t *testing.T, program string, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestKubectlWithLease checks that the real kubectl uses a minted kubeconfig at its server: in the namespace of the call,
// with the token of the account there.
func TestKubectlWithLease(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "kubectl")
	f := newFakeIssuer(t, serveCluster)
	entry := "kubectl: {server: " + f.URL + ", ca: ca.pem, credential: own, namespace: dev, namespaces: [stage], account: agents, form: kubeconfig}"
	h := newHouse(t, strings.Replace(table(), `literal: "`+value+`", scope: anything, ttl: 1m`, entry, 1))
	putPrivate(t, h.dir, "own", "own-credential")
	putPrivate(t, h.dir, "ca.pem", f.authority())
	lease := h.lend(limitedLoan("namespace=stage"))
	putPrivate(t, h.dir, "kubeconfig", lease.Secrets[0].Reveal())
	kubectl := func(args ...string) (string, error) {
		return runClient(t, "kubectl", []string{"KUBECONFIG=" + filepath.Join(h.dir, "kubeconfig")}, args...)
	}
	if out, err := kubectl("get", "--raw", "/api/v1/namespaces/stage/pods"); err != nil || !strings.Contains(out, "checkout-1") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := kubectl("get", "--raw", "/api/v1/namespaces/dev/pods"); err == nil {
		t.Errorf("another namespace: %s", out)
	}
	lease.Return()
}

// serveCluster has an account agents in each namespace, whose role allows reading pods there. TokenRequest refuses less
// than ten minutes (authentication.k8s.io/v1).
func serveCluster(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
	status := func(code int, reason string) {
		writeJSON(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // api v1 namespaces NAME …
	if len(parts) < 5 || parts[2] != "namespaces" {
		status(404, "NotFound")
		return
	}
	switch rest := strings.Join(parts[4:], "/"); {
	case r.Method == "POST" && rest == "serviceaccounts/agents/token":
		var ask tokenRequest
		if bearerOf(r) != "own-credential" {
			status(401, "Unauthorized")
		} else if readJSON(r, &ask) != nil || ask.Spec.ExpirationSeconds < 600 {
			status(422, "Invalid")
		} else {
			ask.Status.Token = f.issue("account of " + parts[3])
			ask.Status.ExpirationTimestamp = f.now().Add(time.Duration(ask.Spec.ExpirationSeconds) * time.Second).UTC().Truncate(time.Second)
			writeJSON(w, 201, ask)
		}
	case f.valid[bearerOf(r)] == "":
		status(401, "Unauthorized")
	case r.Method != "GET" || rest != "pods" || f.valid[bearerOf(r)] != "account of "+parts[3]:
		status(403, "Forbidden")
	default:
		writeJSON(w, 200, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": []any{map[string]any{"metadata": map[string]string{"name": "checkout-1"}}}})
	}
}

// TestGhWithLease checks that the real gh uses an installation token during its call, and that GitHub refuses it afterwards.
func TestGhWithLease(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "gh")
	c := wideGitHub()
	api := c.handler
	c.handler = func(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v3/repos/octo/web" {
			api(f, w, r)
			return
		}
		token := r.Header.Get("Authorization")
		if f.valid[token[strings.LastIndexByte(token, ' ')+1:]] == "" {
			writeJSON(w, 401, map[string]string{"message": "Bad credentials"})
			return
		}
		writeJSON(w, 200, map[string]string{"full_name": "octo/web"})
	}
	h, f := withIssuer(t, c)
	lease := h.lend(limitedLoan("access=read repository=octo/web"))
	host := strings.TrimPrefix(f.URL, "https://")
	env := []string{"GH_ENTERPRISE_TOKEN=" + lease.Secrets[0].Reveal(), "GH_HOST=" + host, "SSL_CERT_FILE=" + filepath.Join(h.dir, "ca.pem"),
		"GH_NO_UPDATE_NOTIFIER=1", "GH_PROMPT_DISABLED=1"}
	gh := func() (string, error) {
		return runClient(t, "gh", env, "api", "repos/octo/web", "--jq", ".full_name")
	}
	if out, err := gh(); err != nil || strings.TrimSpace(out) != "octo/web" {
		t.Errorf("%v: %s", err, out)
	}
	lease.Return()
	h.end()
	if out, err := gh(); err == nil || !strings.Contains(out, "Bad credentials") {
		t.Errorf("after the call: %v, %s", err, out)
	}
}

// TestAwsWithLease checks that the real aws signs with the keys of a session.
func TestAwsWithLease(t *testing.T) {
	ktest.Long(t)
	program := "/usr/bin/aws" // that of Debian, as in the pack
	if _, err := os.Stat(program); err != nil {
		ktest.Missing(t, "aws", err)
	}
	c := issuerCases()["aws"]
	sts := c.handler
	c.handler = func(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Security-Token") == "" {
			sts(f, w, r)
			return
		}
		body := make([]byte, r.ContentLength)
		r.Body.Read(body)
		at, _ := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		signed, _ := sigv4.ParseAuthorization(r.Header.Get("Authorization"))
		for secret := range f.valid {
			again, _ := http.NewRequest(r.Method, f.URL+"/", nil)
			again.Header = r.Header.Clone()
			signed.Again(again, sigv4.Credentials{ID: "ASIAIOSFODNN7EXAMPLE", Secret: secret, Session: "FwoGZXIvYXdzEJr="}, sigv4.HashBody(body), at)
			if again.Header.Get("Authorization") == r.Header.Get("Authorization") {
				fmt.Fprint(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>arn:aws:sts::123456789012:assumed-role/agents/bailey</Arn><UserId>u</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`)
				return
			}
		}
		w.WriteHeader(403)
		fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error></ErrorResponse>`)
	}
	h, f := withIssuer(t, c)
	lease := h.lend(limitedLoan("region=eu-central-1 service=sts"))
	aws := func(keys string) (string, error) {
		putPrivate(t, h.dir, "lent", keys)
		return runClient(t, program, []string{"AWS_SHARED_CREDENTIALS_FILE=" + filepath.Join(h.dir, "lent"), "AWS_CONFIG_FILE=/dev/null",
			"AWS_EC2_METADATA_DISABLED=true", "AWS_MAX_ATTEMPTS=1"}, "sts", "get-caller-identity", "--region", "eu-central-1", "--endpoint-url", f.URL,
			"--ca-bundle", filepath.Join(h.dir, "ca.pem"), "--output", "text", "--query", "Arn")
	}
	if out, err := aws(lease.Secrets[0].Reveal()); err != nil || !strings.Contains(out, "assumed-role/agents/bailey") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := aws(strings.Replace(lease.Secrets[0].Reveal(), value, "another", 1)); err == nil {
		t.Errorf("another key: %s", out)
	}
	lease.Return()
}

// TestGcloudWithLease checks that the real gcloud uses a lent access token from its file and no other login, and that the
// API refuses it when the token has another scope.
func TestGcloudWithLease(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "gcloud")
	c := issuerCases()["gcloud"]
	google := c.handler
	asked := make(chan string, 16)
	c.handler = func(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/projects/shop-prod" {
			google(f, w, r)
			return
		}
		asked <- bearerOf(r)
		if f.valid[bearerOf(r)] != "google" {
			writeJSON(w, 401, map[string]any{"error": map[string]any{"code": 401, "status": "UNAUTHENTICATED", "message": "no"}})
			return
		}
		writeJSON(w, 200, map[string]string{"projectId": "shop-prod", "lifecycleState": "ACTIVE", "name": "the shop"})
	}
	h, f := withIssuer(t, c)
	lease := h.lend(loanOf("", nil, "free"))
	gcloud := func(token string) (string, error) {
		putPrivate(t, h.dir, "lent", token)
		return runClient(t, "gcloud", []string{"CLOUDSDK_AUTH_ACCESS_TOKEN_FILE=" + filepath.Join(h.dir, "lent"),
			"CLOUDSDK_CONFIG=" + t.TempDir(), "CLOUDSDK_CORE_DISABLE_PROMPTS=1", "CLOUDSDK_CORE_CHECK_GCE_METADATA=0",
			"CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=1", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=1",
			"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE=" + filepath.Join(h.dir, "ca.pem"),
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER=" + f.URL + "/"},
			"projects", "describe", "shop-prod", "--format=value(name)")
	}
	token := lease.Secrets[0].Reveal()
	if out, err := gcloud(token); err != nil || !strings.Contains(out, "the shop") {
		t.Errorf("%v: %s", err, out)
	}
	if got := <-asked; got != token {
		t.Error("gcloud sent another token")
	}
	if out, err := gcloud("another-token"); err == nil {
		t.Errorf("another token: %s", out)
	}
	lease.Return()
	h.end()
}
