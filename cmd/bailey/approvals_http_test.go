//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey/internal/approvaltext"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
)

// httpDoor is a yard with an open question and the HTTP interface for approvals.
type httpDoor struct {
	*yard
	base, token, id string
	client          *http.Client
	key             string // of the approver ada
}

const httpPolicy = `@id("dates-ask") @reason("somebody looks first") @approval("count=1,ttl=10m")
forbid (principal, action == Action::"system.date", resource)
unless { context.approvals.contains("dates-ask") };`

func newHTTPDoor(t *testing.T, approvers bool, flags ...string) *httpDoor {
	t.Helper()
	needsKeygen(t)
	d := &httpDoor{yard: newYard(t), client: &http.Client{Timeout: 20 * time.Second}}
	d.env = append(d.env, "BAILEY_OPERATOR=1")
	dir := filepath.Dir(d.repo)
	d.key = filepath.Join(dir, "ada")
	d.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", d.key)
	if approvers {
		pub, err := os.ReadFile(d.key + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		d.must("mkdir", "-p", "-m", "700", string(d.home))
		ktest.Write(t, filepath.Join(string(d.home), settings.FileName), "approvers:\n  - name: ada\n    key: "+strings.Join(strings.Fields(string(pub))[:2], " ")+"\n")
		d.must(d.program, "init", "--apply", "--yes")
	}
	rules := filepath.Join(dir, "rules")
	d.must(d.program, "policy", "init", rules)
	ktest.Write(t, filepath.Join(rules, "dates.cedar"), httpPolicy)
	d.must(d.program, "policy", "apply", rules, "--yes")
	d.ask()
	d.serve(filepath.Join(dir, "token"), flags...)
	return d
}

// ask makes a call that requires approval.
func (d *httpDoor) ask() {
	d.t.Helper()
	out, _ := d.command(d.program, "run", "system.date", "--json").Output()
	var r localapi.Reply
	decode(d.t, string(out), &r)
	if d.id = string(r.ApprovalID); d.id == "" {
		d.t.Fatalf("nothing was asked: %s", out)
	}
}

// spoken collects the output of a running program.
type spoken struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (d *httpDoor) serve(token string, flags ...string) {
	d.t.Helper()
	cmd := d.command(d.program, append([]string{"approvals", "serve", "--listen", "127.0.0.1:0", "--token-file", token, "--yes"}, flags...)...)
	var words spoken
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() })
	at := regexp.MustCompile(`answers at (https?://[0-9.:]+)`)
	d.await("the door", func() bool { return at.MatchString(words.String()) })
	d.base = at.FindStringSubmatch(words.String())[1]
	b, err := os.ReadFile(token)
	if err != nil {
		d.t.Fatal(err)
	}
	d.token = strings.TrimSpace(string(b))
}

// request sends a request with the token. set may change the request. It returns the status and the decoded answer.
func (d *httpDoor) request(method, path, body string, set func(*http.Request)) (int, map[string]any) {
	d.t.Helper()
	r, err := http.NewRequest(method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	r.Header.Set("Content-Type", "application/json")
	if set != nil {
		set(r)
	}
	res, err := d.client.Do(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	var v map[string]any
	if err != nil || json.Unmarshal(b, &v) != nil {
		d.t.Fatalf("%s %s: %s, %v", method, path, b, err)
	}
	if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Access-Control-Allow-Origin") != "" {
		d.t.Errorf("%s %s: headers %v", method, path, res.Header)
	}
	return res.StatusCode, v
}

// signed returns ada's signature of a text.
func (d *httpDoor) signed(text, namespace string) string {
	d.t.Helper()
	cmd := exec.Command("ssh-keygen", "-Y", "sign", "-n", namespace, "-f", d.key)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatal(err)
	}
	return string(out)
}

