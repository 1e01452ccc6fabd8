package strictyaml

import (
	"errors"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

var testFormat = Format{Limits: Limits{Bytes: 1 << 16, Flow: 4, Column: 16},
	Unknown: "%[1]s has no key %[2]q of %[3]s%[4]s", Twice: "%[1]s has %[2]s twice", NotMapping: "%[1]s wants a mapping, found %[2]s",
	Documents: "holds %d documents"}

func read(text string) (*File, map[string]any) {
	f := &File{Format: &testFormat, Name: "a.yaml", Hint: "correct it"}
	if body := f.Body([]byte(text)); body != nil {
		return f, f.Object(body, "a test")
	}
	return f, nil
}

// TestRefused checks that a file with a fault is refused with the fault's place.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"size":             {strings.Repeat("#", 1<<16+1), "a.yaml: a file of this kind has at most 65536 bytes"},
		"UTF-8":            {"a: 1\nb: \xff\n", "a.yaml:2:1: invalid UTF-8"},
		"brackets":         {"a: [[[[[1]]]]]", "a.yaml:1:8: files of this kind are nested too deeply"},
		"braces":           {"a: {b: {c: {d: {e: {f: 1}}}}}", "nested too deeply"},
		"open brackets":    {"a: " + strings.Repeat("[", 1<<15), "nested too deeply"},
		"blocks":           {"a:\n" + strings.Repeat(" ", 17) + "b: 1\n", "a.yaml:2:18: files of this kind are nested too deeply"},
		"dashes on a line": {"a:\n  " + strings.Repeat("- ", 1<<14) + "x", "nested too deeply"},
		"keys on a line":   {strings.Repeat("a: ", 1<<14), "nested too deeply"},
		"anchor":           {"a: &b [1]\nc: *b\n", "a.yaml:1:4: anchors, aliases, tags"},
		"merge key":        {"<<: {a: 1}", "anchors, aliases"},
		"complex key":      {"? a\n: b\n", "anchors, aliases"},
		"directive":        {"%YAML 1.2\n---\na: 1\n", "anchors, aliases"},
		"open text":        {"a: \"b", "a.yaml:1:"},
		"documents":        {"a: 1\n---\nb: 2\n", "a.yaml: holds 2 documents"},
		"key twice":        {"a: 1\na: 2\n", "a.yaml:2:1: a test has a twice"},
		"key of a number":  {"1: a", "a.yaml:1:1: \"1\" is invalid"},
		"infinity":         {"a: .inf", "a.yaml:1:4: is not a valid input"},
		"hexadecimal":      {"a: 0x10", "a.yaml:1:4: 0x10 is not a JSON number"},
		"list":             {"[a]", "a.yaml:1:1: a test wants a mapping, found a list"},
	} {
		f, _ := read(c.text)
		if err := f.Err(); !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestFields checks that all faults of a mapping are recorded, and that the first one is the error.
func TestFields(t *testing.T) {
	var name string
	var on bool
	var list []string
	f := &File{Format: &testFormat, Name: "a.yaml"}
	body := f.Body([]byte("name: 1\nnmae: x\non: yes\nlist: [a, 2]\nlist: []\n"))
	seen := f.Fields(body, "it", Fields{"name": TextField(f, "name", &name), "on": f.BoolField("on", &on), "list": TextsField(f, "list", &list)})
	var all []string
	for _, fault := range f.Faults {
		all = append(all, fault.String())
	}
	want := `:1:7: name must be a string, not a number (quote it to make it a string)
:2:1: it has no key "nmae" of list, name, on; did you mean "name"?
:3:5: on must be true or false, not "yes"
:4:11: list must be a string, not a number (quote it to make it a string)
:5:1: it has list twice`
	if got := strings.Join(all, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if err := f.Err(); err == nil || err.Error() != "a.yaml:1:7: name must be a string, not a number (quote it to make it a string)" {
		t.Errorf("%v", err)
	}
	if !seen["name"] || seen["nmae"] {
		t.Errorf("%v", seen)
	}
}

// TestOpaque checks that no message of the parser shows a part of the file if it can hold secrets.
func TestOpaque(t *testing.T) {
	l := Limits{Bytes: 1 << 16, Flow: 4, Column: 64, Opaque: true}
	for _, text := range []string{"a: [sesame", "a:\n  b: \"sesame\n  c: d\n", "a: sesame: b", "a: 'sesame", "a: {sesame", "a: \"\\qsesame\"", "@sesame"} {
		_, fault := l.Parse([]byte(text))
		if fault == nil || strings.Contains(fault.String(), "sesame") {
			t.Errorf("%q: %v", text, fault)
		}
	}
}

// FuzzFile checks that no text causes a panic, and that every fault is one visible line.
func FuzzFile(f *testing.F) {
	for _, text := range []string{"a: 1", "a: {b: [c, -1.5, null, true]}", "- - a: b\n  c: |\n    d\n", "a: &b [*b]", "{a: [}", "# a\n", "---\n...\n---\n", "a: \"\\u202e\"\n\"\\u202e\": 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, value := read(text)
		for _, fault := range file.Faults {
			if strings.Map(replaceHidden, fault.String()) != fault.String() || fault.Line < 0 || fault.Column < 0 {
				t.Fatalf("%q", fault)
			}
		}
		if len(file.Faults) == 0 && value == nil && strings.TrimSpace(text) != "" {
			docs, _ := testFormat.Parse([]byte(text))
			for _, d := range docs {
				if _, comment := d.Body.(*ast.CommentGroupNode); d.Body != nil && !comment {
					t.Fatalf("%q is nothing", text)
				}
			}
		}
	})
}
