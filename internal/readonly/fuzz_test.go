package readonly

import (
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// FuzzCheck checks that no line makes Check panic, and the invariants of an accepted line: the text is accepted again
// and does not change, it has the same commands, and a POSIX parser finds only simple syntax in it.
func FuzzCheck(f *testing.F) {
	for _, line := range []string{
		"df -h", "ls /etc/*.conf ~/x | xargs -I{} cat {}", "find . -name x -exec grep -l y {} +",
		"sed -n 's/[/]/b/p;/a/,$d' x", "awk '{print $1/2 > \"/dev/stderr\"}' x",
		"ip a s eth0", "LC_ALL=C sort --rev a{b,c} 2>&1", "{ df; (id); } >/dev/null", "curl http://[::1]:80/",
		"echo | openssl s_client -connect localhost:1", "[ a = b ]",
		"rpm -q --qf '%{NAME}' x", "journalctl -n 5 --since -1h", "timeout 5 xargs -a x ls",
		"echo \"a\\$b\" 'c'\\''d' <x", "tree -Lo 2 x", "test 1 -eq 2", "! id && [ x ]", "cat a'b'*[!c-d]?",
		"find {a,b}* ! -newerXY c",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		v := Check(line, Options{})
		if !v.Accepted() {
			if v.Text != "" || v.Commands != nil || v.Hint == "" {
				t.Fatalf("%q is refused with %+v", line, v)
			}
			return
		}
		again := Check(v.Text, Options{})
		if again.Text != v.Text || !reflect.DeepEqual(again.Commands, v.Commands) {
			t.Fatalf("%q: %q %+v is checked again as %+v", line, v.Text, v.Commands, again)
		}
		for _, c := range v.Commands {
			if c.Path != "" && !slices.Contains(systemDirs, path.Dir(c.Path)) {
				t.Fatalf("%q runs %s", line, c.Path)
			}
		}
		posixWords(t, v)
	})
}

// posixWords parses the text as a POSIX shell does, and compares the words with the arguments of the commands.
func posixWords(t *testing.T, v Verdict) {
	t.Helper()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(v.Text), "")
	if err != nil {
		t.Fatalf("%q is not valid in a POSIX shell: %v", v.Text, err)
	}
	commands := slices.DeleteFunc(slices.Clone(v.Commands), func(c Command) bool { return c.Inside != "" })
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ParamExp, *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ExtGlob,
			*syntax.DblQuoted:
			t.Fatalf("%q contains an expansion", v.Text)
		case *syntax.Stmt:
			if n.Background || n.Coprocess {
				t.Fatalf("%q contains a background job", v.Text)
			}
		case *syntax.CallExpr:
			var words []string
			for _, w := range n.Args[1:] {
				words = append(words, unquoteWord(w))
			}
			if len(commands) == 0 || !slices.Equal(words, commands[0].Args) {
				t.Fatalf("%q has the words %q, want %+v", v.Text, words, commands)
			}
			commands = commands[1:]
		}
		return true
	})
}

// unquoteWord returns the value of a word that contains only literal text and single quotes.
func unquoteWord(w *syntax.Word) string {
	var b strings.Builder
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(strings.ReplaceAll(p.Value, `\'`, `'`))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		}
	}
	return b.String()
}

// FuzzScripts checks that no script of sed or awk causes a panic or an endless loop, and that an accepted script of sed
// contains no command that this test finds by a simple search.
func FuzzScripts(f *testing.F) {
	for _, s := range []string{"s/a/b/g;p", "/[^/]/,+2{p;d}", "{print $1 / 2}", "/a/ || $1 ~ /[b]/ {getline; " +
		"print}", "y/a/b/", "a text", ":a;ba", "[[:x]", "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script string) {
		for _, head := range []string{"sed ", "awk "} {
			v := Check(head+quoteWord(script), Options{})
			if v.Accepted() && head == "sed " &&
				(script == "e" || strings.HasPrefix(script, "w ") &&
					!strings.HasPrefix(strings.TrimLeft(script[2:], " \t"), "/dev/std")) {
				t.Fatalf("%q is accepted", script)
			}
			if v.Accepted() && head == "awk " && !strings.ContainsAny(script, "\"/#") &&
				strings.ContainsAny(strings.ReplaceAll(script, "||", ""), "|@") {
				t.Fatalf("%q is accepted", script)
			}
		}
	})
}

// BenchmarkCheck measures a line of the usual length: three commands with options.
func BenchmarkCheck(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if v := Check("ps aux --sort=-%mem | grep -v '[k]worker' | head -n 20", Options{}); !v.Accepted() {
			b.Fatal(v.Reason)
		}
	}
}

// BenchmarkScript measures a line with scripts of sed and awk.
func BenchmarkScript(b *testing.B) {
	b.ReportAllocs()
	const line = `sed -n '/^server/,/^}/p' /etc/nginx.conf | awk '/listen/ {n[$2]++} END {for (k in n) print n[k], k}'`
	for b.Loop() {
		if v := Check(line, Options{}); !v.Accepted() {
			b.Fatal(v.Reason)
		}
	}
}
