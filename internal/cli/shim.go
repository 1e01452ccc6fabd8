package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// A shim is a file of one line in the home. The kernel starts bailey-shim through this line (execve(2), interpreter
// scripts), without a shell, and passes the path of the file that was called. Compared with a link this costs one more
// open, but it does not depend on argv[0], which the caller can choose freely.

// shimProgram is installed beside this program. It links few packages, because it starts at each call.
const shimProgram = "bailey-shim"

// maxInterpreter limits the line, in bytes: Linux read 128 until 5.1, and reads 256 since (BINPRM_BUF_SIZE).
const maxInterpreter = 127

type shimList struct {
	Dir   string              `json:"dir"`
	Shims []apitype.ShimEntry `json:"shims"`
}

func (a *App) shimVerb() *cobra.Command {
	return GroupVerb("shim", "Install shims that turn a tool's own name into a call", "",
		a.shimChange("install", "Add a tool's name to the home's shims", apitype.InstallShims, InstallShim),
		a.shimChange("uninstall", "Remove a tool's name from the home's shims", apitype.UninstallShims, uninstallShim),
		a.shimListVerb(), a.shimActivate(), a.shimCheckVerb())
}

func (a *App) shimChange(verb, short string, e localapi.Endpoint[apitype.ShimTools, localapi.None],
	change func(localapi.Home, string) error) *cobra.Command {
	return a.YesFlag(&cobra.Command{
		Use: verb + " TOOL...", Short: short, Args: someArgs("a tool, for example: bailey shim " + verb + " git"),
		Long: short + ".\n\nThis is an operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes. The ledger\nrecords " + e.Name + " first.",
		RunE: func(cmd *cobra.Command, tools []string) error {
			op, err := a.Operator("shim " + verb)
			if err != nil {
				return err
			}
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			for _, t := range tools {
				if err := checkShimFile(home, t); err != nil {
					return err
				}
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			if _, err := e.Do(cmd.Context(), c, op, apitype.ShimTools{Tools: tools}); err != nil {
				return err
			}
			for _, t := range tools {
				if err := change(home, t); err != nil {
					return err
				}
			}
			hint := ""
			if verb == "install" {
				hint = "  to put them first in PATH, run the output of bailey shim activate bash\n"
			}
			return a.PrintLine(map[string]any{"ok": true, "dir": ShimDir(home), "tools": tools}, "%sed %s\n%s", verb,
				strings.Join(tools, ", "), hint)
		},
	}, unaskedFlag)
}

func (a *App) shimListVerb() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the shims and their state", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			list, err := Shims(home)
			if err != nil {
				return err
			}
			return PrintAnswer(a, shimList{ShimDir(home), list}, func(w io.Writer, l shimList) {
				PrintTable(w, "", l.Shims, func(s apitype.ShimEntry) []any {
					return []any{s.Name, s.State, terminal.Shown(s.Why) + CureLine(s.Cure)}
				})
			})
		},
	}
}

func (a *App) shimActivate() *cobra.Command {
	return &cobra.Command{
		Use: "activate bash|zsh|fish", Short: "Print the line that puts the shims first in PATH",
		Long:    "Print the line that puts the shims first in PATH. If they are already first, it changes nothing.",
		Example: "  eval \"$(bailey shim activate bash)\"\n  bailey shim activate fish | source",
		Args:    OneArg("a shell: bash, zsh or fish"),
		RunE: func(_ *cobra.Command, args []string) error {
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			line, err := activationLine(ShimDir(home), args[0])
			if err != nil {
				return err
			}
			return a.PrintLine(map[string]any{"ok": true, "line": line}, "%s\n", line)
		},
	}
}

// ShimDir returns the directory in the home that holds the shims. It does not create the directory.
func ShimDir(home localapi.Home) string { return filepath.Join(string(home), "shims") }

func activationLine(dir, shell string) (string, error) {
	if strings.ContainsAny(dir, ":\\\n") {
		return "", bailey.Invalid.Errorf("set BAILEY_HOME to a directory without a colon or a backslash in its name",
			"PATH cannot contain %q", dir)
	}
	dir = shellWord(dir)
	switch shell {
	case "bash", "zsh":
		return fmt.Sprintf(`case "$PATH:" in %s:*) ;; *) export PATH=%s:"$PATH" ;; esac`, dir, dir), nil
	case "fish":
		return fmt.Sprintf(`test "$PATH[1]" = %s; or set -gx PATH %s $PATH`, dir, dir), nil
	}
	return "", bailey.Invalid.Errorf("use bash, zsh or fish; in other shells put "+dir+" first in PATH",
		"unknown shell %q", shell)
}

