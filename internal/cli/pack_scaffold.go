package cli

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/pack"
)

// scaffolds contains a valid, working manifest for each kind.
//
//go:embed scaffold/*.yaml
var scaffolds embed.FS

// scaffoldKinds lists the kinds, the least powerful first.
var scaffoldKinds = []string{"read-only", "change-controlled", "operator"}

func (a *App) packScaffold() *cobra.Command {
	var dir, kind string
	cmd := &cobra.Command{
		Use: "scaffold NAME", Short: "Begin a pack of your own",
		Long: `Write a pack that is sound, to be made into yours: pack.yaml and README.md. Nothing is overwritten. Kinds:

  read-only          it looks
  change-controlled  it changes a file, and a person who is asked sees what would stand in it
  operator           it destroys, and cannot be undone: no rule but one that names it lets it run`,
		Example: "  bailey pack scaffold demo\n  bailey pack scaffold --kind change-controlled --dir packs/demo demo",
		Args:    OneArg("the pack's name, as in: bailey pack scaffold demo"),
		RunE: func(_ *cobra.Command, args []string) error {
			if dir == "" {
				dir = args[0]
			}
			files, err := scaffold(args[0], kind)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return &bailey.Error{Kind: bailey.Unavailable, Message: dir + " cannot be made", Err: err, Hint: "name another with --dir"}
			}
			names := []string{filepath.Join(dir, pack.ManifestName), filepath.Join(dir, "README.md")}
			for i, name := range names {
				if err := fresh(name, files[i], 0o644); err != nil {
					if i > 0 {
						err = errors.Join(err, os.Remove(names[0]))
					}
					return err
				}
			}
			if a.JSON {
				return a.Print(map[string]any{"ok": true, "name": args[0], "kind": kind, "dir": dir, "files": names})
			}
			fmt.Fprintf(a.Stdout, "%s and %s: edit them, then\n  bailey pack validate %s\n  bailey pack install --dev %s\n", names[0], names[1], dir, dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the `directory` (default NAME)")
	cmd.Flags().StringVar(&kind, "kind", scaffoldKinds[0], "one of "+strings.Join(scaffoldKinds, ", "))
	return cmd
}

// scaffold returns a manifest and a README. It parses the manifest, so that each file that it returns is valid.
func scaffold(name, kind string) ([]string, error) {
	text, err := scaffolds.ReadFile("scaffold/" + kind + ".yaml")
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("there is no kind %q", kind), Hint: "kinds are " + strings.Join(scaffoldKinds, ", ")}
	}
	text = bytes.ReplaceAll(text, []byte("NAME"), []byte(name))
	if _, err := pack.Parse(pack.ManifestName, text); err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a pack cannot have the name %q", name), Hint: "small letters, digits and -, a letter first"}
	}
	return []string{string(text), "# " + name + "\n\nWhat it is for, what it needs on the machine, and who keeps it.\n"}, nil
}