func body(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// TestHTTPAnswers checks that questions are shown, and that a call runs only after a valid signed answer.
func TestHTTPAnswers(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	d := newHTTPDoor(t, true)
	code, list := d.request("GET", "/v1/approvals", "", nil)
	if all, _ := list["approvals"].([]any); code != 200 || len(all) != 1 || all[0].(map[string]any)["id"] != d.id {
		t.Fatalf("%d %v", code, list)
	}
	code, q := d.request("GET", "/v1/approvals/"+d.id, "", nil)
	text, _ := q["text"].(string)
	if code != 200 || approvaltext.Digest(text) != q["digest"] {
		t.Fatalf("%d %v", code, q)
	}
	if code, v := d.request("GET", "/v1/grants", "", nil); code != 200 || v["grants"] == nil {
		t.Errorf("grants: %d %v", code, v)
	}
	answer := "/v1/approvals/" + d.id + "/answer"
	for name, c := range map[string]struct {
		body any
		code int
	}{
		"unsigned":             {map[string]any{"digest": q["digest"], "grant": true}, 403},
		"signed with nothing":  {map[string]any{"digest": q["digest"], "grant": true, "signature": ""}, 403},
		"another's purpose":    {map[string]any{"digest": q["digest"], "grant": true, "signature": d.signed(text, "git")}, 403},
		"another text":         {map[string]any{"digest": q["digest"], "grant": true, "signature": d.signed(text+" ", approvaltext.Namespace)}, 403},
		"another digest":       {map[string]any{"digest": strings.Repeat("0", 64), "grant": true, "signature": d.signed(text, approvaltext.Namespace)}, 409},
		"no signature at all":  {map[string]any{"digest": q["digest"], "grant": true, "signature": "yes"}, 400},
		"signature and reason": {map[string]any{"digest": q["digest"], "grant": true, "signature": "x", "reason": "r"}, 400},
	} {
		if code, v := d.request("POST", answer, body(c.body), nil); code != c.code || v["ok"] != false || v["hint"] == "" {
			t.Errorf("%s: %d %v, want %d", name, code, v, c.code)
		}
	}
	code, v := d.request("POST", answer, body(map[string]any{"digest": q["digest"], "grant": true, "signature": d.signed(text, approvaltext.Namespace)}), nil)
	if code != 200 || v["ok"] != true || v["granted"] != true {
		t.Fatalf("%d %v", code, v)
	}
	if code, v := d.request("POST", answer, body(map[string]any{"digest": q["digest"], "grant": true, "signature": d.signed(text, approvaltext.Namespace)}), nil); code != 409 {
		t.Errorf("again: %d %v", code, v)
	}
	d.must(d.program, "run", "system.date")
	if code, v := d.request("GET", "/v1/approvals/a-none", "", nil); code != 404 {
		t.Errorf("%d %v", code, v)
	}
	d.ask()
	if code, v := d.request("POST", "/v1/approvals/"+d.id+"/answer", `{"grant":false,"reason":"not today"}`, nil); code != 200 || v["settled"] != true || v["granted"] != false {
		t.Errorf("denied: %d %v", code, v)
	}
	if out, _ := d.command(d.program, "run", "system.date").CombinedOutput(); !strings.Contains(string(out), "not today") {
		t.Errorf("the agent hears %s", out)
	}
	if log := d.must("cat", filepath.Join(d.home.Ledger(), "00000001.jsonl")); !strings.Contains(log, `"kind":"approvals.serve"`) || strings.Contains(log, d.token) {
		t.Error("the ledger does not say that the door was opened, or says its token")
	}
}

// TestHTTPNeverLocal checks that a grant over HTTP must be signed, even if a local answer needs no signature.
func TestHTTPNeverLocal(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	d := newHTTPDoor(t, false)
	_, q := d.request("GET", "/v1/approvals/"+d.id, "", nil)
	text, _ := q["text"].(string)
	for name, signature := range map[string]string{"unsigned": "", "signed by nobody who is trusted": d.signed(text, approvaltext.Namespace)} {
		if code, v := d.request("POST", "/v1/approvals/"+d.id+"/answer", body(map[string]any{"digest": q["digest"], "grant": true, "signature": signature}), nil); code != 403 {
			t.Errorf("%s: %d %v", name, code, v)
		}
	}
	if out, err := d.command(d.program, "run", "system.date").Output(); err == nil {
		t.Errorf("it ran: %s", out)
	}
}

// TestHTTPWhoAsks checks that a request with a wrong Host (for example after DNS rebinding), a foreign Origin or no
// valid token learns nothing.
func TestHTTPWhoAsks(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	d := newHTTPDoor(t, true, "--host", "door.example:1", "--origin", "https://console.example")
	port := d.base[strings.LastIndex(d.base, ":"):]
	for name, c := range map[string]struct {
		set  func(*http.Request)
		code int
	}{
		"no token":           {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"another token":      {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+d.token[1:]+"0") }, 401},
		"a longer token":     {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+d.token+"0") }, 401},
		"two tokens":         {func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + d.token, "Bearer x"} }, 401},
		"basic":              {func(r *http.Request) { r.SetBasicAuth("x", d.token) }, 401},
		"an empty token":     {func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401},
		"a rebound name":     {func(r *http.Request) { r.Host = "attacker.example" + port }, 421},
		"a name like it":     {func(r *http.Request) { r.Host = "127.0.0.1.attacker.example" + port }, 421},
		"another port":       {func(r *http.Request) { r.Host = "127.0.0.1:1" }, 421},
		"without a port":     {func(r *http.Request) { r.Host = "127.0.0.1" }, 421},
		"another address":    {func(r *http.Request) { r.Host = "0.0.0.0" + port }, 421},
		"another page":       {func(r *http.Request) { r.Header.Set("Origin", "https://attacker.example") }, 403},
		"a page of nowhere":  {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"an empty origin":    {func(r *http.Request) { r.Header["Origin"] = []string{""} }, 403},
		"two origins":        {func(r *http.Request) { r.Header["Origin"] = []string{d.base, "https://attacker.example"} }, 403},
		"another scheme":     {func(r *http.Request) { r.Header.Set("Origin", strings.Replace(d.base, "http:", "https:", 1)) }, 403},
		"its own page":       {func(r *http.Request) { r.Header.Set("Origin", d.base) }, 200},
		"a page it was told": {func(r *http.Request) { r.Header.Set("Origin", "https://console.example") }, 200},
		"localhost":          {func(r *http.Request) { r.Host = "LocalHost" + port }, 200},
		"a name it was told": {func(r *http.Request) { r.Host = "door.example:1" }, 200},
	} {
		code, v := d.request("GET", "/v1/approvals", "", c.set)
		if code != c.code || code != 200 && v["approvals"] != nil {
			t.Errorf("%s: %d %v, want %d", name, code, v, c.code)
		}
		if code, _ := d.request("POST", "/v1/approvals/"+d.id+"/answer", "x", c.set); c.code != 200 && code != c.code {
			t.Errorf("%s, answering: %d, want %d", name, code, c.code)
		}
	}
	for path, code := range map[string]int{"/": 404, "/v1": 404, "/v1/approvals/": 404, "/v2/approvals": 404} {
		if got, v := d.request("GET", path, "", nil); got != code {
			t.Errorf("%s: %d %v", path, got, v)
		}
	}
}

