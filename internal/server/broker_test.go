//go:build linux

package server

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/broker"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/pack"
	"bailey/packs"
)

// lentValue has no form that a detector recognizes. It is redacted only because it was lent.
const lentValue = "quiet meadow lantern of the seventh quay"

// demo is a pack whose tools print the lent credential to standard output and standard error, and fail.
const demo = `name: demo
version: 1.0.0
description: tools that print what they are lent
capabilities:
  - name: demo.NAME
    description: Print what is lent.
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: jail
    timeout: 10s
    backend: {type: subprocess, command: sh, args: ["-c", 'printf "out %s\n" "$DEMO_TOKEN"; printf "err %s\n" "$DEMO_TOKEN" >&2; exit 3']}
    sandboxProfile: {limits: {memoryMiB: 64, tasks: 4}}
    credentials: [{name: NAME, env: DEMO_TOKEN}]
    inputSchema: {type: object}
`

const demoRules = `
@id("demo-free") permit (principal, action == Action::"demo.free", resource);
@id("demo-encoded") permit (principal, action == Action::"demo.encoded", resource);
@id("demo-file") permit (principal, action == Action::"demo.file", resource);
@id("demo-held") permit (principal, action == Action::"demo.held", resource);
@id("demo-asks") @reason("it prints a secret") @approval("role=sre,count=1,ttl=10m")
forbid (principal, action == Action::"demo.held", resource)
unless { context.approvals.contains("demo-asks") };`

// lentForms returns the lent value in the encodings in which a tool may print it.
func lentForms() []string {
	quoted, _ := json.Marshal(lentValue)
	list := []string{lentValue, strings.Trim(string(quoted), `"`), url.QueryEscape(lentValue), url.PathEscape(lentValue),
		hex.EncodeToString([]byte(lentValue)), strings.ToUpper(hex.EncodeToString([]byte(lentValue))),
		base64.StdEncoding.EncodeToString([]byte(lentValue)), base64.URLEncoding.EncodeToString([]byte(lentValue)),
		base64.RawURLEncoding.EncodeToString([]byte("user:" + lentValue)), base64.StdEncoding.EncodeToString([]byte("x:" + lentValue))}
	slices.Sort(list)
	return slices.Compact(list)
}

// encodedDemo returns a capability that borrows free and prints it in each of these encodings.
func encodedDemo(one string) string {
	return strings.NewReplacer("name: NAME, env", "name: free, env", "NAME", "encoded",
		`printf "out %s\n" "$DEMO_TOKEN"; printf "err %s\n" "$DEMO_TOKEN" >&2; exit 3`,
		`printf "form %s\n" "`+strings.Join(lentForms(), `" "`)+`"`).Replace(one)
}

// TestLentValueEncoded checks that a tool that prints its credential in other encodings shows it in none.
func TestLentValueEncoded(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	b := borrowing(t, os.Geteuid(), newHolder("ada", "sre"))
	res := b.Calls(t, "demo.encoded", "/", nil)
	out := string(res.Stdout)
	if len(lentForms()) < 8 || !res.Executed || strings.Count(out, "form ") != len(lentForms()) {
		t.Fatalf("not live: %d forms, %+v", len(lentForms()), res)
	}
	for _, form := range lentForms() {
		if strings.Contains(out, form) {
			t.Errorf("the output has the value as %q: %s", form, out)
		}
	}
}

// brokered is a gate that borrows from a broker in a separate process, which can have another user if the test runs as
// root.
type brokered struct {
	asking
	dir string // of the broker
	cmd *exec.Cmd
}

func (h holder) entry(roles ...string) string {
	return fmt.Sprintf("  - {name: %s, key: ssh-ed25519 %s, roles: [%s]}\n", h.name, base64.StdEncoding.EncodeToString(h.public()), strings.Join(roles, ", "))
}

