package pack

import (
	"strings"
	"testing"

	"bailey"
)

// reading returns the sample with stdin of the given kind and an input stdin with the given schema.
func reading(kind, schema string) string {
	return strings.NewReplacer("timeout: 30s", "stdin: "+kind, "width: {", "stdin: "+schema+"\n        width: {").Replace(sample)
}

// TestStdinText checks that text for standard input may contain strings that no argument may contain or begin with.
// Characters that make a text look different from its content must be refused.
func TestStdinText(t *testing.T) {
	m := mustParse(t, reading("text", "{type: string, maxLength: 11000000}")).Capabilities[0]
	for text, want := range map[string]string{
		"":                             "",
		"@/etc/passwd\n\thttp://x\n-x": "",
		strings.Repeat("x", 9<<20):     "",
		strings.Repeat("x", 10<<20+1):  "bytes, more than 10485760",
		"a\x00b":                       "a NUL",
		"a\x1bb":                       "the control character",
		"a\u202eb":                     "the invisible character",
	} {
		in, err := m.Check(map[string]any{"dir": ".", "stdin": text}, true)
		if want != "" {
			if bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), want) {
				t.Errorf("%.20q: %v, want %s", text, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.20q: %v", text, err)
		}
		if got, ok := m.Stdin(in); !ok || got != text {
			t.Errorf("%.20q is %.20q, %v", text, got, ok)
		}
	}
	if _, ok := m.Stdin(map[string]any{}); ok {
		t.Error("what was not given is read")
	}
	if _, err := m.Check(map[string]any{"dir": ".", "stdin": json9()}, false); bailey.KindOf(err) != bailey.Invalid {
		t.Errorf("a number for a text: %v", err)
	}
	plain := mustParse(t, strings.Replace(sample, "width: {", "stdin: {type: string}\n        width: {", 1)).Capabilities[0]
	if _, err := plain.Check(map[string]any{"dir": ".", "stdin": "@x"}, true); err == nil {
		t.Error("an input that only has the name is held to no rules")
	}
}

func json9() any { return int64(9) }

// TestStdinFile checks that the file is opened like any path input and is not visible in the cage.
func TestStdinFile(t *testing.T) {
	m := mustParse(t, reading("file", "{type: string, format: path}")).Capabilities[0]
	var file PathInput
	for _, in := range m.PathInputs() {
		if in.Name == "stdin" {
			file = in
		}
	}
	if !file.File || file.Write || file.Dir {
		t.Errorf("%+v", file)
	}
	dir, in := bailey.Place{Input: "dir", Path: "/w"}, bailey.Place{Input: "stdin", Path: "/w/data"}
	j := m.Job(nil, []bailey.Place{dir, in})
	if len(j.Places) != 1 || j.Places[0].Input != "dir" || j.Dir != "/w" || !m.Reads(in) || m.Reads(dir) {
		t.Errorf("%+v", j)
	}
	if _, ok := m.Stdin(map[string]any{"stdin": "data"}); ok {
		t.Error("the path is read, and not the file")
	}
}

func TestStdinRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"without an input", strings.Replace(sample, "timeout: 30s", "stdin: text", 1), "stdin: text needs an input stdin of type string"},
		{"of a number", reading("text", "{type: integer}"), "stdin: text needs an input stdin of type string"},
		{"of anything", reading("text", "{}"), "stdin: text needs an input stdin of type string"},
		{"of a ref", reading("text", "{$ref: \"#/$defs/s\"}") + "      $defs: {s: {type: string}}\n", "without a $ref"},
		{"of a path", reading("text", "{type: string, format: path}"), "needs an input stdin without a format"},
		{"file of a word", reading("file", "{type: string}"), "stdin: file needs an input stdin of format path"},
		{"as an argument", strings.Replace(reading("text", "{type: string}"), `"-l", `, `"{{ input.stdin }}", `, 1), "input.stdin is read by the tool, and cannot be an argument"},
		{"in a preview", strings.Replace(reading("text", "{type: string}"), "risk: low", "risk: low\n    preview: {args: [\"{{ input.stdin }}\"]}", 1), "input.stdin is read by the tool"},
		{"file as an argument", strings.Replace(reading("file", "{type: string, format: path}"), `"-l", `, `"{{ input.stdin }}", `, 1), "input.stdin is read by the tool"},
		{"as the directory", strings.Replace(reading("file", "{type: string, format: path}"), "cwdFromInput: dir", "cwdFromInput: stdin", 1), "cannot be the same input"},
		{"written", strings.NewReplacer("rw: []", `rw: ["{{ input.stdin }}"]`, "readOnly", "reversible", "sideEffectClass: readOnly", "sideEffectClass: mutating").Replace(reading("file", "{type: string, format: path}")), "rw must be path inputs"},
		{"hidden", strings.Replace(reading("file", "{type: string, format: path}"), "rw: []", `hide: ["{{ input.stdin }}/x"]`, 1), "hide must be path inputs"},
		{"of another kind", reading("maybe", "{type: string}"), "stdin must be one of file, none, text"},
	} {
		t.Run(c.name, func(t *testing.T) { wantErr(t, c.text, c.want) })
	}
	if got := mustParse(t, strings.Replace(sample, "timeout: 30s", "timeout: 30s\n    stdin: none", 1)).Capabilities[0].Digest; got != mustParse(t, sample).Capabilities[0].Digest {
		t.Error("stdin: none is not the same as none")
	}
}

// TestWorkspace checks that a capability without a path input runs in the workspace, unless it is in a built-in pack or
// its manifest says otherwise.
func TestWorkspace(t *testing.T) {
	none := strings.NewReplacer("      cwdFromInput: dir\n", "", "format: path", "maxLength: 99").Replace(sample)
	paths := strings.Replace(sample, "      cwdFromInput: dir\n", "", 1)
	with := func(text, cwd string) string {
		return strings.Replace(text, "      command: ls\n", "      command: ls\n      cwd: "+cwd+"\n", 1)
	}
	for _, c := range []struct {
		name, text      string
		anyone, shipped bool
	}{
		{"cwdFromInput", sample, false, false},
		{"a path input", paths, false, false},
		{"a path input and cwd", with(paths, "workspace"), true, true},
		{"nothing", none, true, false},
		{"cwd", with(none, "workspace"), true, true},
		{"none", with(none, "none"), false, false},
	} {
		if got := mustParse(t, c.text).Capabilities[0].Workspace(); got != c.anyone {
			t.Errorf("%s: %v", c.name, got)
		}
		p, err := parsePack("x", []byte(c.text), true)
		if err != nil || p.Capabilities[0].Workspace() != c.shipped {
			t.Errorf("%s, built-in: %v", c.name, err)
		}
	}
	if j := mustParse(t, none).Capabilities[0].Job(nil, []bailey.Place{{Path: "/w"}}); j.Dir != "/w" || len(j.Places) != 1 {
		t.Errorf("%+v", j)
	}
}
