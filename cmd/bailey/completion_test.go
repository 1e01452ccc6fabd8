package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// shells completes `bailey capabilities show git.lo` as each shell does for a user who types it, and prints the offered
// words.
var shells = map[string]string{
	"fish": `bailey completion fish | source; complete -C "bailey capabilities show git.lo"`,
	"zsh": `compdef() { : }
source <(bailey completion zsh)
_describe() { print -l -- "${completions[@]}" }
words=(bailey capabilities show git.lo); CURRENT=4
_bailey`,
	// The first two functions replace those of the package bash-completion. The third replaces the builtin that asks
	// bash whether a person is typing.
	"bash": `_init_completion() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
__ltrim_colon_completions() { :; }
compopt() { :; }
source <(bailey completion bash)
COMP_WORDS=(bailey capabilities show git.lo); COMP_CWORD=3; COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMP_KEY=9
__start_bailey
printf '%s\n' "${COMPREPLY[@]}"`,
}

// TestShellsComplete checks that real shells offer the matching words. Completion must neither start nor write
// anything.
func TestShellsComplete(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for shell, script := range shells {
		t.Run(shell, func(t *testing.T) {
			ktest.Require(t, shell)
			out, home := inPath(t, shell, "-c", script)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "git.log") {
				t.Errorf("%s offers %q", shell, out)
			}
			if left, err := os.ReadDir(home); err == nil {
				t.Errorf("it made %v", left)
			}
		})
	}
}

// TestManual checks that mandoc finds no error in the manual pages.
func TestManual(t *testing.T) {
	ktest.Require(t, "mandoc")
	if out, _ := inPath(t, "bash", "-c", `bailey man --dir pages && mandoc -T lint -W error pages/*.1 && mandoc -T ascii pages/bailey-run.1 | col -b`); !strings.Contains(out, "If a call needs an approval") {
		t.Error(out)
	}
}

// inPath runs a command with bailey in its PATH. It returns the output and the home, which does not exist before.
func inPath(t *testing.T, command ...string) (out, home string) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "bailey"))
	}
	if err != nil {
		t.Fatal(err)
	}
	home = filepath.Join(dir, "home")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "BAILEY_HOME="+home, "PATH="+dir+":"+os.Getenv("PATH"))
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return string(b), home
}
