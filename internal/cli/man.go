package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi/apitype"
)

func (a *App) manVerb() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "man [VERB]...", Short: "Print the manual pages",
		Long: `Print the manual page of a command, or of bailey itself, for man(1):

  bailey man run | man -l -

With --dir all pages are written there: bailey.1, bailey-run.1 and so on; MANPATH finds them in DIR/man1.
They are generated from the output of --help and have no date: the same program writes the same pages.`,
		RunE: func(cmd *cobra.Command, words []string) error {
			root := cmd.Root()
			if dir == "" {
				named, rest, err := root.Find(words)
				if err != nil || len(rest) > 0 {
					return unknownVerb(root, words)
				}
				_, err = a.Stdout.Write(manualPage(named))
				return err
			}
			if len(words) > 0 {
				return bailey.Invalid.New("--dir writes all pages", "leave out "+strings.Join(words, " "))
			}
			pages := []string{}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			for _, c := range append([]*cobra.Command{root}, EveryVerb(root)...) {
				if c.Hidden || c.Deprecated != "" {
					continue
				}
				name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
				if err := os.WriteFile(filepath.Join(dir, name), manualPage(c), 0o644); err != nil {
					return err
				}
				pages = append(pages, name)
			}
			slices.Sort(pages)
			return a.PrintLine(map[string]any{"ok": true, "dir": dir, "pages": pages}, "%d pages in %s\n", len(pages), dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all pages into `DIR`")
	return cmd
}

// manualPage returns the manual page of a command, in the macros of man(7). It has no date, so that the same program writes
// the same pages. The Markdown parser of cobra's own generator would add a third of a millisecond to every start
// (TestStartsLight), for a page that is rarely read.
func manualPage(cmd *cobra.Command) []byte {
	var b strings.Builder
	section := func(name string) { fmt.Fprintf(&b, ".SH %s\n", name) }
	page := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"\" \"Bailey %s\" \"Bailey\"\n", escapeRoff(strings.ToUpper(page)),
		escapeRoff(apitype.Version))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", escapeRoff(page), escapeRoff(cmd.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".nf\n\\fB%s\\fP\n.fi\n", escapeRoff(cmd.UseLine()))
	section("DESCRIPTION")
	writeParagraphs(&b, cmp.Or(cmd.Long, cmd.Short))
	for _, flags := range [][2]string{{"OPTIONS", cmd.NonInheritedFlags().FlagUsages()},
		{"OPTIONS OF EVERY COMMAND", cmd.InheritedFlags().FlagUsages()}} {
		if flags[1] != "" {
			section(flags[0])
			writeParagraphs(&b, flags[1])
		}
	}
	if cmd.Example != "" {
		section("EXAMPLES")
		writeParagraphs(&b, cmd.Example)
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-"))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "completion" && c.Name() != "help" {
			also = append(also, strings.ReplaceAll(c.CommandPath(), " ", "-"))
		}
	}
	if len(also) > 0 {
		section("SEE ALSO")
		for i, name := range also {
			also[i] = "\\fB" + escapeRoff(name) + "\\fP(1)"
		}
		b.WriteString(strings.Join(also, ", ") + "\n")
	}
	return []byte(b.String())
}

// writeParagraphs writes paragraphs. Indented lines are shown unchanged.
func writeParagraphs(b *strings.Builder, text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		shown := strings.HasPrefix(paragraph, " ")
		if shown {
			b.WriteString(".nf\n")
		}
		for line := range strings.Lines(paragraph) {
			b.WriteString(escapeRoff(strings.TrimSuffix(line, "\n")) + "\n")
		}
		if shown {
			b.WriteString(".fi\n")
		}
	}
}

// escapeRoff escapes a line: a backslash begins an escape sequence, a dot or a quote at the beginning is a request, and a
// plain hyphen is not a minus sign.
func escapeRoff(line string) string {
	line = strings.NewReplacer("\\", "\\e", "-", "\\-", "\n", " ").Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = "\\&" + line
	}
	return line
}
