package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy"
	"bailey/internal/policy/review"
	"bailey/internal/policyfiles"
	"bailey/internal/receipts"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/pack"
)

// maxImport limits an imported file, in bytes. The package policy has the same limit, and reports the error.
const maxImport = 1 << 20

// importReport is the result of `policy import`.
type importReport struct {
	File        string            `json:"file,omitempty"`   // the new file
	Beside      []string          `json:"beside,omitempty"` // files of the built-in rules, written beside it
	Imported    []review.Imported `json:"imported"`
	NotImported []review.Left     `json:"notImported"`
	Text        string            `json:"text,omitempty"` // only if no file was written
}

func (a *App) policyImport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "import FILE... [-o DIR]", Short: "Convert the permission lists of an agent client to rules",
		Long: `Convert the permission lists of other programs to rules: the settings.json of Claude Code
(permissions.allow, ask, deny), or a file with one Tool(pattern) a line, which allows unless "ask" or "deny"
precedes it. Nothing takes effect: review the rules first.

Bash(git status:*) becomes a rule for the capability that corresponds to that command. Allow stays allow for
capabilities that only read; changes are permitted but ask. An entry for a part of a capability asks, one that
denies a part denies the whole. Entries without a capability are named and left out: no rule is ever wider
than the list.

Without -o the rules go to stdout. With -o they go into a new file; an existing one is never overwritten. If DIR has no
rules yet, the built-in rules are written beside them, because a policy replaces the one in use: what works without a policy
of your own then still works.`,
		Example: "  bailey policy import ~/.claude/settings.json .claude/settings.json -o policy",
		Args: CheckArgs(func(_ *cobra.Command, args []string) bool { return len(args) > 0 }, "import needs a file of lists",
			"use for example: bailey policy import ~/.claude/settings.json -o policy"),
		RunE: func(_ *cobra.Command, args []string) error {
			made, err := a.importLists(args)
			if err != nil {
				return err
			}
			beside, err := a.writeBuiltInBeside(out)
			if err != nil {
				return err
			}
			said := func(file string) any {
				r := importReport{File: file, Beside: beside, Imported: made.Imported, NotImported: made.NotImported}
				if file == "" {
					r.Text = string(made.Text)
				}
				return r
			}
			return a.giveRules(out, "imported.cedar", made.Text, said, func() {
				writeImported(a.Stderr, made)
				if len(beside) > 0 && !a.JSON {
					fmt.Fprintf(a.Stderr, "the built-in rules are beside them: %s\n", apitype.List(beside))
				}
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write imported.cedar into a `directory`, or a new file *.cedar")
	return cmd
}

// writeBuiltInBeside writes the built-in rules into the directory out, or that of the file out, if it has no rules.
func (a *App) writeBuiltInBeside(out string) (names []string, err error) {
	if out == "" {
		return nil, nil
	}
	dir := out
	if strings.HasSuffix(out, ".cedar") {
		dir = filepath.Dir(out)
	}
	if _, err := policyfiles.ReadDir(dir); bailey.KindOf(err) != bailey.NotFound {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, bailey.Unavailable.Wrapf(err, "", "cannot create directory %s", terminal.Shown(dir))
	}
	rules := []policy.Source{policy.Starter(), policy.Agents(), policy.Sandboxes()}
	if a.Bare {
		rules = append(rules, policy.Elsewhere())
	}
	for _, s := range rules {
		if err := safefile.Create(filepath.Join(dir, s.Name), s.Text, 0o600); err != nil {
			return nil, bailey.Unavailable.Wrapf(err, "", "cannot write %s", terminal.Shown(filepath.Join(dir, s.Name)))
		}
		names = append(names, s.Name)
	}
	return names, nil
}

// importLists makes rules from the files and checks that they load.
func (a *App) importLists(files []string) (made review.Import, err error) {
	var lists []review.Lists
	for _, name := range files {
		data, err := readLists(name)
		if err != nil {
			return made, err
		}
		l, err := review.ReadLists(name, data)
		if err != nil {
			return made, err
		}
		lists = append(lists, l)
	}
	catalog, err := a.installedCatalog()
	if err != nil {
		return made, err
	}
	all := policyfiles.Actions(catalog)
	var commands []review.Command
	for i, m := range catalog.All() {
		commands = append(commands, review.Command{Action: all[i], Patterns: m.ArgvPattern()})
	}
	made = review.ImportLists(commands, lists)
	_, err = policy.Load(policy.Config{Sources: []policy.Source{{Name: "imported.cedar", Text: made.Text}},
		Actions: all})
	return made, err
}

func readLists(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|safefile.NoWait, 0)
	if err != nil {
		return nil, bailey.NotFound.Wrapf(err, "name a file of lists, for example ~/.claude/settings.json",
			"cannot open %s", terminal.Shown(name))
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, bailey.Invalid.Wrapf(err, "name a file of lists, for example ~/.claude/settings.json",
			"%s is not a regular file", terminal.Shown(name))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxImport+1))
	if err != nil {
		return nil, bailey.Unavailable.Wrapf(err, "", "%s cannot be read", terminal.Shown(name))
	}
	return data, nil
}

