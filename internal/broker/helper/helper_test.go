//go:build linux

package helper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/egress"
	"bailey/internal/ktest"
)

// value is what the helpers of the tests print. It must be in no error and no log.
const value = "hunter2-the-value"

// lockedBuffer is a log that two goroutines use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// office is a helper process with a table.
type office struct {
	t    *testing.T
	dir  string
	said *lockedBuffer
}

func newOffice(t *testing.T) *office {
	t.Helper()
	ktest.Require(t, "userns", "seccomp")
	o := &office{t: t, dir: t.TempDir(), said: &lockedBuffer{}}
	if err := os.Chmod(o.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, Config{Socket: filepath.Join(o.dir, "helper.sock"), UID: os.Geteuid(),
			Log: slog.New(slog.NewTextHandler(o.said, nil)), Ready: func() { close(ready) },
			World: egress.WayConfig{Authorities: []byte("# none\n")}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if strings.Contains(o.said.String(), value) {
			t.Errorf("the log has the value: %s", o.said)
		}
	})
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	return o
}

// try asks a helper once: a script of the shell. more are further keys of the table.
func (o *office) try(script, more string) broker.Trial {
	o.t.Helper()
	program := filepath.Join(o.dir, "mint")
	os.Remove(program) // a program that runs cannot be overwritten
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		o.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("#!/bin/sh\n" + script))
	table := fmt.Sprintf("admitted: [1]\nleases:\n  x: {exec: {socket: helper.sock, uid: %d, program: %s, sha256: %s%s}, ttl: 5m, approval: none}\n",
		os.Geteuid(), program, hex.EncodeToString(sum[:]), more)
	t, err := broker.ParseTable([]byte(table), o.dir, broker.Adapters())
	if err != nil {
		o.t.Fatal(err)
	}
	r := t.TryLease(o.t.Context(), "x")
	if strings.Contains(r.Error, value) || strings.Contains(r.Hint, value) {
		o.t.Errorf("the value is in %q, %q", r.Error, r.Hint)
	}
	return r
}

const minted = `printf '{"value": "hunter2-the-value", "expires": "2999-01-01T00:00:00Z", "id": "t-1"}'` + "\n"

// soon is the answer of a helper with a plausible end, in a shell that has no date.
func soon(keys string) string {
	return fmt.Sprintf(`printf '{"value": "%s", "expires": "%s"%s}'`+"\n", value,
		time.Now().Add(5*time.Minute).UTC().Format(time.RFC3339), keys)
}

