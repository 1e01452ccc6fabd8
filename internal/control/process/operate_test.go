package process

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/ledger"
)

// runWith runs the program with a standard input.
func runWith(t *testing.T, dir, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, getenv: func(name string) string {
		return map[string]string{"BAILEY_SERVER_DIR": dir}[name]
	}}
	code = p.runProgram(t.Context(), args)
	return code, out.String(), errs.String()
}

// wantRun runs a command that must succeed with --json.
func wantRun(t *testing.T, dir, stdin string, args ...string) (out map[string]any) {
	t.Helper()
	code, stdout, stderr := runWith(t, dir, stdin, append(args, "--json")...)
	if code != 0 || json.Unmarshal([]byte(stdout), &out) != nil {
		t.Fatalf("%q: %d: %s%s", args, code, stdout, stderr)
	}
	return out
}

// refuseRun runs a command that must fail.
func refuseRun(t *testing.T, dir, stdin, why string, args ...string) {
	t.Helper()
	if code, stdout, stderr := runWith(t, dir, stdin, args...); code == 0 || !strings.Contains(stderr, why) {
		t.Errorf("%q: %d, want %q: %s%s", args, code, why, stdout, stderr)
	}
}

// makeAccount makes the first account of a server that runs.
func makeAccount(t *testing.T, s served) {
	t.Helper()
	link, err := url.Parse(setupLink.FindString(s.out.String()))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(map[string]string{"token": link.Query().Get("token"), "name": "Ann", "email": "ann@example.com",
		"password": "password of ann", "organisation": "Shop"})
	if status, text := post(t, s, link.Host, "/api/v1/setup", body); status != http.StatusOK {
		t.Fatalf("setup: %d %s", status, text)
	}
}

const testSecret = "the-client-secret-of-the-provider"

var addIDP = []string{"provider", "add", "idp", "--kind", "oidc", "--issuer", "https://idp.example.com", "--client-id", "bailey"}

// TestMoveToPostgres backs up a server that runs on SQLite, and restores it into PostgreSQL, where people sign in.
func TestMoveToPostgres(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	dir, next := t.TempDir(), t.TempDir()
	s := runServer(t, dir)
	makeAccount(t, s)
	file := filepath.Join(t.TempDir(), "backup")
	if got := wantRun(t, dir, "", "backup", file); got["rows"].(float64) < 3 {
		t.Errorf("got %v", got)
	}
	refuseRun(t, dir, "", "exists", "backup", file)
	refuseRun(t, dir, "", "stop bailey-server", "restore", file)
	s.stop()
	refuseRun(t, dir, "", "not empty", "restore", file)
	config := "database: " + ktest.PostgresDatabase(t) + "\n"
	if err := os.WriteFile(filepath.Join(next, "server.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := wantRun(t, next, "", "migrate"); got["from"].(float64) != 0 || got["to"].(float64) < 10 {
		t.Errorf("migrate: %v", got)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(t.TempDir(), "half")
	if err := os.WriteFile(half, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	refuseRun(t, next, "", "not whole", "restore", half)
	refuseRun(t, next, "", "cannot read", "restore", half+"-none")
	wantRun(t, next, "", "restore", file)
	refuseRun(t, next, "", "not empty", "restore", file)
	s = runServer(t, next)
	login, _ := json.Marshal(map[string]string{"email": "ann@example.com", "password": "password of ann"})
	if status, text := post(t, s, "localhost:"+portOf(s), "/api/v1/login", login); status != http.StatusOK {
		t.Errorf("login: %d %s", status, text)
	}
	s.stop()
	wantRun(t, next, "", "doctor")
	if report, err := ledger.Verify(filepath.Join(next, "ledger")); err != nil || !report.OK || report.Entries < 4 {
		t.Errorf("the record: %+v, %v", report, err)
	}
}

func portOf(s served) string { return s.address[strings.LastIndex(s.address, ":")+1:] }

// TestKeysRotate: the secret of a provider is in no file in clear, a rotated key opens it, and other keys do not.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	added := wantRun(t, dir, testSecret+"\n", addIDP...)
	if text, _ := json.Marshal(added); strings.Contains(string(text), testSecret) ||
		!strings.Contains(string(text), "/login/callback") {
		t.Errorf("got %s", text)
	}
	refuseRun(t, dir, testSecret, "exists", addIDP...)
	for want := 2.0; want < 4; want++ {
		if got := wantRun(t, dir, "", "keys", "rotate"); got["key"] != want || got["secrets"] != 1.0 {
			t.Errorf("got %v, want key %v", got, want)
		}
		wantRun(t, dir, "", "doctor")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	records, err2 := filepath.Glob(filepath.Join(dir, "ledger", "*"))
	if err != nil || err2 != nil || len(names) < 3 || len(records) == 0 {
		t.Fatal(names, records, err, err2)
	}
	for _, name := range append(names, records...) {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(testSecret)) {
			t.Errorf("%s has the secret in clear", name)
		}
	}
	checkModes(t, dir)
	keys := filepath.Join(dir, "server.keys")
	if err := os.Rename(keys, keys+".away"); err != nil {
		t.Fatal(err)
	}
	refuseRun(t, dir, "", "no file of keys", "serve", "--listen", "127.0.0.1:0")
	refuseRun(t, dir, "", "no file of keys", "keys", "rotate")
	refuseRun(t, t.TempDir(), "", "standard input", addIDP...)
	if code, stdout, _ := runWith(t, dir, "", "doctor"); code == 0 || !strings.Contains(stdout, "FAULT keys") {
		t.Errorf("doctor without keys: %d %s", code, stdout)
	}
	if err := os.Rename(keys+".away", keys); err != nil {
		t.Fatal(err)
	}
	wantRun(t, dir, "", "provider", "remove", "idp")
	refuseRun(t, dir, "", "no such provider", "provider", "remove", "idp")
	if got := wantRun(t, dir, "", "provider", "list"); len(got["items"].([]any)) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestRefusedProviders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ why, args string }{
		{"name first", "provider add"}, {"name first", "provider add --kind oidc"},
		{"small letters", "provider add IDP --kind oidc --client-id x --issuer https://x.example"},
		{"--kind", "provider add idp --client-id x --issuer https://x.example"},
		{"--client-id", "provider add idp --kind oidc --issuer https://x.example"},
		{"not a URL", "provider add idp --kind oidc --client-id x"},
		{"not a URL", "provider add idp --kind oidc --client-id x --issuer http://x.example"},
		{"not a URL", "provider add idp --kind oidc --client-id x --issuer https://u:p@x.example"},
		{"not a command", "provider"}, {"not a command", "keys"}, {"takes no argument", "keys rotate now"},
	} {
		refuseRun(t, t.TempDir(), testSecret, c.why, strings.Fields(c.args)...)
	}
}