// checkShimFile returns an error if tool is not a file name, or if the file is not a shim of Bailey.
func checkShimFile(home localapi.Home, tool string) error {
	if tool == "" || tool[0] == '.' || tool[0] == '-' || strings.ContainsAny(tool, "/\\\n\x00") {
		return bailey.Invalid.Errorf("give only its name, for example: bailey shim install git",
			"%q is not a name of a tool", tool)
	}
	path := filepath.Join(ShimDir(home), tool)
	if _, ours, err := shimInterpreter(path); err == nil && !ours {
		return bailey.Conflict.New(path+" is not a shim of Bailey", "move it away, then try again")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bailey.Conflict.Wrap(err, path+" cannot be read", "move it away, then try again")
	}
	return nil
}

// shimInterpreter returns the program that a shim starts. ours is false for a symlink.
func shimInterpreter(path string) (program string, ours bool, err error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "", false, err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxInterpreter+2))
	if err != nil {
		return "", false, err
	}
	program, begun := strings.CutPrefix(string(text), "#!")
	program, ended := strings.CutSuffix(program, "\n")
	return program, begun && ended && !strings.ContainsAny(program, " \n") && filepath.Base(program) == shimProgram, nil
}

// InstallShim writes the shim of a tool to the home, or replaces it. It returns an error if this system or the path of
// bailey-shim does not permit shims.
func InstallShim(home localapi.Home, tool string) error {
	line, err := shimLine()
	if err != nil {
		return err
	}
	return safefile.Put(string(home), "shims/"+tool, []byte(line), 0o700, nil)
}

// shimLine returns the line that every shim contains.
func shimLine() (string, error) {
	if !startsScripts {
		return "", bailey.Unavailable.New("this system does not support #! lines",
			"use bailey run")
	}
	self, err := ownShim()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(self); err != nil {
		return "", bailey.Unavailable.Wrap(err, "there is no "+shimProgram+" beside bailey",
			"run go install ./cmd/bailey ./cmd/bailey-shim to put both into one directory")
	}
	line := "#!" + self + "\n"
	if strings.ContainsAny(self, " \t\n") || len(line) > maxInterpreter {
		return "", bailey.Invalid.Errorf("install both at a shorter path without spaces, for example /usr/local/bin",
			"a shim cannot refer to %q: the kernel allows no space there, and at most %d bytes", self, maxInterpreter)
	}
	return line, nil
}

// ownShim returns the required path of this program's bailey-shim.
func ownShim() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), shimProgram), err
}

// installedShim returns the path of this program's bailey-shim, or "" if it is not installed.
func installedShim() string {
	self, err := ownShim()
	if err != nil || !startsScripts {
		return ""
	}
	if info, err := os.Stat(self); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return self
}

func uninstallShim(home localapi.Home, tool string) error {
	err := os.Remove(filepath.Join(ShimDir(home), tool))
	if errors.Is(err, fs.ErrNotExist) {
		return bailey.NotFound.Errorf("run bailey shim list to show the shims", "there is no shim %q", tool)
	}
	if err == nil {
		os.Remove(ShimDir(home)) // fails if other shims or files remain
	}
	return err
}

// Shims returns the shims of the home, sorted by name.
func Shims(home localapi.Home) ([]apitype.ShimEntry, error) {
	list := []apitype.ShimEntry{}
	entries, err := os.ReadDir(ShimDir(home))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	self, err := ownShim()
	if err != nil {
		return nil, err
	}
	dirs := filepath.SplitList(os.Getenv("PATH"))
	active := slices.ContainsFunc(dirs, func(d string) bool { return sameFile(d, ShimDir(home)) })
	for _, e := range entries {
		s := apitype.ShimEntry{Name: e.Name(), Path: filepath.Join(ShimDir(home), e.Name()), State: "ok"}
		program, ours, err := shimInterpreter(s.Path)
		if err != nil || !ours {
			continue
		}
		first := ""
		for _, d := range dirs {
			info, err := os.Stat(filepath.Join(d, s.Name))
			if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
				continue
			}
			if first == "" {
				first = filepath.Join(d, s.Name)
			}
			if !sameFile(d, ShimDir(home)) {
				s.Tool = filepath.Join(d, s.Name)
				break
			}
		}
		switch {
		case !sameFile(program, self):
			s.State, s.Why, s.Cure = "stale", "it starts "+program+", but this bailey has "+
				self, "run bailey shim install "+s.Name
		case !active:
			s.State, s.Why, s.Cure = "inactive", "the shims are not in this PATH", "run the line that bailey shim activate bash|zsh|fish prints"
		case !sameFile(first, s.Path):
			s.State, s.Why, s.Cure = "shadowed", first+" comes first in this PATH", "put "+ShimDir(home)+
				" first in PATH: bailey shim activate"
		}
		list = append(list, s)
	}
	return list, nil
}
