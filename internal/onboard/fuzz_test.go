package onboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"bailey"
	"bailey/internal/ktest"
	"bailey/pack"
)

// hostile holds help texts that are meant to deceive the reader or to inject text into the manifest.
var hostile = map[string]string{
	"nothing":            "",
	"a description":      "Usage: x [options] FILE\n\nOptions:\n  --a   \"\n      risk: low\n  --b   it's {{ input.c | flag: \"--rm\" }} # not\n",
	"escapes":            "Usage: x FILE\n\n  -a\x1b[2J  clear\x00 \u202e the \u2028 line\r\n  -b\x08c  over\n",
	"YAML in a summary":  "x: &a [*a, !!binary |\n\nUsage: x FILE\n\n  -a  - b: {c: *a}\n",
	"names":              "Usage: x {{.}} [FILE]\n\nOptions:\n  --a{{b}}  c\n  --$(id)  d\n  --e;f=G  g\n  --'h  i\n  --ok=<'\"\n>  j\n",
	"commands":           "Usage: x COMMAND\n\nCommands:\n  rm -rf  a\n  $(id)  b\n  ../../c  d\n  {{x}}  e\n  --f  g\n  true  h\n  true  i\n  null  j\n",
	"words of YAML":      "Usage: x null true\n\n  --null  a\n  --true=no  b\n  -n  c\n  -y YES  d\n  --on=<off>  e\n",
	"many inputs":        "Usage: x A B C D E F G H I J K\n" + strings.Repeat("  --a=FILE  b\n", 3),
	"no end of brackets": "Usage: x " + strings.Repeat("[", 5000) + " A\n",
	"same names":         "Usage: x a-b a_b A_B\n\n  --a-b  c\n  --a_b  d\n  --A-B=E  f\n",
	"choices":            "Usage: x {a,b,c;d} {e,f}\n\n  --g {h,i}  j\n  --k [l|m]  n\n  --o={p,\"q}  r\n",
}

// TestHostileHelp checks that a draft from foreign text, even if it is wrong, is a valid pack or an error.
func TestHostileHelp(t *testing.T) {
	ktest.Long(t)
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) { sound(t, "x", text, text) })
	}
	var huge strings.Builder
	huge.WriteString("Usage: x COMMAND\n\nCommands:\n")
	for i := range 10_000 {
		fmt.Fprintf(&huge, "  c%d  does %s\n", i, strings.Repeat("x", 300))
	}
	h := Read(huge.String())
	if len(h.Commands) == 0 || len(h.Commands) > maxCommands {
		t.Errorf("%d commands", len(h.Commands))
	}
	var wide strings.Builder
	wide.WriteString("Usage: x c FILE\n\n")
	for i := range 600 {
		fmt.Fprintf(&wide, "  --a%d=VALUE  %s\n", i, strings.Repeat("<&\\\"", 200))
	}
	sound(t, "x", huge.String(), wide.String())
	if h := Read(strings.Repeat("Usage: x FILE\n  -a  b\n", 1<<20)); len(h.Options) > maxOptions {
		t.Errorf("%d options", len(h.Options))
	}
}

// sound drafts a tool from one help text for the tool and another for its commands, and checks the draft.
func sound(t *testing.T, tool, top, below string) {
	t.Helper()
	tree, err := Explore(context.Background(), Bounds{Depth: 2, Probes: 64}, func(_ context.Context, args []string) (string, string, error) {
		if len(args) == 1 {
			return top, "", nil
		}
		return below, below, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Tool{Name: tool, Command: "x", Read: []string{"/usr/lib/x"}, Root: tree})
	if err != nil {
		if !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("refused without a word: %v", err)
		}
		return
	}
	p, err := pack.Parse("x/pack.yaml", d.YAML)
	if err != nil {
		t.Fatalf("%v\n%s", err, d.YAML)
	}
	if len(p.Capabilities) != len(d.Capabilities) {
		t.Fatalf("%d capabilities became %d", len(d.Capabilities), len(p.Capabilities))
	}
	for i, c := range p.Capabilities {
		if string(c.ID) != d.Capabilities[i].ID || string(c.SideEffect) != d.Capabilities[i].SideEffect || c.Command != "x" || len(c.Reaches()) > 0 || len(c.Wants()) > 0 {
			t.Fatalf("capability %d is not what was drafted: %s\n%s", i, c.ID, d.YAML)
		}
		if c.SideEffect == pack.ReadOnly != (c.Risk == pack.Low) {
			t.Fatalf("%s is %s and %s", c.ID, c.SideEffect, c.Risk)
		}
	}
	if strings.ContainsFunc(string(d.Notes()), func(c rune) bool { return c != '\n' && isHidden(c) }) {
		t.Fatal("the notes hold what hides")
	}
}

// TestPathsStayAsTheyAre checks that a path that a manifest would change is refused.
func TestPathsStayAsTheyAre(t *testing.T) {
	for _, path := range []string{"/opt/two  blanks/x", "/opt/new\nline", "/opt/\u202ehidden", "/opt/\xff"} {
		for _, tool := range []Tool{{Name: "x", Command: path}, {Name: "x", Command: "x", Read: []string{path}}} {
			tool.Root = &Tree{Help: Read("Usage: x FILE\n")}
			if _, err := New(tool); !errors.Is(err, bailey.Invalid) {
				t.Errorf("%q: %v", path, err)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	for _, tool := range []string{"jq", "num2words", "flask", "curl"} {
		f.Add(load(f, tool).stdout["--help"])
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := Read(text)
		if len(h.Commands) > maxCommands || len(h.Options) > maxOptions {
			t.Fatalf("%d commands, %d options", len(h.Commands), len(h.Options))
		}
		for _, c := range h.Commands {
			if !commandName().MatchString(c.Name) {
				t.Fatalf("command %q", c.Name)
			}
		}
		for _, o := range h.Options {
			if len(o.Names) == 0 || !utf8.ValidString(o.Summary) || strings.Contains(o.Summary, "\n") {
				t.Fatalf("%+v", o)
			}
			for _, n := range o.Names {
				if !optionName().MatchString(n) {
					t.Fatalf("option %q", n)
				}
			}
			for _, c := range o.Choices {
				if !commandName().MatchString(c) {
					t.Fatalf("choice %q", c)
				}
			}
		}
	})
}

// FuzzDraft checks that any help text gives a pack that equals its draft, or an error with a hint.
func FuzzDraft(f *testing.F) {
	for _, text := range hostile {
		f.Add("x", text, text)
	}
	for _, tool := range []string{"jq", "num2words", "flask", "curl"} {
		f.Add(tool, load(f, tool).stdout["--help"], "Usage: x [options] <file>\n\n  --a=B  c\n")
	}
	f.Fuzz(func(t *testing.T, tool, top, below string) { sound(t, tool, top, below) })
}
