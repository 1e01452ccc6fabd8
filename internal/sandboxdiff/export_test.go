package sandboxdiff

import (
	"bytes"
	"encoding/base64"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"bailey/internal/ktest"
)

// added is the difference of one new file.
func added(name, content string) *Difference {
	text := Text(content)
	f := File{Path: Text(name), Type: Regular, Mode: 0o644, Owner: "root", Group: "root", Size: int64(len(content)),
		SHA256: digestOf(content), Content: &text}
	return Compare(&Inventory{Version: Version}, &Inventory{Version: Version, Files: []File{f}})
}

// hostileTexts are contents and names that mean something to YAML, Jinja, or a shell.
var hostileTexts = []string{"", "\n", "a", "a\n", " a\n", "\ta\n", "a\n\n", "{{ x }}\n", "{% if %}", "BAILEY\n", "x\nBAILEY\nBAILEY_2\ny\n", "'\n",
	"\"\\\n", "$HOME`id`\n", "#\n", "- a\n", "a: b\n", "---\n", "...\n", "a\r\n", "a\u2028b\n", "\ufeff\n", "\u0085\n", "\x00\n", "\xff\n", "%\n",
	"  \n  a\n", "a\n b\n  c\n", "a \n", "|\n", "!unsafe x\n", "a\n\n\tb\n", "\U000e0041\n", "\ufffd\n", "\ufffe\n", "\\u0041\n", "\u0081\u0088\n"}

// FuzzAnsible checks that a parser of YAML reads exactly the content and the name from a playbook.
func FuzzAnsible(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add("/etc/a", s)
		f.Add("/etc/"+strings.ReplaceAll(s, "/", "")+"x", "content\n")
	}
	f.Fuzz(func(t *testing.T, name, content string) {
		file := File{Path: Text(name), Type: Regular, SHA256: strings.Repeat("0", 64), Owner: "root", Group: "root"}
		if file.findFault() != nil || !utf8.ValidString(name) || len(content) > maxContent {
			return
		}
		book := added(name, content).Ansible()
		type text struct{ Dest, Content, Stdin string }
		var plays []struct {
			Tasks []struct {
				Name    string
				Copy    *text `yaml:"ansible.builtin.copy"`
				Command *text `yaml:"ansible.builtin.command"`
			}
		}
		if err := yaml.Unmarshal(book, &plays); err != nil || len(plays) != 1 || len(plays[0].Tasks) != 1 {
			t.Fatalf("%v: %d plays\n%s", err, len(plays), book)
		}
		task := plays[0].Tasks[0]
		if strings.Contains(task.Name, "{{") || strings.Contains(task.Name, "{%") {
			t.Errorf("a name is a template: %s", task.Name)
		}
		if bytes.Contains(book, []byte("content: \"")) || bytes.Contains(book, []byte("dest: \"")) || bytes.Contains(book, []byte("stdin: \"")) {
			t.Errorf("a text may be a template:\n%s", book)
		}
		switch {
		case task.Copy != nil:
			if task.Copy.Dest != name || task.Copy.Content != content {
				t.Errorf("read %q and %q, want %q and %q", task.Copy.Dest, task.Copy.Content, name, content)
			}
		case task.Command == nil:
			t.Errorf("neither a copy nor a command:\n%s", book)
		default:
			if want := shellHead + shellFile(added(name, content).exportSteps()[0]); task.Command.Stdin != want {
				t.Errorf("read %.300q, want %.300q", task.Command.Stdin[len(shellHead):], want[len(shellHead):])
			}
		}
	})
}

// evaluated collects the texts of a playbook that Ansible evaluates as templates: those without the tag !unsafe.
type evaluated struct{ texts []string }

func (e *evaluated) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.TagNode:
		if n.Start.Value == "!unsafe" {
			return nil
		}
	case *ast.StringNode:
		e.texts = append(e.texts, n.Value)
	case *ast.LiteralNode:
		e.texts = append(e.texts, n.Value.Value)
	}
	return e
}

