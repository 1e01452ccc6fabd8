package shellparse

import (
	"os/exec"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// heredocTexts are texts of here-documents, each with whether it counts as literal.
var heredocTexts = []struct {
	text    string
	literal bool
}{
	{"fix: handle empty input", true},
	{"feat: search\n\nAdds the index (and its cache).\n\nCo-Authored-By: Agent <agent@example.org>", true},
	{"docs: say `go test` and \"quote (x)\"", true},
	{"don't panic", true},
	{"it isn't, and it can't", true},
	{"a $HOME $(id) b", true},
	{"a\\nb", true},
	{"# heading\n- item", true},
	{"", true},
	{"one\n\n\n", true},
	{"  EOF", true},
	{"EOF)", false},
	{"EOF) ; touch ran ; (", false},
	{"EOFX", false},
	{"\tEOF", false},
	{"a ) ; touch ran ; (", false},
	{"a (b", false},
	{"don't (really)", false},
	{"it's \"quoted\"", false},
	{"\"it's\" it's", false},
	{"closes (#12)", false},
	{"a `b", false},
	{"a ${b", false},
	{"a \\) b (", false},
	{"'(' )'", false},
	{"x <<Y", false},
	{"\") ; touch ran #", false},
}

// TestHeredocsAsShellsReadThem checks that a text in a substitution counts as literal only if every shell here passes exactly
// these bytes, and runs nothing of it.
func TestHeredocsAsShellsReadThem(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "bash", "dash")
	for _, c := range heredocTexts {
		line := "printf %s \"$(cat <<'EOF'\n" + c.text + "\nEOF\n)\""
		got, err := Parse(line, "")
		literal := err == nil && len(got) == 1 && got[0].Opaque == ""
		if literal != c.literal {
			t.Errorf("%q: literal is %v: %+v %v", c.text, literal, got, err)
		}
		if !literal {
			continue
		}
		if said := strings.TrimRight(c.text, "\n"); got[0].Words[2] != said {
			t.Errorf("%q is read as %q", c.text, got[0].Words[2])
		}
		for _, shell := range []string{"bash", "dash", "zsh"} {
			program, err := exec.LookPath(shell)
			if err != nil {
				continue
			}
			cmd := exec.Command(program, "-c", line)
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != got[0].Words[2] {
				t.Errorf("%s reads %q as %q, %v; this package as %q", shell, c.text, out, err, got[0].Words[2])
			}
		}
	}
}

// TestHeredocsOfOneForm checks that only the form that agents write counts, and that an apostrophe counts only if no later one
// could close it.
func TestHeredocsOfOneForm(t *testing.T) {
	for line, want := range map[string]string{
		"a -m \"$(cat <<'E'\nx\nE\n)\" b":                "a|-m|x|b",
		"a \"$(cat <<'E'\ndon't\nE\n)\" && b":            "a|don't; b",
		"a \"$(cat <<'E'\ndon't\nE\n)\" 'b'":             "*a|b",
		"a \"$(cat <<'E'\nx\nE\n)\" 'b'":                 "a|x|b",
		"a \"$(cat <<'E'\nx\nE\n)$(cat <<'E'\ny\nE\n)\"": "a|xy",
		"a $(cat <<'E'\nx\nE\n)":                         "*a",
		"a \"$(cat <<E\nx\nE\n)\"":                       "*a",
		"a \"$(cat <<-'E'\nx\nE\n)\"":                    "*a",
		"a \"$(cat <<\\E\nx\nE\n)\"":                     "*a",
		"a \"$(cat <<'E' > y\nx\nE\n)\"":                 "*a",
		"a \"$(cat <<'E' | b\nx\nE\n)\"":                 "*a",
		"a \"$(cat <<'E' - \nx\nE\n)\"":                  "*a",
		"a \"$(tac <<'E'\nx\nE\n)\"":                     "*a",
		"a \"$(cat <<'E'\nx\nE\nb)\"":                    "*a",
		"a \"$(cat <<'E'\nx\nE\n\n)\"":                   "*a",
		"a \"$(cat <<'E'\nx\nE\n# c\n)\"":                "*a",
		"a \"$(cat <<'E)'\nx\nE)\n)\"":                   "*a",
		"cat() { b; }; a \"$(cat <<'E'\nx\nE\n)\"":       "*; *a",
	} {
		got, err := Parse(line, "")
		if err != nil {
			t.Errorf("%q: %v", line, err)
		} else if s := said(got); s != want {
			t.Errorf("%q:\n got %s\nwant %s", line, s, want)
		}
	}
}

// TestSudoOfRoot checks that sudo without options means nothing to root, and only to root.
func TestSudoOfRoot(t *testing.T) {
	for line, want := range map[string]string{
		"sudo systemctl restart nginx": "systemctl|restart|nginx",
		"sudo -u app git status":       "*git|status",
		"sudo -n git status":           "*git|status",
		"sudo A=1 git status":          "*git|status",
		"sudo env A=1 git status":      "*git|status",
		"sudo -i":                      "*sudo|-i",
		"./sudo git status":            "*./sudo|git|status",
		"sudo git status; a":           "git|status; a",
	} {
		if got, err := ParseAs(line, "", true); err != nil || said(got) != want {
			t.Errorf("%s: %s %v, want %s", line, said(got), err, want)
		}
		if got, err := Parse(line, ""); err != nil || got[0].Opaque == "" {
			t.Errorf("%s: %+v %v", line, got, err)
		}
	}
}
