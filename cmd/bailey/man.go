package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"bailey"
)

func (a *app) manVerb() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "man [VERB]...", Short: "The manual pages, one of each verb",
		Long: `Print a manual page, of the verb that is named or of bailey itself, for man(1):

  bailey man run | man -l -

With --dir all of them are written there, bailey.1, bailey-run.1 and so on; MANPATH finds those in DIR/man1.
They are made from what --help prints, and have no date: the same program writes the same pages.`,
		RunE: func(cmd *cobra.Command, words []string) error {
			root := cmd.Root()
			if dir == "" {
				named, rest, err := root.Find(words)
				if err != nil || len(rest) > 0 {
					return unknownVerb(root, words)
				}
				page, err := manual(named)
				if err == nil {
					_, err = a.stdout.Write(page)
				}
				return err
			}
			if len(words) > 0 {
				return &bailey.Error{Kind: bailey.Invalid, Message: "--dir writes all pages", Hint: "leave out " + strings.Join(words, " ")}
			}
			pages := []string{}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			for _, c := range append([]*cobra.Command{root}, everyVerb(root)...) {
				if c.Hidden || c.Deprecated != "" {
					continue
				}
				page, err := manual(c)
				if err != nil {
					return err
				}
				name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
				if err := os.WriteFile(filepath.Join(dir, name), page, 0o644); err != nil {
					return err
				}
				pages = append(pages, name)
			}
			slices.Sort(pages)
			if a.json {
				return a.print(map[string]any{"ok": true, "dir": dir, "pages": pages})
			}
			fmt.Fprintf(a.stdout, "%d pages in %s\n", len(pages), dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all pages into `DIR`")
	return cmd
}

// manual is the page of a verb. The date is that of no day, and left out: pages of one program are alike.
func manual(cmd *cobra.Command) ([]byte, error) {
	var page bytes.Buffer
	header := &doc.GenManHeader{Title: strings.ToUpper(strings.ReplaceAll(cmd.CommandPath(), " ", "-")), Section: "1", Source: "Bailey " + version, Manual: "Bailey", Date: &time.Time{}}
	cmd.DisableAutoGenTag = true
	err := doc.GenMan(cmd, header, &page)
	return bytes.ReplaceAll(page.Bytes(), []byte(`"Jan 0001"`), []byte(`""`)), err
}
