package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/pack"
)

func (a *App) packKeygen() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "keygen NAME", Short: "Make the key that signs your packs",
		Long: `Make an Ed25519 key: NAME.key, which signs and goes to nobody, and NAME.pub, which whoever trusts your packs gets
from you. Neither file is ever overwritten.`,
		Example: "  bailey pack keygen acme\n  bailey pack keygen acme --out ~/keys",
		Args:    OneArg("a name, as in: bailey pack keygen acme"),
		RunE: func(_ *cobra.Command, args []string) error {
			private, public, err := pack.GenerateKey(args[0])
			if err != nil {
				return err
			}
			key, pub := filepath.Join(dir, args[0]+".key"), filepath.Join(dir, args[0]+".pub")
			if err := fresh(pub, public+"\n", 0o644); err != nil {
				return err
			}
			if err := fresh(key, private+"\n", 0o600); err != nil {
				return errors.Join(err, os.Remove(pub))
			}
			if a.JSON {
				return a.Print(map[string]any{"ok": true, "name": args[0], "private": key, "public": pub, "key": public})
			}
			fmt.Fprintf(a.Stdout, "%s signs; keep it to yourself\n%s is for those who are to trust it: %s\n", key, pub, public)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "out", ".", "the directory")
	return cmd
}

// fresh writes a file that must not exist yet.
func fresh(name, content string, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|safefile.NoFollow, mode)
	if errors.Is(err, fs.ErrExist) {
		return &bailey.Error{Kind: bailey.Conflict, Message: name + " exists, and is not overwritten", Hint: "take another name, or move it away"}
	}
	if err == nil {
		_, err = f.WriteString(content)
		err = errors.Join(err, f.Sync(), f.Close())
		if err != nil {
			os.Remove(name)
		}
	}
	if err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: name + " cannot be written", Err: err, Hint: "look at the directory's mode and the disk's space"}
	}
	return nil
}

func (a *App) packTrust() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "trust FILE", Short: "Trust the key of a pack's author",
		Long: `Trust the key in FILE, as bailey pack keygen wrote it: packs that it signed may be installed. Compare what is shown
with what its author says over another way than the file came.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack trust acme.pub",
		Args:    OneArg("a public key's file, as in: bailey pack trust acme.pub"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := readKey(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Dialog(), "%s\n", terminal.CutLine(k.Text))
			return a.changeKey(cmd.Context(), "pack trust", packstore.PackTrustEvent, map[string]any{"key": k.Text}, yes, "Trust this key?",
				func(c apitype.KeyChanged) string { return "packs that " + c.Name + " signed may be installed" })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func readKey(name string) (pack.Key, error) {
	data, err := safefile.ReadPlain(name, 4<<10)
	switch {
	case err != nil:
		return pack.Key{}, err
	case data == nil:
		return pack.Key{}, &bailey.Error{Kind: bailey.NotFound, Message: "there is no file " + name, Hint: "name the file of a public key: NAME.pub"}
	}
	return pack.ParseKey(string(data))
}

func (a *App) packUntrust() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "untrust NAME", Short: "Trust a key no longer",
		Long: `Trust the key NAME no longer. What it signed stays installed and is not loaded, from the next call on. Where
rules in force speak of that, they have to be replaced first; bailey kill stops everything at once.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack untrust acme",
		Args:    OneArg("a key's name, as in: bailey pack untrust acme"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeKey(cmd.Context(), "pack untrust", packstore.PackUntrustEvent, map[string]any{"name": args[0]}, yes, "Trust "+terminal.CutLine(args[0])+" no longer?",
				func(c apitype.KeyChanged) string {
					return c.Name + " is trusted no longer, and " + apitype.Counts(len(c.Packs), "pack") + " of it not loaded"
				})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *App) changeKey(ctx context.Context, verb, event string, args map[string]any, yes bool, question string, words func(apitype.KeyChanged) string) error {
	var out apitype.KeyChanged
	if err := a.operate(ctx, verb, event, args, yes, question, &out); err != nil {
		return err
	}
	switch {
	case a.JSON:
		return a.Print(out)
	case !out.Changed:
		fmt.Fprintln(a.Stdout, "nothing changes: this key is trusted")
	default:
		fmt.Fprintln(a.Stdout, words(out))
	}
	return nil
}