func writeImported(w io.Writer, made review.Import) {
	for _, i := range made.Imported {
		fmt.Fprintf(w, "%s: %s %s", i.As, terminal.TableCell(i.List+" "+i.Entry),
			terminal.Shown("→ "+string(i.Capability)))
		if i.Note != "" {
			fmt.Fprintf(w, " (%s)", i.Note)
		}
		fmt.Fprintln(w)
	}
	for _, l := range made.NotImported {
		fmt.Fprintf(w, "not imported: %s: %s\n", terminal.TableCell(strings.TrimSpace(l.List+" "+l.Entry)),
			terminal.Shown(l.Why))
	}
}

// pastCallFilter selects the part of the ledger to examine.
type pastCallFilter struct {
	receiptFilter
	dir string // of a copy of a ledger; "" for the ledger of the home
}

func (s *pastCallFilter) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.since, "since", "",
		"calls that started at or after `7d`, 36h or 90m ago, a date, or a time such as 2026-11-03T09:00:00Z")
	f.StringVar(&s.until, "until", "", "calls that started before `1d` ago, a date or a time")
	copyFlag(cmd, &s.dir)
}

func (a *App) policyReplay() *cobra.Command {
	var s pastCallFilter
	var with string
	cmd := &cobra.Command{
		Use: "replay [DIR] [--since 7d]", Short: "Show which past decisions these rules would change",
		Args: cobra.MaximumNArgs(1),
		Long: `Decide past calls again by the rules in DIR, or in $BAILEY_HOME/policy, and list every decision
that would change, with the rule responsible. Nothing takes effect. The ledger's files are read and checked;
no gateway is needed.

A receipt does not contain everything. A call that cannot be decided again is counted with the reason: it is
open, it ended or was refused before any rule was evaluated, its capability no longer exists, or a rule uses
data that the receipt hides. Dry runs are decided like calls. The exit code does not depend on the result.`,
		Example: "  bailey policy replay --since 7d --with ./policy",
		RunE: func(cmd *cobra.Command, args []string) error {
			if with != "" {
				args = append(args, with)
			}
			if len(args) > 1 {
				return bailey.Invalid.New("rules are given twice", "name one directory, as DIR or with --with")
			}
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			dir, err := policyDirOf(home, args)
			if err != nil {
				return err
			}
			files, err := policyfiles.ReadDir(dir)
			if err != nil {
				return err
			}
			catalog, err := a.installedCatalog()
			if err != nil {
				return err
			}
			e, err := policy.Load(policy.Config{Sources: files.Rules, Actions: policyfiles.Actions(catalog)})
			if err != nil {
				return err
			}
			var report review.Report
			err = a.withPastCalls(cmd.Context(), &s, catalog, func(past iter.Seq[review.Past]) error {
				report = review.Replay(e, past)
				return nil
			})
			if err != nil {
				return err
			}
			return PrintAnswer(a, report, writeReplay)
		},
	}
	s.addFlags(cmd)
	cmd.Flags().StringVar(&with, "with", "", "the rules: a `directory` of *.cedar files")
	cmd.MarkFlagDirname("with")
	return cmd
}

