package direct

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
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
	for home, want := range map[string]apitype.State{
		mine: apitype.Good, filepath.Join(dir, "new", "deep"): apitype.Good, open: apitype.Missing, file: apitype.Missing,
		filepath.Join(file, "below"): apitype.Missing, filepath.Join(dir, "link"): apitype.Missing, "/proc/none/home": apitype.Missing,
	} {
		f := examineHome(localapi.Home(home))
		if f.State != want || (f.Cure == "") != (want == apitype.Good) {
			t.Errorf("%s: %+v, want %s", home, f, want)
		}
	}
	if names, _ := os.ReadDir(mine); len(names) != 0 {
		t.Errorf("looking left %v", names)
	}
}

func TestExamineSpace(t *testing.T) {
	dir := t.TempDir()
	if f := examineSpace(dir); f.State == apitype.Missing {
		t.Errorf("%+v", f)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("the rehearsal left %v", names)
	}
	if f := examineSpace("/proc"); f.State != apitype.Missing || f.Cure == "" {
		t.Errorf("a disk that takes nothing: %+v", f)
	}
}

func TestExamineLedger(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	if found := examineLedger(localapi.Home(home)); len(found) != 1 {
		t.Errorf("without a home nothing is written: %+v", found)
	}
	dir := localapi.Home(home).Ledger()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if f := examineLedger(localapi.Home(home))[0]; f.Name != "ledger" || f.State != apitype.Good {
		t.Errorf("an empty ledger: %+v", f)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000001.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := examineLedger(localapi.Home(home))[0]; f.State != apitype.Missing || f.Cure == "" {
		t.Errorf("a damaged ledger: %+v", f)
	}
}

func TestExamineGateway(t *testing.T) {
	for name, c := range map[string]struct {
		s    apitype.Status
		err  error
		want apitype.State
	}{
		"none":         {apitype.Status{}, nil, apitype.Good},
		"same":         {apitype.Status{Running: true, Gateway: &apitype.GatewayStatus{Version: apitype.Version}}, nil, apitype.Good},
		"another":      {apitype.Status{Running: true, Gateway: &apitype.GatewayStatus{Version: "another"}}, nil, apitype.Warning},
		"too old":      {apitype.Status{}, &bailey.Error{Kind: bailey.Invalid, Message: "no such verb"}, apitype.Warning},
		"protocol":     {apitype.Status{}, &bailey.Error{Kind: bailey.Conflict, Message: "the client uses protocol 9"}, apitype.Missing},
		"another's":    {apitype.Status{}, &bailey.Error{Kind: bailey.Denied, Message: "served by uid 1"}, apitype.Missing},
		"cannot reach": {apitype.Status{}, errors.New("permission denied"), apitype.Missing},
	} {
		if f := examineGateway(c.s, c.err); f.State != c.want || (f.Cure == "") != (c.want == apitype.Good) {
			t.Errorf("%s: %+v, want %s", name, f, c.want)
		}
	}
}

func TestExamineSocket(t *testing.T) {
	home := filepath.Join(t.TempDir(), strings.Repeat("a long name ", 12))
	if found := examineSocket(localapi.Home(home)); len(found) != 0 {
		t.Errorf("without a home: %+v", found)
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if found := examineSocket(localapi.Home(home)); len(found) != 1 || found[0].State != apitype.Good {
		t.Errorf("%+v", found)
	}
	if names, _ := os.ReadDir(home); len(names) != 0 {
		t.Errorf("it left %v", names)
	}
	if found := examineSocket("/proc"); len(found) != 1 || found[0].State != apitype.Missing || found[0].Cure == "" {
		t.Errorf("where there are no sockets: %+v", found)
	}
}

func TestCageFindings(t *testing.T) {
	broken := &bailey.Error{Kind: bailey.Unavailable, Message: "m", Hint: "the cure"}
	for _, c := range []struct {
		layer jail.Layer
		want  apitype.State
		kind  string
	}{
		{jail.Layer{Name: "userns"}, apitype.Good, "full"},
		{jail.Layer{Name: "userns", Err: broken}, apitype.Missing, ""},
		{jail.Layer{Name: "proc-private", Err: broken}, apitype.Warning, "full"},
		{jail.Layer{Name: "full", Err: broken}, apitype.Warning, "landlock"},
	} {
		f, s := newCageFinding(c.layer), server.NewCageStatus([]jail.Layer{{Name: "netns"}, c.layer})
		if f.State != c.want || s.Kind != c.kind || (len(s.Problems) > 0) != (c.layer.Err != nil) {
			t.Errorf("%+v: %+v, %+v", c.layer, f, s)
		}
		if c.layer.Err != nil && (f.Cure != "the cure" || !strings.Contains(s.Summary(), "the cure")) {
			t.Errorf("%+v: the cure is lost: %+v, %s", c.layer, f, s.Summary())
		}
	}
}

func TestMajor(t *testing.T) {
	for said, want := range map[string]int{"v22.1.0": 22, "18": 18, "v": 0, "": 0, "\x00": 0, "v99999999999999999999.1": 0, "w1": 0} {
		if got := majorVersion(said); got != want {
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