func borrowing(t *testing.T, uid int, approvers ...holder) *brokered {
	t.Helper()
	ktest.Require(t, "userns", "netns", "go")
	base, err := fs.ReadFile(packs.FS, "base/pack.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"base/pack.yaml": {Data: base}}
	head, one, _ := strings.Cut(demo, "capabilities:\n")
	inFile := strings.NewReplacer("NAME", "file", `printf "out %s\n" "$DEMO_TOKEN"; printf "err %s\n" "$DEMO_TOKEN" >&2`, `read -r v <"$DEMO_TOKEN"; printf "out %s\n" "$v"`, "name: NAME, env: DEMO_TOKEN", "name: free, env: DEMO_TOKEN, file: true").Replace(one)
	files["demo/pack.yaml"] = &fstest.MapFile{Data: []byte(head + "capabilities:\n" + strings.ReplaceAll(one, "NAME", "free") + strings.ReplaceAll(one, "NAME", "held") + inFile + encodedDemo(one))}
	catalog, err := pack.LoadBuiltin(files)
	if err != nil {
		t.Fatal(err)
	}
	b := &brokered{asking: asking{catalog: catalog}}
	b.Server = SpineOf(t, &Server{Catalog: catalog, Rules: FixedRules(b.engine(t, demoRules))})
	if b.settings, err = gateway.OpenSettings(b.home, b.workspaces, b.redaction, settings.Applied{}, b.scribe.recordEvent, b.Log); err != nil {
		t.Fatal(err)
	}
	b.start(t, uid)
	text := fmt.Sprintf("broker: {socket: %s, uid: %d}\napprovers:\n", filepath.Join(b.dir, "run", "broker.sock"), uid)
	for _, h := range approvers {
		text += h.entry(h.roles...)
	}
	if _, err := b.settings.Apply(t.Context(), b.settings.Digest(), []byte(text), settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
	return b
}

// start builds the broker and runs it as uid, with a table that trusts ada.
func (b *brokered) start(t *testing.T, uid int) {
	t.Helper()
	var err error
	if b.dir, err = os.MkdirTemp("", "bailey-broker-"); err != nil { // every user can enter this path
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(b.dir) })
	exe, state, run := filepath.Join(b.dir, "bailey-broker"), filepath.Join(b.dir, "state"), filepath.Join(b.dir, "run")
	if out, err := exec.Command("go", "build", "-o", exe, "../../cmd/bailey-broker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	gid := uid
	if uid == os.Geteuid() {
		gid = os.Getegid()
	}
	table := filepath.Join(state, broker.TableName)
	text := fmt.Sprintf("admitted: [%d]\napprovers:\n%sleases:\n  free: {env: DEMO_VALUE, scope: looking, approval: none}\n  held: {env: DEMO_VALUE, scope: printing, ttl: 2m, approval: {level: signed-software, roles: [sre]}}\n",
		os.Geteuid(), newHolder("ada").entry("sre"))
	for _, do := range []func() error{
		func() error { return os.Chmod(b.dir, 0o755) }, func() error { return os.Mkdir(state, 0o700) }, func() error { return os.Mkdir(run, 0o755) },
		func() error { return os.WriteFile(table, []byte(text), 0o600) },
		func() error { return os.Chown(state, uid, gid) }, func() error { return os.Chown(run, uid, gid) }, func() error { return os.Chown(table, uid, gid) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	as := &syscall.SysProcAttr{}
	if uid != os.Geteuid() {
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	apply := exec.Command(exe, "apply", "--dir", state, "--yes")
	apply.SysProcAttr, apply.Dir = as, b.dir
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b.cmd = exec.Command(exe, "serve", "--dir", state, "--socket", filepath.Join(run, "broker.sock"))
	b.cmd.Env = append(os.Environ(), "DEMO_VALUE="+lentValue)
	b.cmd.SysProcAttr, b.cmd.Dir = as, b.dir
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.cmd.Process.Kill(); b.cmd.Wait() })
	until(t, "the broker serves", func() bool {
		_, err := broker.Client{Socket: filepath.Join(run, "broker.sock"), UID: uid}.Hello(t.Context())
		return err == nil
	})
}

// held makes the call that requires approval, answers the question and returns the result.
func (b *brokered) held(t *testing.T, by holder) bailey.Result {
	t.Helper()
	done := make(chan bailey.Result, 1)
	go func() { done <- b.Calls(t, "demo.held", "/", nil) }()
	var q bailey.Question
	until(t, "it asks", func() bool {
		open := b.Queue.Open()
		if len(open) > 0 {
			q = open[0].Question
		}
		return q.ID != ""
	})
	if !strings.Contains(q.Text, "\nlease \"held\" \"DEMO_TOKEN\" \"env\" \"printing\" ttl 120\n") {
		t.Errorf("the question does not say what is lent:\n%s", q.Text)
	}
	if _, err := b.answer(t, q, by.sign(q.Text, approvaltext.Namespace)); err != nil {
		t.Fatal(err)
	}
	return <-done
}

// nowhere checks that neither the result nor any file of the home contains the value.
func (b *brokered) nowhere(t *testing.T, res bailey.Result) {
	t.Helper()
	if text := fmt.Sprintf("%+v", res) + string(res.Stdout) + string(res.Stderr); strings.Contains(text, lentValue) {
		t.Errorf("the result shows it: %s", text)
	}
	filepath.WalkDir(string(b.home), func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, _ := os.ReadFile(name); bytes.Contains(text, []byte(lentValue)) {
				t.Errorf("%s holds it", name)
			}
		}
		return nil
	})
}

// TestLentByAnotherUser checks a broker with another uid than the gateway. The tool must get the value, its output must
// be redacted, and the receipt must name the lease. If a lease requires a signed answer, only an approver of the broker
// counts.
func TestLentByAnotherUser(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "root")
	ada, eve := newHolder("ada", "sre"), newHolder("eve", "sre")
	b := borrowing(t, 61250, ada, eve)
	res := b.Calls(t, "demo.free", "/", nil)
	if !res.Executed || res.ExitCode != 3 || !strings.Contains(string(res.Stdout), "out [REDACTED_") || !strings.Contains(string(res.Stderr), "err [REDACTED_") {
		t.Errorf("%+v\n%s%s", res, res.Stdout, res.Stderr)
	}
	b.nowhere(t, res)
	res = b.Calls(t, "demo.file", "/", nil)
	if !res.Executed || res.ExitCode != 3 || !strings.Contains(string(res.Stdout), "out [REDACTED_") {
		t.Errorf("in a file: %+v\n%s%s", res, res.Stdout, res.Stderr)
	}
	b.nowhere(t, res)
	if res := b.held(t, ada); !res.Executed || !strings.Contains(string(res.Stdout), "out [REDACTED_") {
		t.Errorf("%+v", res)
	}
	res = b.held(t, eve) // trusted by the gateway, but not by the broker
	if res.Executed || bailey.KindOf(res.Err) != bailey.Denied || !strings.Contains(res.Err.Error(), "broker requires approval") {
		t.Errorf("%+v", res)
	}
	b.nowhere(t, res)
	journal, err := os.ReadFile(filepath.Join(b.dir, "state", "journal"))
	if err != nil || strings.Count(string(journal), `"lend"`) != 3 || strings.Count(string(journal), `"why":"returned"`) != 3 || strings.Contains(string(journal), lentValue) {
		t.Errorf("%s %v", journal, err)
	}
	ledger := b.ledgerText(t)
	if !strings.Contains(ledger, `"leases":["l-`) || strings.Contains(ledger, broker.SameUID) {
		t.Errorf("the receipts do not name the leases:\n%s", ledger)
	}
	b.cmd.Process.Kill()
	b.cmd.Wait()
	res = b.Calls(t, "demo.free", "/", nil)
	if res.Executed || bailey.KindOf(res.Err) != bailey.Unavailable || bailey.HintOf(res.Err) == "" {
		t.Errorf("without its broker: %+v", res)
	}
	if s := askBroker(t.Context(), b.settings.Applied().Broker); s.Running || s.Fault == "" || s.Cure == "" || !strings.Contains(s.Summary(), "UNREACHABLE") {
		t.Errorf("%+v", s)
	}
}