// withPastCalls calls do with the selected past calls.
func (a *App) withPastCalls(ctx context.Context, s *pastCallFilter, catalog *pack.Catalog,
	do func(iter.Seq[review.Past]) error) error {
	f, err := s.buildFilter(time.Now())
	if err != nil {
		return err
	}
	r, err := a.openReader(s.dir)
	if err != nil {
		return err
	}
	defer r.Close()
	h := policyfiles.RequestRebuilder{Catalog: catalog,
		Body: func(id bailey.ReceiptID, said bailey.Body) ([]byte, error) {
			return r.Body(id, receipts.InputPart, said)
		}}
	var failed error
	err = do(h.Pasts(ctx, r, f, &failed))
	if failed != nil {
		return failed
	}
	return err
}

// writeReplay prints a table with one line for each kind of changed decision.
func writeReplay(w io.Writer, r review.Report) {
	if len(r.Changes) > 0 {
		PrintTable(w, "CALLS\tCAPABILITY\tWAS\tWOULD BE\tBECAUSE\tFIRST\tLAST", r.Changes, func(c review.Change) []any {
			why := cmp.Or(strings.Join(c.Rules, ", "), c.Reason)
			return []any{c.Calls, terminal.TableCell(string(c.Capability)), c.From, c.To, terminal.TableCell(why),
				terminal.Shown(string(c.First)), terminal.Shown(string(c.Last))}
		})
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%d calls: %d decided as before, %d differently, %d cannot be decided again\n", r.Calls, r.Same,
		r.Changed, r.Undecided)
	if r.NotListed > 0 {
		fmt.Fprintf(w, "  %d of those that change are of further kinds and not listed\n", r.NotListed)
	}
	if r.DryRuns > 0 {
		fmt.Fprintf(w, "  %d were dry runs\n", r.DryRuns)
	}
	writeCauses(w, "not decided", r.Causes)
	writeCauses(w, "notes", r.Marked)
}

func writeCauses(w io.Writer, what string, list []review.Cause) {
	for _, c := range list {
		fmt.Fprintf(w, "  %s: %d, %s (%s)\n", what, c.Calls, c.Why, terminal.Shown(string(c.First)))
	}
}

// suggestion is the result of `policy suggest`.
type suggestion struct {
	File         string             `json:"file,omitempty"` // the new file
	Calls        int                `json:"calls"`
	Capabilities []review.Suggested `json:"capabilities"`
	LeftOut      []review.Cause     `json:"leftOut,omitempty"`
	Text         string             `json:"text,omitempty"` // only if no file was written
}

func (a *App) policySuggest() *cobra.Command {
	var s pastCallFilter
	var out string
	cmd := &cobra.Command{
		Use: "suggest [--since 7d] [-o DIR/FILE]", Short: "Suggest rules that fit past calls",
		Args: cobra.NoArgs,
		Long: `Write rules that would have allowed the calls that were allowed, asked for those that were asked
for, and denied those that were denied, from past receipts. Nothing takes effect: review the rules first. A
comment at each says how many calls it comes from, and what it does not restrict.

A rule names the capability, the caller and the jail, the directories, and the arguments if there were few.
Without -o the rules go to stdout. With -o they go into a new file; an existing one is never overwritten.`,
		Example: "  bailey policy suggest --since 7d\n  bailey policy suggest --since 7d -o policy/suggested.cedar",
		RunE: func(cmd *cobra.Command, _ []string) error {
			catalog, err := a.installedCatalog()
			if err != nil {
				return err
			}
			var made review.Suggestion
			err = a.withPastCalls(cmd.Context(), &s, catalog, func(past iter.Seq[review.Past]) (err error) {
				made, err = review.Suggest(policyfiles.Actions(catalog), past)
				return err
			})
			if err != nil {
				return err
			}
			if out != "" && len(made.Capabilities) == 0 {
				return bailey.NotFound.Errorf("try a longer period: --since 30d",
					"none of %d calls was allowed or asked for, so there is no rule to suggest", made.Calls)
			}
			said := func(file string) any {
				v := suggestion{File: file, Calls: made.Calls, Capabilities: made.Capabilities, LeftOut: made.Undecided}
				if file == "" {
					v.Text = string(made.Text)
				}
				return v
			}
			return a.giveRules(out, "suggested.cedar", made.Text, said, func() {
				fmt.Fprintf(a.Stderr, "bailey: rules for %d capabilities, of %d calls\n", len(made.Capabilities),
					made.Calls)
			})
		},
	}
	s.addFlags(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "write a new `file` *.cedar, or suggested.cedar into a directory")
	return cmd
}
