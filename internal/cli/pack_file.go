package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/pack"
)

// packFault is an error in a pack. Line and Column are 0 if the error does not belong to a line.
type packFault struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Text   string `json:"text"`
}

// packChecked is the result of `pack validate`.
type packChecked struct {
	OK           bool        `json:"ok"`
	Name         string      `json:"name,omitempty"`
	Version      string      `json:"version,omitempty"`
	Digest       string      `json:"digest,omitempty"`
	Capabilities int         `json:"capabilities,omitempty"`
	Findings     []packFault `json:"findings"`
}

func (a *App) packValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate DIR|BUNDLE", Short: "Say all that is wrong with a pack",
		Long: `Read a pack's directory, or a bundle, as an installation would, and say what is wrong with it: file, line, column.
It says nothing of who signed it: bailey pack verify does. Exit code 2 where something is wrong.`,
		Example: "  bailey pack validate ./demo\n  bailey pack validate demo-1.0.0.baileypack --json",
		Args:    OneArg("a pack's directory or bundle, as in: bailey pack validate ./demo"),
		RunE: func(_ *cobra.Command, args []string) error {
			c := packChecked{Findings: []packFault{}}
			v, p, err := unverified(args[0])
			switch {
			case err != nil:
				c.Findings = faultsOf(args[0], err)
			default:
				c = packChecked{OK: true, Name: p.Name, Version: p.Version, Digest: v.Digest, Capabilities: len(p.Capabilities), Findings: c.Findings}
			}
			if a.JSON {
				err = a.Print(c)
			} else {
				err = a.checked(c)
			}
			if err == nil && !c.OK {
				return Exit(apitype.ExitInput)
			}
			return err
		},
	}
}

func (a *App) checked(c packChecked) error {
	for _, f := range c.Findings {
		where := f.File
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
		}
		fmt.Fprintf(a.Stdout, "%s: %s\n", terminal.CutLine(where), terminal.CutLine(f.Text))
	}
	if c.OK {
		fmt.Fprintf(a.Stdout, "%s %s is sound: %s\n", c.Name, c.Version, apitype.Counts(c.Capabilities, "capability"))
	}
	return nil
}

// faultsOf returns one fault for each line of a parser's error.
func faultsOf(path string, err error) (list []packFault) {
	if info, e := os.Stat(path); e == nil && info.IsDir() {
		path = filepath.Join(path, pack.ManifestName)
	}
	for line := range strings.Lines(err.Error()) {
		f := packFault{File: path, Text: strings.TrimSuffix(line, "\n")}
		if rest, ok := strings.CutPrefix(f.Text, pack.ManifestName+":"); ok {
			if n, _ := fmt.Sscanf(rest, "%d:%d:", &f.Line, &f.Column); n == 2 {
				f.Text = strings.TrimPrefix(rest, fmt.Sprintf("%d:%d: ", f.Line, f.Column))
			}
		}
		list = append(list, f)
	}
	return list
}

// unverified reads a pack for inspection. It does not check the signature.
func unverified(path string) (*pack.Verified, *pack.Pack, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, &bailey.Error{Kind: bailey.NotFound, Message: "there is no " + path, Hint: "name a pack's directory or a bundle"}
	}
	read := packstore.ReadBundle
	if info.IsDir() {
		read = packstore.BundleOf
	}
	data, err := read(path)
	if err != nil {
		return nil, nil, err
	}
	v, err := packstore.Open(data, true, nil)
	if err != nil {
		return nil, nil, err
	}
	p, err := v.Pack(pack.ManifestName)
	return v, p, err
}

func (a *App) packBundle() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "bundle DIR", Short: "Make one file of a pack's directory",
		Long: `Make a bundle of all files below DIR: pack.yaml and what belongs to it. It is not signed: bailey pack sign does that.
The same files always make the same bytes.`,
		Example: "  bailey pack bundle ./demo --out demo-1.0.0.baileypack",
		Args:    OneArg("a pack's directory, as in: bailey pack bundle ./demo"),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := packstore.BundleOf(args[0])
			if err != nil {
				return err
			}
			b, err := pack.ReadBundle(data)
			if err != nil {
				return err
			}
			if out == "" {
				out = b.Name + "-" + b.Version + ".baileypack"
			}
			if err := fresh(out, string(data), 0o644); err != nil {
				return err
			}
			return a.wrote(out, b)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the bundle's `file` (default NAME-VERSION.baileypack)")
	return cmd
}

// wrote prints which bundle a file contains.
func (a *App) wrote(file string, b *pack.Bundle) error {
	if a.JSON {
		return a.Print(map[string]any{"ok": true, "file": file, "name": b.Name, "version": b.Version, "digest": b.Digest, "signer": b.Signer, "files": b.Files})
	}
	fmt.Fprintf(a.Stdout, "%s: %s %s, %s, digest %s\n", terminal.CutLine(file), b.Name, b.Version, apitype.Counts(len(b.Files), "file"), b.Digest)
	return nil
}