// TestLentBySameUser checks that receipts and status report the missing isolation if the broker has the gateway's uid.
func TestLentBySameUser(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	b := borrowing(t, os.Geteuid(), newHolder("ada", "sre"))
	res := b.Calls(t, "demo.free", "/", nil)
	if !res.Executed || !strings.Contains(string(res.Stdout), "out [REDACTED_") {
		t.Errorf("%+v", res)
	}
	if !strings.Contains(b.ledgerText(t), broker.SameUID) {
		t.Error("the receipt does not say that the wall is absent")
	}
	s := askBroker(t.Context(), b.settings.Applied().Broker)
	if !s.Running || !s.SameUID || !strings.Contains(s.Summary(), "no privilege separation") {
		t.Errorf("%+v", s)
	}
	found := apitype.ExamineBroker(apitype.Status{Running: true, Broker: s})
	if len(found) != 1 || found[0].State != apitype.Warning || found[0].Cure == "" {
		t.Errorf("%+v", found)
	}
	for _, c := range []struct {
		s    apitype.Status
		want apitype.State
	}{{apitype.Status{Running: true}, apitype.Info}, {apitype.Status{Running: true, Broker: &apitype.BrokerStatus{Fault: "x", Cure: "y"}}, apitype.Missing}, {apitype.Status{Running: true, Broker: &apitype.BrokerStatus{Running: true, Changed: true}}, apitype.Warning}, {apitype.Status{Running: true, Broker: &apitype.BrokerStatus{Running: true}}, apitype.Good}} {
		if found := apitype.ExamineBroker(c.s); len(found) != 1 || found[0].State != c.want || found[0].State != apitype.Good && found[0].State != apitype.Info && found[0].Cure == "" {
			t.Errorf("%+v: %+v", c.s.Broker, found)
		}
	}
	wide := apitype.Status{Running: true, Broker: &apitype.BrokerStatus{Running: true, Wide: []string{"aws: all rights"}}}
	if found := apitype.ExamineBroker(wide); len(found) != 2 || found[1].State != apitype.Warning ||
		!strings.Contains(found[1].Tried, "aws: all rights") {
		t.Errorf("a lease that is too wide: %+v", found)
	}
}

// TestNoBrokerNamed checks that a call that needs a credential is denied, with a hint, if the settings name no broker.
func TestNoBrokerNamed(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	b := borrowing(t, os.Geteuid())
	if _, err := b.settings.Apply(t.Context(), b.settings.Digest(), []byte("workspaces: []\n"), settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
	res := b.Calls(t, "demo.free", "/", nil)
	if res.Executed || bailey.KindOf(res.Err) != bailey.Unavailable || !strings.Contains(bailey.HintOf(res.Err), "bailey-broker") {
		t.Errorf("%+v", res)
	}
}

func (b *brokered) ledgerText(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.home.Ledger(), "*.jsonl"))
	var all []byte
	for _, n := range names {
		text, rerr := os.ReadFile(n)
		if rerr != nil {
			err = rerr
		}
		all = append(all, text...)
	}
	if err != nil || len(all) == 0 {
		t.Fatalf("no ledger: %v", err)
	}
	return string(all)
}