// TestHTTPHugeAnswer checks that an answer is rejected if it is too long, of another content type, or not JSON of this
// form.
func TestHTTPHugeAnswer(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	d := newHTTPDoor(t, true)
	path := "/v1/approvals/" + d.id + "/answer"
	for name, c := range map[string]struct {
		body string
		code int
	}{
		"huge":           {`{"grant":false,"reason":"` + strings.Repeat("x", 8<<20) + `"}`, 413},
		"long":           {`{"grant":false,"reason":"` + strings.Repeat("x", apitype.MaxDenial+1) + `"}`, 400},
		"unknown key":    {`{"grant":false,"grants":true}`, 400},
		"another case":   {`{"grant":false,"Grant":true,"signature":"x"}`, 400},
		"twice":          {`{"grant":false,"grant":true,"signature":"x"}`, 400},
		"nothing":        {``, 400},
		"no word":        {`{"reason":"x"}`, 400},
		"null":           {`{"grant":null}`, 400},
		"two values":     {`{"grant":false}{"grant":false}`, 400},
		"another type":   {`{"grant":"false"}`, 400},
		"an array":       {`[{"grant":false}]`, 400},
		"denial, signed": {`{"grant":false,"signature":"x"}`, 400},
	} {
		if code, v := d.request("POST", path, c.body, nil); code != c.code {
			t.Errorf("%s: %d %v, want %d", name, code, v, c.code)
		}
	}
	if code, _ := d.request("POST", path, `{"grant":false}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }); code != 415 {
		t.Errorf("a form of a page: %d", code)
	}
	if _, v := d.request("GET", "/v1/approvals/"+d.id, "", nil); v["state"] != "open" {
		t.Errorf("the question is %v", v["state"])
	}
}

// TestHTTPDoorIsOpened checks the conditions for `approvals serve`: it needs --yes and a token file that no other user
// can read, and without a certificate it must listen on loopback.
func TestHTTPDoorIsOpened(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	d := newHTTPDoor(t, true)
	dir := filepath.Dir(d.repo)
	wide, short, link := filepath.Join(dir, "wide"), filepath.Join(dir, "short"), filepath.Join(dir, "link")
	ktest.Write(t, wide, strings.Repeat("x", 64))
	ktest.Write(t, short, "x")
	for name, mode := range map[string]os.FileMode{wide: 0o644, short: 0o600} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(short, link); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"can be read by others":                  {"--token-file", wide, "--yes"},
		"contains no token":                      {"--token-file", short, "--yes"},
		"cannot be read":                         {"--token-file", link, "--yes"},
		"--token-file is missing":                {"--yes"},
		"not a loopback address and port":        {"--token-file", filepath.Join(dir, "t"), "--listen", "0.0.0.0:0", "--yes"},
		"--cert and --key must be used together": {"--token-file", filepath.Join(dir, "t"), "--cert", "x", "--yes"},
		"--yes is missing":                       {"--token-file", filepath.Join(dir, "t")},
	} {
		out, err := d.command(d.program, append([]string{"approvals", "serve"}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s, want %q", args, out, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "token")); err != nil || info.Mode().Perm() != 0o600 || len(d.token) != 64 {
		t.Errorf("the token that was made: %v, %v", info.Mode(), err)
	}
}

// TestHTTPOverTLS checks that the interface uses TLS if it has a certificate.
func TestHTTPOverTLS(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "openssl")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	if out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-subj", "/CN=x", "-days", "1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := newHTTPDoor(t, true, "--cert", cert, "--key", key)
	// The identity of the server is not tested here.
	d.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if code, v := d.request("GET", "/v1/approvals", "", nil); code != 200 || !strings.HasPrefix(d.base, "https://") {
		t.Errorf("%d %v", code, v)
	}
	if code, _ := d.request("GET", "/v1/approvals", "", func(r *http.Request) { r.Header.Set("Origin", d.base) }); code != 200 {
		t.Errorf("its own page: %d", code)
	}
}