func (a *App) packSign() *cobra.Command {
	var key, out string
	cmd := &cobra.Command{
		Use: "sign BUNDLE --key FILE", Short: "Sign a bundle",
		Long: `Sign BUNDLE with the key in FILE, which bailey pack keygen made. The bundle is replaced by the signed one, or with
--out left as it is. A bundle has one signature.`,
		Example: "  bailey pack sign demo-1.0.0.baileypack --key acme.key",
		Args:    OneArg("a bundle, as in: bailey pack sign demo-1.0.0.baileypack --key acme.key"),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, _, err := unverified(args[0]); err != nil { // refuse to sign an invalid pack
				return err
			}
			private, err := readPrivate(key)
			if err != nil {
				return err
			}
			data, err := packstore.ReadBundle(args[0])
			if err != nil {
				return err
			}
			signed, err := pack.Sign(data, private)
			if err != nil {
				return err
			}
			b, err := pack.ReadBundle(signed)
			if err != nil {
				return err
			}
			if out == "" {
				out = args[0]
				err = replaceFile(out, signed)
			} else {
				err = fresh(out, string(signed), 0o644)
			}
			if err != nil {
				return err
			}
			return a.wrote(out, b)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the private key's `file`")
	cmd.Flags().StringVar(&out, "out", "", "another `file` for the signed bundle")
	cmd.MarkFlagRequired("key")
	return cmd
}

// readPrivate reads a private key, which other users must not be able to read.
func readPrivate(name string) (string, error) {
	data, err := safefile.ReadPlain(name, 4<<10)
	if err == nil && data == nil {
		err = &bailey.Error{Kind: bailey.NotFound, Message: "there is no file " + name, Hint: "bailey pack keygen NAME makes NAME.key"}
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Lstat(name); err != nil || strings.HasPrefix(string(data), "PRIVATE") && safefile.Wide(info) {
		return "", &bailey.Error{Kind: bailey.Denied, Message: name + " can be read by others, and a private key is its owner's alone", Err: err,
			Hint: "chmod 600 " + name + ", or make another with bailey pack keygen if others may have read it"}
	}
	return string(data), nil
}

// replaceFile replaces a file atomically.
func replaceFile(name string, content []byte) error {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer root.Close()
	return safefile.Replace(root, filepath.Base(name), content, 0o644, func() error { return nil })
}

// packVerdict is the result of `pack verify`.
type packVerdict struct {
	OK      bool        `json:"ok"`
	Name    string      `json:"name"`
	Version string      `json:"version"`
	Digest  string      `json:"digest"`
	Key     string      `json:"key"`
	Files   []pack.File `json:"files"`
}

func (a *App) packVerify() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "verify BUNDLE", Short: "Say who signed a bundle, and that it is whole",
		Long: `Verify BUNDLE against the keys that this home trusts, or against the one in --key FILE. Exit code 0 means that the
signature is of one of them and that every file is what was signed.`,
		Example: "  bailey pack verify demo-1.0.0.baileypack\n  bailey pack verify demo-1.0.0.baileypack --key acme.pub",
		Args:    OneArg("a bundle, as in: bailey pack verify demo-1.0.0.baileypack"),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := a.keysFor(cmd.Context(), key)
			if err != nil {
				return err
			}
			v, _, err := packstore.ReadAt(args[0], false, keys)
			if err != nil {
				return err
			}
			if _, err := v.Pack(pack.ManifestName); err != nil {
				return err
			}
			if a.JSON {
				return a.Print(packVerdict{true, v.Name, v.Version, v.Digest, v.Key, v.Files})
			}
			fmt.Fprintf(a.Stdout, "%s %s, signed by %s, digest %s\n", v.Name, v.Version, v.Key, v.Digest)
			for _, f := range v.Files {
				fmt.Fprintf(a.Stdout, "  %s  %7d  %s\n", f.SHA256, f.Size, f.Path)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "a public key's `file`, instead of those that are trusted")
	return cmd
}

// keysFor returns the key in file or, if file is empty, the trusted keys.
func (a *App) keysFor(ctx context.Context, file string) ([]pack.Key, error) {
	if file != "" {
		k, err := readKey(file)
		return []pack.Key{k}, err
	}
	c, err := a.Client()
	if err != nil {
		return nil, err
	}
	var trusted []packstore.TrustedKey
	if err := c.Look(ctx, localapi.Query{Verb: apitype.PackKeysQuery}, &trusted); err != nil {
		return nil, err
	}
	var keys []pack.Key
	for _, t := range trusted {
		k, bad := pack.ParseKey(t.Key)
		err = errors.Join(err, bad)
		keys = append(keys, k)
	}
	return keys, err
}

func (a *App) packDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff OLD NEW", Short: "Say what a pack may do that another could not",
		Long: `Say what the pack NEW may do that OLD could not; each is a directory or a bundle. What is only less than before is not
shown; what cannot be judged is. A class that is milder than before is shown too, since rules on the stricter one hold
no more. Exit code 0: it may do nothing more; 1: it may do what is shown.`,
		Example: "  bailey pack diff demo-1.0.0.baileypack ./demo",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return &bailey.Error{Kind: bailey.Invalid, Message: "diff wants two packs", Hint: "as in: bailey pack diff demo-1.0.0.baileypack ./demo"}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var both [2]*pack.Pack
			for i, path := range args {
				_, p, err := unverified(path)
				if err != nil {
					return &bailey.Error{Kind: bailey.KindOf(err), Message: path, Err: err, Hint: bailey.HintOf(err)}
				}
				both[i] = p
			}
			changes := pack.Diff(both[0], both[1])
			if a.JSON {
				if err := a.Print(map[string]any{"ok": true, "wider": len(changes) > 0, "changes": append([]pack.Change{}, changes...)}); err != nil {
					return err
				}
			} else if len(changes) == 0 {
				fmt.Fprintln(a.Stdout, "it may do nothing that the other could not")
			} else {
				fmt.Fprint(a.Stdout, packstore.ChangeLines(changes))
			}
			if len(changes) > 0 {
				return Exit(apitype.ExitDenied)
			}
			return nil
		},
	}
}
