package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/wire"
)

func TestExamineHome(t *testing.T) {
	dir := t.TempDir()
	mine, open, file := filepath.Join(dir, "mine"), filepath.Join(dir, "open"), filepath.Join(dir, "file")
	for _, err := range []error{os.Mkdir(mine, 0o700), os.Mkdir(open, 0o755), os.Chmod(open, 0o755), os.WriteFile(file, nil, 0o600),
		os.Symlink(mine, filepath.Join(dir, "link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for home, want := range map[string]state{
		mine: good, filepath.Join(dir, "new", "deep"): good, open: missing, file: missing,
		filepath.Join(file, "below"): missing, filepath.Join(dir, "link"): missing, "/proc/none/home": missing,
	} {
		f := examineHome(wire.Home(home))
		if f.State != want || (f.Cure == "") != (want == good) {
			t.Errorf("%s: %+v, want %s", home, f, want)
		}
	}
	if names, _ := os.ReadDir(mine); len(names) != 0 {
		t.Errorf("looking left %v", names)
	}
}

func TestExamineSpace(t *testing.T) {
	dir := t.TempDir()
	if f := examineSpace(dir); f.State == missing {
		t.Errorf("%+v", f)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("the rehearsal left %v", names)
	}
	if f := examineSpace("/proc"); f.State != missing || f.Cure == "" {
		t.Errorf("a disk that takes nothing: %+v", f)
	}
}

func TestExamineLedger(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	if found := examineLedger(wire.Home(home)); len(found) != 1 {
		t.Errorf("without a home nothing is written: %+v", found)
	}
	dir := wire.Home(home).Ledger()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if f := examineLedger(wire.Home(home))[0]; f.Name != "ledger" || f.State != good {
		t.Errorf("an empty ledger: %+v", f)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000001.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := examineLedger(wire.Home(home))[0]; f.State != missing || f.Cure == "" {
		t.Errorf("a damaged ledger: %+v", f)
	}
}

func TestExamineGateway(t *testing.T) {
	for name, c := range map[string]struct {
		s    status
		err  error
		want state
	}{
		"none":         {status{}, nil, good},
		"same":         {status{Running: true, Gateway: &gatewayStatus{Version: version}}, nil, good},
		"another":      {status{Running: true, Gateway: &gatewayStatus{Version: "another"}}, nil, warning},
		"too old":      {status{}, &bailey.Error{Kind: bailey.Invalid, Message: "no such verb"}, warning},
		"protocol":     {status{}, &bailey.Error{Kind: bailey.Conflict, Message: "the client speaks protocol 9"}, missing},
		"another's":    {status{}, &bailey.Error{Kind: bailey.Denied, Message: "served by uid 1"}, missing},
		"cannot reach": {status{}, errors.New("permission denied"), missing},
	} {
		if f := examineGateway(c.s, c.err); f.State != c.want || (f.Cure == "") != (c.want == good) {
			t.Errorf("%s: %+v, want %s", name, f, c.want)
		}
	}
}

func TestExamineSocket(t *testing.T) {
	home := filepath.Join(t.TempDir(), strings.Repeat("a long name ", 12))
	if found := examineSocket(wire.Home(home)); len(found) != 0 {
		t.Errorf("without a home: %+v", found)
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if found := examineSocket(wire.Home(home)); len(found) != 1 || found[0].State != good {
		t.Errorf("%+v", found)
	}
	if names, _ := os.ReadDir(home); len(names) != 0 {
		t.Errorf("it left %v", names)
	}
	if found := examineSocket("/proc"); len(found) != 1 || found[0].State != missing || found[0].Cure == "" {
		t.Errorf("where there are no sockets: %+v", found)
	}
}

// TestSilentGateway checks the message for a gateway that accepts connections and never answers.
func TestSilentGateway(t *testing.T) {
	home := wire.Home(t.TempDir())
	l, err := net.Listen("unix", home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = askStatus(t.Context(), home, 20*time.Millisecond)
	if !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "does not answer") || bailey.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

// TestStatusWords checks that text from a client cannot forge a line of the status.
func TestStatusWords(t *testing.T) {
	var out strings.Builder
	s := status{Running: true, Gateway: &gatewayStatus{}, Ledger: &ledgerStatus{Frail: "it melts"}, Cage: &cageStatus{Kind: "full"},
		Calls:    []gateway.LiveCall{{Capability: "x\ngateway  pid 1", Door: "mcp"}},
		Sessions: []gateway.LiveSession{{Client: "\x1b[2J\nagent  local: confined", Dir: "/a\nb"}}}
	if err := s.words(&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 9 || strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "\nagent") {
		t.Errorf("%d lines:\n%s", n, &out)
	}
	for _, want := range []string{"not durable: it melts", "DAMAGED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, &out)
		}
	}
}

func TestCageFindings(t *testing.T) {
	broken := &bailey.Error{Kind: bailey.Unavailable, Message: "m", Hint: "the cure"}
	for _, c := range []struct {
		layer jail.Layer
		want  state
		kind  string
	}{
		{jail.Layer{Name: "userns"}, good, "full"},
		{jail.Layer{Name: "userns", Err: broken}, missing, ""},
		{jail.Layer{Name: "proc-private", Err: broken}, warning, "full"},
		{jail.Layer{Name: "full", Err: broken}, warning, "landlock"},
	} {
		f, s := newCageFinding(c.layer), newCageStatus([]jail.Layer{{Name: "netns"}, c.layer})
		if f.State != c.want || s.Kind != c.kind || (len(s.Problems) > 0) != (c.layer.Err != nil) {
			t.Errorf("%+v: %+v, %+v", c.layer, f, s)
		}
		if c.layer.Err != nil && (f.Cure != "the cure" || !strings.Contains(s.words(), "the cure")) {
			t.Errorf("%+v: the cure is lost: %+v, %s", c.layer, f, s.words())
		}
	}
}

func TestAgentsWalkAround(t *testing.T) {
	agents := newAgentStatus([]gateway.LiveSession{{Agent: "local"}, {Agent: "builder"}, {Agent: "builder"}})
	if len(agents) != 2 || agents[0].Agent != "builder" || agents[1].Agent != "local" {
		t.Fatalf("%+v", agents)
	}
	for _, a := range agents {
		if a.State != "open" || !strings.HasPrefix(a.Words, "this agent can walk around the gate: ") {
			t.Errorf("%+v", a)
		}
	}
}

func TestMajor(t *testing.T) {
	for said, want := range map[string]int{"v22.1.0": 22, "18": 18, "v": 0, "": 0, "\x00": 0, "v99999999999999999999.1": 0, "w1": 0} {
		if got := major(said); got != want {
			t.Errorf("%q is %d, want %d", said, got, want)
		}
	}
}

func TestBaileyIn(t *testing.T) {
	const ours = `{"command":"/opt/bailey","args":["serve"]}`
	for text, want := range map[string]string{
		`{"mcpServers":{"b":` + ours + `}}`:                                           "/opt/bailey",
		`{"mcpServers":{"b":{"command":"bailey","args":["serve"]},"a":` + ours + `}}`: "/opt/bailey", // ordered by name
		`{"projects":{"/p":{"mcpServers":{"b":` + ours + `}}}}`:                       "/opt/bailey",
		`{"projects":{"/q":{"mcpServers":{"b":` + ours + `}}}}`:                       "",
		`{"mcpServers":{"b":{"command":"bailey","args":["run"]}}}`:                    "",
		`{"mcpServers":{"b":{"command":"notbailey","args":["serve"]}}}`:               "",
		`{"mcpServers":{"b":{"type":"http","url":"x"},"c":7,"d":null}}`:               "",
		`{}`: "",
	} {
		s, err := baileyIn([]byte(text), "/p")
		if got := ""; err != nil || s != nil && s.Command != want || s == nil && want != got {
			t.Errorf("%s: %+v, %v, want %q", text, s, err, want)
		}
	}
	for _, text := range []string{"", "[", `{"mcpServers":[]}`, "null x", `{"projects":7}`, strings.Repeat(`{"mcpServers":`, 1<<17)} {
		if s, err := baileyIn([]byte(text), "/p"); err == nil || s != nil {
			t.Errorf("%.40s: %+v", text, s)
		}
	}
}

func TestServerInWaitsForNothing(t *testing.T) {
	dir := t.TempDir()
	if s, err := serverIn(filepath.Join(dir, "none"), dir); s != nil || err != nil {
		t.Errorf("no file: %+v, %v", s, err)
	}
	if _, err := serverIn(dir, dir); err == nil {
		t.Error("a directory was read")
	}
	if _, err := serverIn("/dev/zero", dir); err == nil {
		t.Error("a device was read")
	}
}

// FuzzBaileyIn fuzzes .mcp.json, which comes from the project. A project may be hostile.
func FuzzBaileyIn(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"b":{"command":"bailey","args":["serve"]}},"projects":{"/p":{"mcpServers":{}}}}`))
	f.Add([]byte(`{"mcpServers":{"b":null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := baileyIn(text, "/p")
		if s != nil && (err != nil || !json.Valid(text) || filepath.Base(s.Command) != "bailey" || s.Args[0] != "serve") {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	})
}