// TestNoTemplate checks that Ansible evaluates no text of a sandbox, whatever kind of thing has it.
func TestNoTemplate(t *testing.T) {
	const hostile = "{{ lookup('pipe','id') }}{% x %}{# x #}"
	files := func(content string) (list []File) {
		for _, dir := range strings.Fields("etc etc/apt etc/cron.d etc/sysctl.d etc/systemd/system etc/init.d opt") {
			name, text := "/"+dir+"/"+hostile, Text(content)
			plain := File{Type: Regular, Owner: "a", Group: "b", SHA256: digestOf(content), Content: &text}
			conf, unit, kept := plain, plain, plain
			conf.Path, unit.Path, kept.Path = Text(name+".conf"), Text(name+content+".service"), Text(name+"/kept.conf")
			kept.Mode, kept.SHA256, kept.Content = uint32(len(content)), digestOf(""), nil // other permissions alone
			link := File{Path: Text(name + "/link"), Type: Link, Target: Text(hostile + content), Owner: "a", Group: "b"}
			list = append(list, File{Path: Text(name), Type: Directory, Owner: "a", Group: "b"}, kept, link, conf, unit)
		}
		return list
	}
	user := User{Name: "ann", Group: "ann", Home: "/home/" + hostile, Shell: "/bin/" + hostile, Comment: hostile,
		Password: PasswordNone}
	for _, os := range []string{"debian", alpine} {
		book := Compare(&Inventory{Version: Version, OS: os, Files: files("old")},
			&Inventory{Version: Version, OS: os, Files: files(hostile), Users: []User{user}}).Ansible()
		tree, err := parser.ParseBytes(book, 0)
		if err != nil {
			t.Fatalf("%v\n%s", err, book)
		}
		var found evaluated
		for _, doc := range tree.Docs {
			ast.Walk(&found, doc.Body)
		}
		if len(found.texts) < 100 || !bytes.Contains(book, []byte("sysctl")) {
			t.Fatalf("only %d texts in\n%s", len(found.texts), book)
		}
		for _, text := range found.texts {
			if strings.Contains(text, "{{") || strings.Contains(text, "{%") || strings.Contains(text, "{#") {
				t.Errorf("%s: Ansible evaluates %q", os, text)
			}
		}
	}
}

// writtenByShell returns what a shell reads from the file that an exported step has written.
func writtenByShell(t *testing.T, dir, name, content string) ([]byte, error) {
	f := File{Path: Text(filepath.Join(dir, name)), Type: Regular, Mode: 0o644, Owner: "0", Group: "0"}
	text := Text(content)
	f.Content = &text
	script := "chown() { :; }\n" + shellHead + shellFile(step{file: &f}) // an ordinary user runs this test, too
	c := exec.Command("/bin/sh")
	c.Stdin = strings.NewReader(script)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, script)
	}
	return exec.Command("/bin/sh", "-c", `cat "$0"`, string(f.Path)).Output()
}

// FuzzShell checks that a shell writes exactly the content to exactly the name.
func FuzzShell(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add("a", s)
		f.Add(strings.ReplaceAll(s, "/", "")+"x", "content\n")
	}
	f.Fuzz(func(t *testing.T, name, content string) {
		if name == "" || len(name) > 200 || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." || len(content) > 64<<10 {
			return
		}
		got, err := writtenByShell(t, t.TempDir(), name, content)
		if err != nil || string(got) != content {
			t.Errorf("%v: wrote %q, want %q", err, got, content)
		}
	})
}

// TestYAMLOfAnsible has PyYAML, which Ansible uses, read the texts of a playbook.
func TestYAMLOfAnsible(t *testing.T) {
	if err := exec.Command("python3", "-c", "import yaml").Run(); err != nil {
		ktest.Missing(t, "python3-yaml", err)
	}
	const reader = `
import base64, sys, yaml
class Loader(yaml.SafeLoader): pass
Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
for item in yaml.load(sys.stdin.buffer.read().decode(), Loader):
    print(base64.b64encode(item.encode()).decode())
`
	var texts []string
	for _, s := range append(hostileTexts, strings.Join(hostileTexts, "x")) {
		if utf8.ValidString(s) {
			texts = append(texts, s)
		}
	}
	var document strings.Builder
	for _, s := range texts {
		document.WriteString("- " + blockYAML(s, 2) + "\n- " + textYAML(s) + "\n")
	}
	c := exec.Command("python3", "-c", reader)
	c.Stdin = strings.NewReader(document.String())
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, document.String())
	}
	lines := bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n"))
	if len(lines) != 2*len(texts) {
		t.Fatalf("%d texts, want %d", len(lines), 2*len(texts))
	}
	for i, line := range lines {
		got, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil || string(got) != texts[i/2] {
			t.Errorf("%v: read %q, want %q", err, got, texts[i/2])
		}
	}
}