// TestHelper checks that a helper in its jail gets the request and its file, and that its value is lent with id and end.
func TestHelper(t *testing.T) {
	ktest.Long(t)
	o := newOffice(t)
	if err := os.WriteFile(filepath.Join(o.dir, "own"), []byte("own-credential"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `read -r request
[ "$request" = '{"version":1,"action":"mint","seconds":300}' ] || { echo "$request" >&2; exit 3; }
read -r own <"$OWN"
[ "$own" = own-credential ] || exit 4
[ "$1" = word ] || exit 5
[ ! -e ` + o.dir + `/own ] || exit 6
` + soon(`, "id": "t-1"`)
	if r := o.try(script, ", args: [word], files: {OWN: own}"); r.Error != "" || r.Bytes != len(value) || r.Mint != "t-1" || r.Until.IsZero() {
		t.Errorf("%+v\n%s", r, o.said)
	}
	// A handle is what revokes it: the helper runs again.
	script = `read -r request
case "$request" in
*'"action":"revoke","id":"t-1","handle":"h-1"'*) exit 0;;
*'"action":"mint"'*) ` + strings.TrimSpace(soon(`, "id": "t-1", "handle": "h-1"`)) + `;;
*) exit 7;;
esac
`
	if r := o.try(script, ""); r.Error != "" || !r.Revoked {
		t.Errorf("%+v\n%s", r, o.said)
	}
	if r := o.try(strings.Replace(script, "exit 0", "exit 9", 1), ""); !strings.Contains(r.Error, "exit code 9") || r.Revoked {
		t.Errorf("a failed revocation: %+v", r)
	}
}

// TestHelperFaults checks that each fault of a helper is a refusal that names it.
func TestHelperFaults(t *testing.T) {
	ktest.Long(t)
	o := newOffice(t)
	for what, c := range map[string]struct{ script, more, says string }{
		"a far end":          {minted, "", "no expires within"},
		"no end":             {`printf '{"value": "hunter2-the-value"}'`, "", "no expires within"},
		"a past end":         {`printf '{"value": "hunter2-the-value", "expires": "2001-01-01T00:00:00Z"}'`, "", "no expires within"},
		"an unknown key":     {soon(`, "token": "x"`), "", "is not one JSON object"},
		"a key twice":        {soon(`, "value": "x"`), "", "is not one JSON object"},
		"another case":       {soon(`, "ID": "x"`), "", "is not one JSON object"},
		"two objects":        {soon("") + soon(""), "", "is not one JSON object"},
		"no output":          {"", "", "is not one JSON object"},
		"a long id":          {soon(`, "id": "` + strings.Repeat("a", 129) + `"`), "", "has an id"},
		"a failure":          {"echo hunter2-the-val >&2; exit 3", "", "ended with exit code 3"},
		"a file of the host": {"read -r x </etc/shadow && " + soon(""), "", "ended with exit code"},
		"a program":          {"/usr/bin/id; exit $?", "", "ended with exit code"},
	} {
		if r := o.try(c.script, c.more); c.says != "" && (!strings.Contains(r.Error, c.says) || r.Hint == "") {
			t.Errorf("%s: %+v\n%s", what, r, o.said)
		}
	}
	if r := o.changed(soon(""), minted); !strings.Contains(r.Error, "and the table pins") || r.Hint == "" {
		t.Errorf("another program: %+v", r)
	}
	if r := o.try("while :; do printf '%4096d' 1; [ $((n += 1)) = 40 ] && exit; done", ""); !strings.Contains(r.Error, "printed more than") {
		t.Errorf("a flood: %+v", r)
	}
}

// TestHelperReachesItsIssuer checks that a helper, here curl, reaches the places of the table and no others.
func TestHelperReachesItsIssuer(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "curl", "netns")
	o := newOffice(t)
	f := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"value": %q, "expires": %q}`, value, time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(f.Close)
	ca := filepath.Join(o.dir, "ca")
	if err := os.Mkdir(ca, 0o755); err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(ca, "ca.pem"), cert, 0o644); err != nil {
		t.Fatal(err)
	}
	curl, err := filepath.EvalSymlinks("/usr/bin/curl")
	if err != nil {
		ktest.Missing(t, "curl", err)
	}
	text, err := os.ReadFile(curl)
	if err != nil {
		t.Fatal(err)
	}
	place := f.Listener.Addr().String()
	try := func(egress string) broker.Trial {
		table, err := broker.ParseTable(fmt.Appendf(nil, "leases:\n  x: {exec: {socket: helper.sock, uid: %d, program: %s, sha256: \"%x\", args: [-sS, --cacert, %s, %q], read: [%s]%s}, approval: none}\n",
			os.Geteuid(), curl, sha256.Sum256(text), ca+"/ca.pem", f.URL, ca, egress), o.dir, broker.Adapters())
		if err != nil {
			t.Fatal(err)
		}
		return table.TryLease(t.Context(), "x")
	}
	if r := try(fmt.Sprintf(", egress: [%q], private: true", place)); r.Error != "" || r.Bytes != len(value) {
		t.Errorf("%+v\n%s", r, o.said)
	}
	for _, egress := range []string{"", fmt.Sprintf(", egress: [%q]", place), `, egress: ["other.example:443"], private: true`} {
		if r := try(egress); !strings.Contains(r.Error, "ended with exit code") && !strings.Contains(r.Hint, "private: true") {
			t.Errorf("%s: %+v", egress, r)
		}
	}
}

// changed pins the first script and runs the second.
func (o *office) changed(pinned, now string) broker.Trial {
	program := filepath.Join(o.dir, "mint")
	sum := sha256.Sum256([]byte("#!/bin/sh\n" + pinned))
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+now), 0o755); err != nil {
		o.t.Fatal(err)
	}
	t, err := broker.ParseTable(fmt.Appendf(nil, "leases:\n  x: {exec: {socket: helper.sock, uid: %d, program: %s, sha256: %x}, approval: none}\n",
		os.Geteuid(), program, sum), o.dir, broker.Adapters())
	if err != nil {
		o.t.Fatal(err)
	}
	return t.TryLease(o.t.Context(), "x")
}

// TestHelperAway checks the refusal if no bailey-helper runs.
func TestHelperAway(t *testing.T) {
	o := &office{t: t, dir: t.TempDir(), said: &lockedBuffer{}}
	if r := o.try("", ""); !strings.Contains(r.Error, "does not answer") || !strings.Contains(r.Hint, "start bailey-helper") {
		t.Errorf("%+v", r)
	}
}

// TestHelperNeedsDigest checks that a table without a digest, or with a variable that controls a program, is refused.
func TestHelperNeedsDigest(t *testing.T) {
	for keys, says := range map[string]string{
		"socket: s, uid: 1, program: /p":                                               "sha256",
		"socket: s, uid: 1, program: p, sha256: 00":                                    "absolute path",
		"program: /p, sha256: 00":                                                      "socket and uid",
		"socket: s, uid: 1, program: /p, sha256: " + zero + ", files: {LD_PRELOAD: x}": "not a variable for a file",
		"socket: s, uid: 1, program: /p, sha256: " + zero + ", egress: [x]":            "egress",
	} {
		_, err := broker.ParseTable([]byte("leases:\n  x: {exec: {"+keys+"}, approval: none}\n"), t.TempDir(), broker.Adapters())
		if err == nil || !strings.Contains(err.Error(), says) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", keys, err)
		}
	}
}

var zero = strings.Repeat("a", 64)
