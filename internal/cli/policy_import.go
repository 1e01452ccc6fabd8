package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// maxImport limits an imported file, in bytes. The package policy has the same limit, and reports the error.
const maxImport = 1 << 20

// importReport is the result of `policy import`.
type importReport struct {
	File        string            `json:"file,omitempty"` // the new file
	Imported    []policy.Imported `json:"imported"`
	NotImported []policy.Left     `json:"notImported"`
	Text        string            `json:"text,omitempty"` // only if no file was written
}

func (a *App) policyImport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "import FILE... [-o DIR]", Short: "Make rules of an agent client's lists of permissions",
		Long: `Make rules of lists that other programs keep: the settings.json of Claude Code (permissions.allow, ask, deny), or a
file with one Tool(pattern) a line, which allows unless "ask" or "deny" stands before it. Nothing takes effect: the
rules are for a person to look at.

Bash(git status:*) becomes a rule for the capability that stands for that command. Allow stays allow for what only
looks; what changes something is permitted and asks. An entry that means a part of a capability asks, one that denies a
part denies it. What no capability stands for is named and left out: no rule is ever wider than the list.

Without -o the rules go to stdout. With -o they go into a new file; one that is there is never overwritten.`,
		Example: "  bailey policy import ~/.claude/settings.json .claude/settings.json -o policy",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &bailey.Error{Kind: bailey.Invalid, Message: "want a file of lists", Hint: "as in: bailey policy import ~/.claude/settings.json -o policy"}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			made, err := importLists(args)
			if err != nil {
				return err
			}
			said := func(file string) any {
				r := importReport{File: file, Imported: made.Imported, NotImported: made.NotImported}
				if file == "" {
					r.Text = string(made.Text)
				}
				return r
			}
			return a.giveRules(out, "imported.cedar", made.Text, said, func() { writeImported(a.Stderr, made) })
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write imported.cedar into a `directory`, or a new file *.cedar")
	return cmd
}

// importLists makes rules from the files and checks that they load.
func importLists(files []string) (made policy.Import, err error) {
	var lists []policy.Lists
	for _, name := range files {
		data, err := readLists(name)
		if err != nil {
			return made, err
		}
		l, err := policy.ReadLists(name, data)
		if err != nil {
			return made, err
		}
		lists = append(lists, l)
	}
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return made, err
	}
	all := policyfiles.Actions(catalog)
	var commands []policy.Command
	for i, m := range catalog.All() {
		commands = append(commands, policy.Command{Action: all[i], Patterns: m.ArgvPattern()})
	}
	made = policy.ImportLists(commands, lists)
	_, err = policy.Load(policy.Config{Sources: []policy.Source{{Name: "imported.cedar", Text: made.Text}}, Actions: all})
	return made, err
}

func readLists(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|safefile.NoWait, 0)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("%s cannot be opened", terminal.Shown(name)), Hint: "name a file of lists, as ~/.claude/settings.json", Err: err}
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s is no regular file", terminal.Shown(name)), Hint: "name a file of lists, as ~/.claude/settings.json", Err: err}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxImport+1))
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%s cannot be read", terminal.Shown(name)), Err: err}
	}
	return data, nil
}

func writeImported(w io.Writer, made policy.Import) {
	for _, i := range made.Imported {
		fmt.Fprintf(w, "%s: %s %s", i.As, terminal.TableCell(i.List+" "+i.Entry), terminal.Shown("→ "+string(i.Capability)))
		if i.Note != "" {
			fmt.Fprintf(w, " (%s)", i.Note)
		}
		fmt.Fprintln(w)
	}
	for _, l := range made.NotImported {
		fmt.Fprintf(w, "not imported: %s: %s\n", terminal.TableCell(strings.TrimSpace(l.List+" "+l.Entry)), terminal.Shown(l.Why))
	}
}
