package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/safefile"
	"bailey/internal/wire"
	"bailey/pack"
)

// keyChanged is the answer of trust and untrust.
type keyChanged struct {
	OK      bool     `json:"ok"`
	Changed bool     `json:"changed"`
	Name    string   `json:"name"`
	Key     string   `json:"key,omitempty"`   // the line of the key file
	Packs   []string `json:"packs,omitempty"` // installed packs that it signed
}

const packKeysLook = "pack.keys"

// keys is a query: it returns the trusted keys in use.
func (b *packBook) keys(context.Context, wire.Query, bailey.Call) (any, error) {
	keys, _ := packKeys(b.home, b.now())
	list := []trustedKey{}
	for _, k := range keys {
		list = append(list, trustedKey{Name: k.Name, Key: k.Text})
	}
	return list, nil
}

// trust is the operator command. If another key is trusted under the same name, that key must be untrusted first.
func (b *packBook) trust(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	k, err := pack.ParseKey(text(q.Args, "key"))
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := trustedKey{Name: k.Name, Key: k.Text, At: time.Now().UTC().Truncate(time.Second), Operator: q.Operator, Person: from.Principal.Person}
	if was, ok := b.known.Keys[k.Name]; ok && was.Key != k.Text {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("another key is trusted as %s", k.Name), Hint: "bailey pack untrust " + k.Name + " first, if its author has another key now"}
	}
	out := keyChanged{OK: true, Name: k.Name, Key: k.Text}
	if keys, _ := packKeys(b.home, b.known); slices.ContainsFunc(keys, func(o pack.Key) bool { return o.Text == k.Text }) {
		return out, nil
	}
	root, err := safefile.OpenDir(string(b.home), packKeysName)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "the key cannot be kept", Err: err, Hint: "look at the home's mode and the disk's space"}
	}
	defer root.Close()
	if err := safefile.Replace(root, k.Name+".pub", []byte(k.Text+"\n"), 0o644, func() error { return nil }); err != nil {
		return nil, err
	}
	if err := b.turn(ctx, packTrustEvent, now, func(l *lorePacks) { l.trust(now) }); err != nil {
		return nil, errors.Join(err, root.Remove(k.Name+".pub"))
	}
	out.Changed = true
	return out, nil
}

// untrust is the operator command. Packs that the key signed are no longer loaded.
func (b *packBook) untrust(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.known.Keys[text(q.Args, "name")]
	if !ok {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no key %q is trusted", text(q.Args, "name")), Hint: "bailey pack list shows who signed what"}
	}
	out := keyChanged{OK: true, Name: k.Name, Key: k.Key, Packs: b.signedWith(k)}
	k.At, k.Operator, k.Person = time.Now().UTC().Truncate(time.Second), q.Operator, from.Principal.Person
	if err := b.turn(ctx, packUntrustEvent, k, func(l *lorePacks) { l.untrust(k) }); err != nil {
		return nil, err
	}
	if err := os.Remove(packKeyFile(b.home, k.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("the file of a key stays", "err", err)
	}
	out.Changed = true
	return out, nil
}

func (b *packBook) signedWith(k trustedKey) (names []string) {
	key, err := pack.ParseKey(k.Key)
	for _, name := range slices.Sorted(maps.Keys(b.known.Installed)) {
		if err == nil && b.known.Installed[name].Key == key.ID() {
			names = append(names, name)
		}
	}
	return names
}

func (a *app) packKeygen() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "keygen NAME", Short: "Make the key that signs your packs",
		Long: `Make an Ed25519 key: NAME.key, which signs and goes to nobody, and NAME.pub, which whoever trusts your packs gets
from you. Neither file is ever overwritten.`,
		Example: "  bailey pack keygen acme\n  bailey pack keygen acme --out ~/keys",
		Args:    oneArg("a name, as in: bailey pack keygen acme"),
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
			if a.json {
				return a.print(map[string]any{"ok": true, "name": args[0], "private": key, "public": pub, "key": public})
			}
			fmt.Fprintf(a.stdout, "%s signs; keep it to yourself\n%s is for those who are to trust it: %s\n", key, pub, public)
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

func (a *app) packTrust() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "trust FILE", Short: "Trust the key of a pack's author",
		Long: `Trust the key in FILE, as bailey pack keygen wrote it: packs that it signed may be installed. Compare what is shown
with what its author says over another way than the file came.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack trust acme.pub",
		Args:    oneArg("a public key's file, as in: bailey pack trust acme.pub"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := readKey(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.dialog(), "%s\n", visible(k.Text))
			return a.changeKey(cmd.Context(), "pack trust", packTrustEvent, map[string]any{"key": k.Text}, yes, "Trust this key?",
				func(c keyChanged) string { return "packs that " + c.Name + " signed may be installed" })
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

func (a *app) packUntrust() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "untrust NAME", Short: "Trust a key no longer",
		Long: `Trust the key NAME no longer. What it signed stays installed and is not loaded, from the next call on. Where
rules in force speak of that, they have to be replaced first; bailey kill stops everything at once.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack untrust acme",
		Args:    oneArg("a key's name, as in: bailey pack untrust acme"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeKey(cmd.Context(), "pack untrust", packUntrustEvent, map[string]any{"name": args[0]}, yes, "Trust "+visible(args[0])+" no longer?",
				func(c keyChanged) string {
					return c.Name + " is trusted no longer, and " + counts(len(c.Packs), "pack") + " of it not loaded"
				})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) changeKey(ctx context.Context, verb, event string, args map[string]any, yes bool, question string, words func(keyChanged) string) error {
	var out keyChanged
	if err := a.operate(ctx, verb, event, args, yes, question, &out); err != nil {
		return err
	}
	switch {
	case a.json:
		return a.print(out)
	case !out.Changed:
		fmt.Fprintln(a.stdout, "nothing changes: this key is trusted")
	default:
		fmt.Fprintln(a.stdout, words(out))
	}
	return nil
}
