package server

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/mcp"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/pack"
)

// foreign returns a gate for manifests as other authors write them.
func foreign(t *testing.T) *Server {
	t.Helper()
	catalog, err := pack.Load(os.DirFS("../../pack/testdata/published"))
	if err != nil {
		t.Fatal(err)
	}
	return looksOnly(t, catalog)
}

// looksOnly returns a gate whose policy allows only read-only capabilities.
func looksOnly(t *testing.T, catalog *pack.Catalog) *Server {
	t.Helper()
	ktest.Require(t, "userns", "netns")
	rules, err := policy.Load(policy.Config{Actions: policyfiles.Actions(catalog), Sources: []policy.Source{{Name: "own.cedar", Text: []byte(
		`@id("looks") permit (principal, action in [Action::"sideEffect:none", Action::"sideEffect:readOnly"], resource) when { context.cage == "full" && !context.writes };`)}}})
	if err != nil {
		t.Fatal(err)
	}
	return SpineOf(t, &Server{Catalog: catalog, Rules: FixedRules(rules)})
}

// project returns a user's directory with a terraform file and some other files.
func project(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.tf": "", "data.json": `{"b": [1, 2]}`, "notes/todo": "water the moat\n"} {
		os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func commit(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "dig the moat"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// TestPublishedRun checks that manifests of other authors run in a real cage. If they name no directory, they must run
// in the workspace.
func TestPublishedRun(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for _, c := range []struct {
		id    bailey.CapabilityID
		needs string
		input map[string]any
		want  string // in standard output
		json  string // in the structured output
	}{
		{"text.sort", "sort", map[string]any{"stdin": "b\nc\na\n", "reverse": true}, "c\nb\na\n", ""},
		{"text.sort", "sort", map[string]any{"stdin": ""}, "", ""},
		{"text.grep", "grep", map[string]any{"text": "moat"}, "./notes/todo:1:water the moat", ""},
		{"jq.filter", "jq", map[string]any{"stdin": `{"a":[1,2]}`, "filter": ".a"}, "[1,2]\n", "[1,2]"},
		{"jq.filter-file", "jq", map[string]any{"stdin": "data.json"}, "{\"b\":[1,2]}\n", `{"b":[1,2]}`},
		{"disk.usage", "du", nil, "\t.\n", ""},
		{"disk.tree", "find", map[string]any{"dir": "notes"}, "/notes/todo\n", ""},
		{"history.log", "git", map[string]any{"limit": 5}, "dig the moat", ""},
		{"history.show-file", "git", map[string]any{"repo": ".", "path": "notes/todo"}, "water the moat", ""},
		{"terraform.show", "terraform", nil, "format_version", `"format_version"`},
		{"kubectl.client-version", "kubectl", nil, "gitVersion", `"gitVersion"`},
	} {
		t.Run(string(c.id), func(t *testing.T) {
			s, dir := foreign(t), project(t)
			ktest.Require(t, c.needs)
			if c.needs == "git" {
				commit(t, dir)
			}
			res := try(t, s, c.id, dir, c.input)
			if res.Err != nil || !strings.Contains(string(res.Stdout), c.want) || !strings.Contains(string(res.Structured), c.json) || (res.Structured != nil) != (c.json != "") {
				t.Fatalf("%v\nstdout %q\nstderr %q\nstructured %s", res.Err, res.Stdout, res.Stderr, res.Structured)
			}
		})
	}
}

// TestPublishedRefusals checks that a call is refused if a requirement of its manifest is not met.
func TestPublishedRefusals(t *testing.T) {
	s, dir := foreign(t), project(t)
	for _, c := range []struct {
		id    bailey.CapabilityID
		input map[string]any
		kind  bailey.Kind
		want  string
	}{
		{"history.log", nil, bailey.Invalid, "the working directory does not contain .git"},
		{"disk.tree", nil, bailey.Invalid, "input /dir is missing"},
		{"machine.npm-test", nil, bailey.Unavailable, "machine.npm-test requires isolation microvm, and the settings name no image for its machine"},
		// Without a cage, the tool could write to the directory.
		{"machine.desktop-notify", map[string]any{"note": "x"}, bailey.Denied, "this home names no workspace"},
		{"jq.filter-file", map[string]any{"stdin": "notes"}, bailey.Invalid, "is a directory"},
		{"jq.filter-file", map[string]any{"stdin": "/etc/passwd"}, bailey.Denied, "outside the workspace"},
		{"helm.rollback", map[string]any{"release": "x"}, "", ""},
	} {
		res := try(t, s, c.id, dir, c.input)
		if res.Err == nil || res.Executed || !strings.Contains(res.Err.Error(), c.want) || c.kind != "" && (bailey.KindOf(res.Err) != c.kind || bailey.HintOf(res.Err) == "") {
			t.Errorf("%s: %v (%s)", c.id, res.Err, bailey.HintOf(res.Err))
		}
	}
}

// TestNotAsPromised checks that if the output does not match the declared schema, the caller gets the text and the
// reason.
func TestNotAsPromised(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "jq")
	s, dir := foreign(t), project(t)
	os.WriteFile(filepath.Join(dir, "list.json"), []byte("[1]"), 0o644)
	res := try(t, s, "jq.filter-file", dir, map[string]any{"stdin": "list.json"})
	if bailey.KindOf(res.Err) != bailey.ToolFailed || !strings.Contains(res.Err.Error(), "outputSchema: /: a list of 1 is not an object") || string(res.Stdout) != "[1]\n" {
		t.Errorf("%v, %q", res.Err, res.Stdout)
	}
	reply := localapi.NewReply(res)
	if reply.OK || reply.Result == nil || reply.Result.Stdout != "[1]\n" || reply.Result.Structured != nil || apitype.ReplyCode(reply) != apitype.ExitTool {
		t.Errorf("%+v", reply)
	}
	reply = localapi.NewReply(try(t, s, "jq.filter-file", dir, map[string]any{"stdin": "data.json"}))
	if b, err := json.Marshal(reply); err != nil || !strings.Contains(string(b), `"structured":{"b":[1,2]}`) {
		t.Errorf("%s, %v", b, err)
	}
	tools := mcpBackend{s: s}.Tools(t.Context(), bailey.Principal{Agent: "local"})
	i := slices.IndexFunc(tools, func(tool mcp.Tool) bool { return tool.ID == "jq.filter-file" })
	if i < 0 || string(tools[i].OutputSchema) != `{"type":"object"}` {
		t.Errorf("%+v", tools)
	}
}

// TestStructuredIsRedacted checks that the structured output contains the same redaction tokens as the text.
func TestStructuredIsRedacted(t *testing.T) {
	ktest.Require(t, "jq")
	s, dir := foreign(t), project(t)
	res := try(t, s, "jq.filter", dir, map[string]any{"stdin": `{"key":"sk_live_4eC39HqLyjWDarjtT1zdp7dc","from":"10.20.30.40","own":"[REDACTED_IPV4_1]","lt":"<b>"}`})
	const want = `{"from":"[REDACTED_IPV4_1]","key":"[REDACTED_API_KEY_1]","lt":"<b>","own":"[REDACTED__IPV4_1]"}`
	if res.Err != nil || string(res.Structured) != want || !strings.Contains(string(res.Stdout), `"own":"[REDACTED__IPV4_1]"`) {
		t.Errorf("%v\n%s\n%s\n%s", res.Err, res.Stdout, res.Structured, want)
	}
}

// TestStdinWhole checks that the complete input reaches the tool, even if it is larger than a pipe. If a tool does not
// read its input, the call must still end normally.
func TestStdinWhole(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "jq")
	s, dir := foreign(t), project(t)
	large := `"` + strings.Repeat("x", 9<<20) + `"`
	for name, c := range map[string]struct{ filter, text, want string }{
		"all of it":   {"length", large, "9437184\n"},
		"not read":    {"1", "", ""},
		"half a word": {".", `{"a":`, ""},
	} {
		res := try(t, s, "jq.filter", dir, map[string]any{"stdin": c.text, "filter": c.filter})
		if string(res.Stdout) != c.want {
			t.Errorf("%s: %.80q, %v", name, res.Stdout, res.Err)
		}
	}
	os.WriteFile(filepath.Join(dir, "large.json"), []byte(large), 0o644)
	if res := try(t, s, "jq.filter-file", dir, map[string]any{"stdin": "large.json", "filter": "{n: length}"}); string(res.Stdout) != "{\"n\":9437184}\n" {
		t.Errorf("%.80q, %v %s", res.Stdout, res.Err, res.Stderr)
	}
}
