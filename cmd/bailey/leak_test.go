//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/cli/direct"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
)

// samples contains secrets of twelve kinds. They are assembled here, so that a secret scanner finds nothing in this
// file.
type samples struct {
	kind map[string]string // kind → the secret
	text string            // all of them, each in a typical context
}

func newSamples() samples {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	var key []string
	for i := range 4 {
		key = append(key, base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%d:q8Zt4LwXn27VbRk05mPsUy9GhJc3FaDeW1oTiQxN6vKzBlYuOpM", i)))[:64])
	}
	s := samples{kind: map[string]string{
		"aws":      "AKIA" + "Q3EGRZ7XJ5TVBN2M",
		"awsKey":   "wJ4lrXUtnF3MI7K9MDENGbPxRf" + "iCYz8Qv2LkT0pH",
		"github":   "ghp_" + "k3Vt9QxLmZ27RbYwN8sHd4JcPfUe61GaTo0i",
		"slack":    "xoxb-" + "284710395562-739105862244-Kq7ZtXw2VbN8mRsLpY3dHc5J",
		"stripe":   "sk_live_" + "9Zq4XtV7LmB2KsRwN8yHd3Jc",
		"jwt":      part(`{"alg":"HS256","typ":"JWT"}`) + "." + part(`{"sub":"48213977","name":"nobody","iat":1716239022}`) + ".Zk3Vt9QxLm27RbYwN8sHd4JcPfUe61GaTo0iKqXs5Wn",
		"password": "t7Gq" + "Zr2xW9vLk",
		"urlWord":  "Vb8n" + "Kq3tYz6Rw",
		"bearer":   "b7Kx9mQ2" + "vT4wZ8nR3sL6yH1d",
		"pem":      key[1],
		"ipv4":     "10.93.7.41",
		"ipv6":     "2a02:898:13::4d1",
	}}
	k := s.kind
	s.text = strings.Join([]string{
		"AWS_ACCESS_KEY_ID=" + k["aws"], "AWS_SECRET_ACCESS_KEY=" + k["awsKey"], "GITHUB_TOKEN=" + k["github"], "slack " + k["slack"],
		"stripe " + k["stripe"], "token: " + k["jwt"], "password=" + k["password"], "postgres://app:" + k["urlWord"] + "@db.example.net:5432/app",
		"Authorization: Bearer " + k["bearer"], "host " + k["ipv4"] + " and " + k["ipv6"],
		"-----BEGIN PRIVATE " + "KEY-----", strings.Join(key, "\n"), "-----END PRIVATE " + "KEY-----", "",
	}, "\n")
	return s
}

// forms returns the encodings in which a secret may appear.
func forms(secret string) (all []string) {
	text, _ := json.Marshal(secret)
	all = []string{secret, strings.Trim(string(text), `"`), url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))}
	for pad := range 3 {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			in := e.EncodeToString([]byte(strings.Repeat("\x00", pad) + secret))
			all = append(all, in[(pad*8+5)/6:len(in)-4]) // only characters that do not depend on the neighbouring bytes
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// seek reports every secret that appears in seen.
func (s samples) seek(t *testing.T, where string, seen []byte) {
	t.Helper()
	for kind, secret := range s.kind {
		for _, form := range forms(secret) {
			if i := bytes.Index(seen, []byte(form)); i >= 0 {
				t.Errorf("%s shows %s as %q: …%s…", where, kind, form, seen[max(0, i-80):min(len(seen), i+len(form)+80)])
				break
			}
		}
	}
}

// leaky is a yard with a repository in which the path, files, commits and branches contain secrets.
type leaky struct {
	*yard
	samples
	out map[string][]byte // the output of each request
}

func newLeaky(t *testing.T) *leaky {
	l := &leaky{yard: newYard(t), samples: newSamples(), out: map[string][]byte{}}
	k := l.kind
	l.env = append(l.env, "AWS_SECRET_ACCESS_KEY="+k["awsKey"], "AWS_ACCESS_KEY_ID="+k["aws"], "GITHUB_TOKEN="+k["github"], "PGPASSWORD="+k["password"],
		"DATABASE_URL=postgres://app:"+k["urlWord"]+"@db.example.net/app", "SSH_CLIENT="+k["ipv4"]+" 4711 22")
	l.repo = filepath.Join(filepath.Dir(l.repo), k["github"], k["ipv4"])
	l.must("git", "init", "-q", l.repo)
	for _, name := range []string{"plain.env", k["stripe"] + ".txt", k["slack"] + ".log"} {
		if err := os.WriteFile(filepath.Join(l.repo, name), []byte(l.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l.must("git", "-C", l.repo, "add", ".")
	l.must("git", "-C", l.repo, "commit", "-q", "-m", "add "+k["slack"], "-m", l.text)
	l.must("git", "-C", l.repo, "branch", k["github"])
	for _, name := range []string{"plain.env", k["aws"] + ".new"} { // one changed, one untracked
		if err := os.WriteFile(filepath.Join(l.repo, name), []byte("more\n"+l.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// cli runs a command with text and JSON output, and keeps both.
func (l *leaky) cli(args ...string) {
	for _, format := range []string{"", "--json"} {
		cmd := l.command(l.program, args...)
		if format != "" {
			cmd.Args = append(cmd.Args, format)
		}
		cmd.Dir = l.repo
		out, _ := cmd.CombinedOutput() // most are refused
		l.out[strings.Join(append([]string{"bailey"}, args[:2]...), " ")+fmt.Sprintf(" (%d)", len(l.out))] = out
	}
}

// mcp sends requests over an MCP connection. meanwhile runs while it is open.
func (l *leaky) mcp(t *testing.T, meanwhile func(), lines ...string) {
	cmd := l.command(l.program, "serve")
	cmd.Dir = l.repo
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, complaints bytes.Buffer
	cmd.Stderr = &complaints
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		fmt.Fprintln(in, line)
	}
	buf := make([]byte, 1<<16)
	for strings.Count(out.String(), "\n") < len(lines) {
		n, err := answers.Read(buf)
		if out.Write(buf[:n]); err != nil {
			t.Fatalf("%v after %s%s", err, out.String(), complaints.String())
		}
	}
	meanwhile()
	in.Close()
	rest, _ := io.ReadAll(answers)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, complaints.String())
	}
	for i, line := range strings.SplitAfter(out.String()+string(rest), "\n") {
		l.out[fmt.Sprintf("mcp answer %d", i+1)] = []byte(line)
	}
	l.out["mcp stderr"] = complaints.Bytes()
}

// files collects all files of the home.
func (l *leaky) files(t *testing.T) {
	err := filepath.WalkDir(string(l.home), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		l.out["file "+d.Name()] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingLeaks sends secrets of twelve kinds through the command line and MCP, in every field and for every outcome
// of a call. No output and no file of the home may contain one.
func TestNothingLeaks(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	l := newLeaky(t)
	k := l.kind
	outside := filepath.Join(t.TempDir(), k["github"])
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"system.echo", "-i", "message=" + l.text}, {"git.status", "-i", "repo=."}, {"git.log", "-i", "repo=" + l.repo}, {"git.show", "-i", "repo=."}, {"git.diff", "-i", "repo=."},
		{"git.branch-list", "-i", "repo=.", "-i", "all=true"}, {"git.log", "-i", "repo=" + outside}, {"git.log", "-i", "repo=" + filepath.Join(l.repo, k["jwt"])},
		{"git.show", "-i", "repo=.", "-i", "rev=" + k["github"] + "x"}, {"git.log", "-i", "repo=.", "-i", "limit=" + k["aws"]}, {"git.log", "-i", "repo=.", "-i", "limit=" + l.text},
		{"git.log", "-i", "repo=.", "-i", k["stripe"] + "=1"}, {"git.log", "-i", "repo=" + k["aws"] + "/" + k["github"]}, {k["github"]}, {"git." + k["slack"]}, {"system.date", "-i", "format=" + k["github"]},
	} {
		l.cli(append([]string{"run"}, args...)...)
		l.cli(append([]string{"run", "--dry-run"}, args...)...)
		l.cli(append([]string{"policy", "explain"}, args...)...)
		l.cli(append([]string{"jail", "explain"}, args...)...)
	}
	text, _ := json.Marshal(l.text)
	call := func(name, args string) string {
		return fmt.Sprintf(`"tools/call","params":{"name":%q,"arguments":%s}`, name, args)
	}
	lines := []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":%q,"version":%q}}}`, k["github"], k["ipv4"])}
	for i, method := range []string{
		call("system_echo", `{"message":`+string(text)+`}`), call("git_log", `{"repo":"."}`), call("git_show", `{"repo":"."}`), call("git_diff", `{"repo":"."}`),
		call("git_status", `{"repo":"."}`), call("git_branch-list", `{"repo":".","all":true}`), call("git_log", `{"repo":"`+outside+`"}`), call("git_show", `{"repo":".","rev":"`+k["github"]+`x"}`),
		call("git_log", `{"repo":".","limit":`+string(text)+`}`), call("git_log", `{"repo":".","`+k["stripe"]+`":1}`), call("git_log", `{"repo":["`+k["github"]+`"]}`),
		call(k["github"], `{}`), call("git_log", `"`+k["github"]+`"`), call("git_log", `{"`+k["github"]+`":1,"`+k["github"]+`":2}`), `"` + k["github"] + `"`,
		`"resources/read","params":{"uri":"x://` + k["github"] + `"}`, `"tools/list","params":{"cursor":"` + k["github"] + `"}`,
		`"tools/call","params":{"name":["` + k["github"] + `"]}`, `"tools/call","params":"` + k["github"] + `"`, `"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + k["github"] + `"}}`,
	} {
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%s}`, i+1, method))
	}
	l.mcp(t, func() { l.cli("status", "--json=false") }, lines...)
	var receipts apitype.ReceiptList
	decode(t, l.must(l.program, "receipts", "list", "--limit", "1000", "--json"), &receipts)
	ended := map[bailey.Status]int{}
	for _, r := range receipts.Receipts {
		ended[r.Outcome]++
		l.cli("receipts", "show", string(r.ID))
	}
	if ended[bailey.OK] < 8 || ended[bailey.Refused] < 4 || ended[bailey.Failed] < 10 {
		t.Errorf("the calls did not end in all ways: %v", ended)
	}
	l.cli("receipts", "list")
	run := l.command(l.program, "jail", "run", "--yes", "--ro", ".", "--env", "PGPASSWORD", "--", "printf", "%s", l.text+k["password"])
	run.Dir, run.Env = l.repo, append(run.Env, "BAILEY_OPERATOR=1")
	// Output for the person who ran the command is not redacted.
	if out, err := run.Output(); err != nil || string(out) != l.text+k["password"] {
		t.Errorf("jail run: %v, %s", err, out)
	}
	l.files(t)
	tokens := 0
	for _, where := range slices.Sorted(func(yield func(string) bool) {
		for w := range l.out {
			if !yield(w) {
				return
			}
		}
	}) {
		tokens += bytes.Count(l.out[where], []byte("[REDACTED_"))
		l.seek(t, where, l.out[where])
	}
	if tokens < 500 {
		t.Errorf("%d tokens: the secrets did not get that far", tokens)
	}
	for kind, secret := range k { // proves that the test can fail
		if b := []byte("x" + secret + "y"); !slices.ContainsFunc(forms(secret), func(f string) bool { return strings.Contains(base64.StdEncoding.EncodeToString(b), f) }) {
			t.Errorf("base64 of %s is not seen", kind)
		}
	}
}

// breaking is a policy that panics with the input of the call.
type breaking struct{}

func (breaking) Decide(r bailey.Request) bailey.Decision {
	panic(fmt.Sprintf("cannot judge %v", r.Input))
}

// TestLogHoldsNoSecret checks that the gateway's log contains no secret, even if a stage panics with the arguments of a
// call.
func TestLogHoldsNoSecret(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y, s := newYard(t), newSamples()
	home := localapi.Home(string(y.home) + "-2")
	var log bytes.Buffer
	r := gateway.NewRedaction()
	gate, err := server.New(t.Context(), home, server.Commands{All: (&cli.App{Local: direct.Work{}}).TopVerbs(), ForAgents: cli.AgentVerbs}, r, server.NewLog(r, &log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	gate.Gate.Policy = breaking{}
	res := gate.Gate.Do(context.Background(), bailey.Call{Capability: "system.echo", Input: map[string]any{"message": s.text}, Door: "cli", Dir: y.repo,
		Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: bailey.NewSessionID()}})
	if !errors.Is(res.Err, bailey.Internal) {
		t.Fatalf("the stage did not panic: %+v", res)
	}
	gate.Log.Error("closing a run", "err", fmt.Errorf("it said %w", errors.New(s.text)))
	if got := log.String(); !strings.Contains(got, "a stage panicked") || !strings.Contains(got, "breaking") || !strings.Contains(got, "[REDACTED_") {
		t.Errorf("the log does not say what happened:\n%s", got)
	}
	s.seek(t, "the log", log.Bytes())
	s.seek(t, "the answer", fmt.Appendf(nil, "%v %+v", res.Err, res))
}
