package shellparse

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// said formats the result for the tests: words joined by |, a star before an opaque command, then its directory and
// files.
func said(commands []Command) string {
	var list []string
	for _, c := range commands {
		text := strings.Join(c.Words, "|")
		if c.Opaque != "" {
			text = "*" + text
		}
		if c.Dir != "" {
			text += " @" + c.Dir
		}
		for _, f := range c.Files {
			text += fmt.Sprintf(" %s", f.Path)
			if f.Write {
				text += "!"
			}
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"git status", "git|status"},
		{"git status # why", "git|status"},
		{"git \"log\" --format='%h %s'", "git|log|--format=%h %s"},
		{`echo a\ b "c\"d\e" 'f\'`, `echo|a b|c"d\e|f\`},
		{"echo a \\\n b", "echo|a|b"},
		{"a | b && c || d; e", "a; b; c; d; e"},
		{"! a", "a"},
		{"(a; b)", "a; b"},
		{"{ a; b; }", "a; b"},
		{"time a", "a"},
		// directories
		{"cd x && a", "cd|x @x; a @x"},
		{"cd /x && cd y && a", "cd|/x @/x; cd|y @/x/y; a @/x/y"},
		{"cd && a", "cd @/home/u; a @/home/u"},
		{"cd ~/x && a", "cd|/home/u/x @/home/u/x; a @/home/u/x"},
		{"cd x; a", "cd|x @x; *a @x"},
		{"cd x || a", "cd|x @x; *a @x"},
		{"cd x && a; b", "cd|x @x; a @x; *b @x"},
		{"(cd x && a) && b", "cd|x @x; a @x; b"},
		{"cd x | a", "cd|x @x; a"},
		{"cd $x && a", "*cd; *a"},
		{"cd - && a", "*cd|-; *a"},
		{"sh -c 'cd x && a' && b", "cd|x @x; a @x; b"},
		// words that are not literal
		{"echo $x", "*echo"}, {"echo $(x)", "*echo"}, {"echo `x`", "*echo"}, {"cat <(x)", "*cat"}, {"rm *", "*rm"}, {"rm a?", "*rm"},
		{"gh api repos/{owner}/x{repo}y", "gh|api|repos/{owner}/x{repo}y"}, {"rm {a}{b,c}", "*rm"}, {"rm {a..c}", "*rm"}, {"rm {a},{b}", "*rm"},
		{"git diff stash@{0} @{u}.. @{-1} HEAD@{12}", "git|diff|stash@{0}|@{u}..|@{-1}|HEAD@{12}"}, {"git log @{u}..{1}", "*git|log"}, {"git log @{1..3}", "*git|log"},
		{"git log @{a,b}", "*git|log"}, {"git log @{-}", "*git|log"}, {"git log a{1}", "*git|log"}, {"git log @{1}{2..3}", "*git|log"}, {"git log @{1}*", "*git|log"},
		{"rm {1}", "*rm"}, {"rm {a", "*rm"}, {"rm a}", "*rm"}, {"rm {{a}}", "*rm"}, {"rm {a}*", "*rm"},
		{"rm {a,b}", "*rm"}, {"rm \\*", "rm|*"}, {"rm '*'", "rm|*"}, {"echo $'a'", "*echo"}, {"echo $\"a\"", "*echo"}, {"echo ~root", "*echo"},
		{"=ls", "*"}, {"$x git status", "*git|status"}, {"echo $((1))", "*echo"}, {"echo \"a$x\"", "*echo"},
		{"A=1 git status", "*git|status"}, {"A=1; git status", "*; *git|status"}, {"GIT_EDITOR=true git rebase --continue", "git|rebase|--continue"}, {"GIT_PAGER=cat PAGER=cat git log", "git|log"}, {"GIT_EDITOR=x git log", "*git|log"},
		{"GIT_EDITOR=true A=1 git log", "*git|log"}, {"GIT_EDITOR=true; git log", "*; *git|log"}, {"GIT_EDITOR=true ./git log", "*./git|log"}, {"GIT_PAGER+=cat git log", "*git|log"}, {"GIT_EDITOR=true nice git log", "*git|log"},
		{"GIT_EDITOR=$(x) git log", "*git|log"}, {"git status &", "*git|status"},
		{"cat <<E\nx\nE", "*cat"}, {"cat <<<x", "*cat"}, {"cat > x <<'E'\n$(rm y)\nE", "cat x!"}, {"cat <<'E' >> x && git add x\na\nE", "cat x!; git|add|x"},
		{"cat - <<'E'\nx\nE", "*cat|-"}, {"sh <<'E'\nx\nE", "*sh"}, {"python3 <<'E'\nx\nE", "*python3"}, {"cat <<-'E'\nx\nE", "*cat"}, {"cat 3<<'E'\nx\nE", "*cat"}, {"eval 'rm x'", "*eval|rm x"}, {". ./x; git status", "*.|./x; *git|status"},
		{"git() { rm x; }; git status", "*; *git|status"}, {"alias git=rm; git status", "*alias|git=rm; *git|status"},
		{"for i in a; do rm $i; done", "*"}, {"if a; then b; fi; c", "*; *c"}, {"[[ -f x ]]", "*"}, {"export PATH=x; git status", "*; *git|status"},
		{"printf -v PATH x; git status", "*printf|-v|PATH|x; *git|status"}, {"printf x", "printf|x"}, {"{ a; } > x", "*"}, {"exec git status", "git|status"},
		// programs of a repository with a known name, a cd that may have failed, text that zsh and bash expand in words
		{"./env a", "*./env|a"}, {"tools/nice git status", "*tools/nice|git|status"}, {"./sh -c a", "*./sh|-c|a"}, {"x/find . -exec a", "*x/find|.|-exec|a"}, {"/usr/bin/env a", "a"},
		{"env ./timeout 5 a", "*./timeout|5|a"}, {"./cd x && a", "./cd|x; a"}, {"! cd x && a", "cd|x @x; *a @x"}, {"! { cd x; } && a", "cd|x @x; *a @x"},
		{"cd x > y && a", "*cd|x y!; *a"}, {"cd x > /dev/null && a", "cd|x @x /dev/null!; a @x"}, {"cat a=~/x", "*cat"}, {"cat a=b:~/x", "*cat"}, {"cat 'a=~/x'", "cat|a=~/x"},
		{"cat <1-9>.txt", "*cat 1-9 .txt!"},
		// home directory
		{"cat ~/x $HOME/x \"${HOME}/x\" '~/x'", "cat|/home/u/x|/home/u/x|/home/u/x|~/x"}, {"HOME=/; cat $HOME/x", "*; *cat"}, {"cat ${HOME#x}", "*cat"},
		// files that the shell opens
		{"a > x 2>&1 < y", "a x! y"}, {"a >> x", "a x!"}, {"a &> x", "a x!"}, {"a >& x", "a x!"}, {"a > $x", "*a"}, {"> x", " x!"}, {"a {fd}> x", "*a"}, {"a <> x", "a x!"},
		// wrappers
		{"sudo -n git status", "*git|status"}, {"sudo -u root A=1 git status", "*git|status"}, {"sudo -i", "*sudo|-i"}, {"env git status", "git|status"},
		{"env A=1 git status", "*git|status"}, {"env -S 'git status'", "*env|-S|git status"}, {"env -C /x git status", "*env|-C|/x|git|status"},
		{"timeout 5 git status", "git|status"}, {"timeout -k 3 5 git status", "git|status"}, {"timeout --signal=9 5 a", "a"}, {"nice -n 5 a", "a"}, {"nice -n5 a", "a"},
		{"nohup a", "a"}, {"command git status", "git|status"}, {"command -v git", "*command|-v|git"}, {"time -p a", "a"}, {"env nice timeout 1 sh -c 'a b'", "a|b"},
		{"xargs rm", "*rm"}, {"xargs -n 1 -I {} sh -c 'rm x'", "*sh|-c|rm x"}, {"find . -name x -exec rm {} ;", "find|.|-name|x|-exec|rm|{}; *rm|{}"},
		{"find . -exec rm {} \\;", "find|.|-exec|rm|{}|;; *rm|{}"}, {"find . -exec bash -c 'x' \\; -delete", "find|.|-exec|bash|-c|x|;|-delete; *bash|-c|x"},
		{"bash -c 'a; b $x'", "a; *b"}, {"bash -ec a", "a"}, {"bash -lc a", "*bash|-lc|a"}, {"bash -c 'a $1' x y", "*bash|-c|a $1|x|y"}, {"bash x.sh", "*bash|x.sh"},
		{"curl x | sh", "curl|x; *sh"}, {"ssh h rm", "*ssh|h|rm"}, {"git status 'x", ""}, {"a\x00b", ""}, {"a\u202eb", ""}, {"a\rb", ""},
	} {
		got, err := Parse(c.line, "/home/u")
		if (c.want == "") != (err != nil) {
			t.Errorf("%s: %v", c.line, err)
		}
		if s := said(got); err == nil && s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.line, s, c.want)
		}
	}
}

func TestParseIsBounded(t *testing.T) {
	nested := "a"
	for range maxDepth + 1 {
		nested = "sh -c '" + strings.ReplaceAll(nested, "'", `'\''`) + "'"
		if len(nested) > MaxLine {
			break
		}
	}
	for _, line := range []string{strings.Repeat("a;", MaxCommands+1), strings.Repeat("x", MaxLine+1), nested, strings.Repeat("(", 300), strings.Repeat("$(", 300), strings.Repeat("if ", 10000)} {
		if _, err := Parse(line, ""); err == nil {
			t.Errorf("%.40s… is read", line)
		}
	}
}

// FuzzParse checks that no command line breaks the parser, and that a literal command is parsed again as the same. An
// expansion must never be literal.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"git status", "cd x && a > y", "sh -c 'a $b'", "find . -exec rm {} +", "a <<E\nE", "sudo -u x y", "{ a; } | b", "git show @{u}.. stash@{1}", "a \"$(cat <<'E'\nx (y)\nE\n)\"", "a \"$(cat <<'E'\ndon't\nE)\nE\n)\" 'b'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		commands, err := Parse(line, "/home/u")
		if err != nil {
			return
		}
		if len(commands) > MaxCommands {
			t.Fatalf("%d commands", len(commands))
		}
		for _, c := range commands {
			if c.Opaque != "" || len(c.Words) == 0 || len(c.Files) > 0 {
				continue
			}
			quoted := make([]string, len(c.Words))
			for i, w := range c.Words {
				quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
			}
			again, err := Parse(strings.Join(quoted, " "), "")
			if err != nil && strings.Contains(err.Error(), "bytes") {
				continue
			}
			if err != nil || len(again) == 0 || !slices.Equal(again[0].Words, c.Words) && !strings.Contains(line, "-c") {
				t.Fatalf("%q: %q reads again as %+v %v", line, c.Words, again, err)
			}
		}
	})
}
