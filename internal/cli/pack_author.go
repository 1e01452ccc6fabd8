package cli

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/safefile"
	"bailey/internal/strictjson"
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
	Notes        []string    `json:"notes,omitempty"` // about a translation
}

func (a *App) packValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate DIR|BUNDLE", Short: "Report all faults of a pack",
		Long: `Read a pack's directory or a bundle as an installation would, and report its faults with file,
line and column. A directory in the layout of clix (capabilities/*.yaml) is translated. The signature is not checked: use bailey pack verify. Exit code 2 if there is a fault.`,
		Example: "  bailey pack validate ./demo\n  bailey pack validate demo-1.0.0.baileypack --json",
		Args:    OneArg("a pack's directory or bundle, for example: bailey pack validate ./demo"),
		RunE: func(_ *cobra.Command, args []string) error {
			c := packChecked{Findings: []packFault{}}
			v, p, err := readUnverified(args[0])
			if err != nil {
				c.Findings = faultsOf(args[0], err)
			} else {
				c = packChecked{OK: true, Name: p.Name, Version: p.Version, Digest: v.Digest,
					Capabilities: len(p.Capabilities), Findings: c.Findings, Notes: packstore.Notes(v)}
			}
			return ExitUnless(c.OK, apitype.ExitInput, PrintAnswer(a, c, printCheck))
		},
	}
}

func printCheck(w io.Writer, c packChecked) {
	for _, f := range c.Findings {
		where := f.File
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
		}
		fmt.Fprintf(w, "%s: %s\n", terminal.CutLine(where), terminal.CutLine(f.Text))
	}
	if c.OK {
		fmt.Fprintf(w, "%s %s is valid: %s\n", c.Name, c.Version, apitype.Counts(c.Capabilities, "capability"))
	}
	for _, note := range c.Notes {
		fmt.Fprintln(w, "note: "+terminal.Shown(note))
	}
}

// faultPlace is the place at the beginning of a line of a parser's error.
var faultPlace = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_./-]*\.(?:ya?ml|json)):(?:([0-9]+):([0-9]+):)? `)
})

// faultsOf returns one fault for each line of a parser's error.
func faultsOf(path string, err error) (list []packFault) {
	info, bad := os.Stat(path)
	dir := bad == nil && info.IsDir()
	for line := range strings.Lines(err.Error()) {
		f := packFault{File: path, Text: strings.TrimSuffix(line, "\n")}
		if at := faultPlace().FindStringSubmatch(f.Text); at != nil {
			f.Line, _ = strconv.Atoi(at[2]) // 0 if the fault has no line
			f.Column, _ = strconv.Atoi(at[3])
			f.Text = f.Text[len(at[0]):]
			f.File = filepath.Join(path, at[1])
		} else if dir {
			f.File = filepath.Join(path, pack.ManifestName)
		}
		if !dir {
			f.File = path
		}
		list = append(list, f)
	}
	return list
}

// readUnverified reads a pack for inspection. It does not check the signature.
func readUnverified(path string) (*pack.Verified, *pack.Pack, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, bailey.NotFound.New("there is no "+path, "name a pack's directory or a bundle")
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
		Use: "bundle DIR", Short: "Bundle the directory of a pack into one file",
		Long: `Make a bundle of all files below DIR: pack.yaml and the files beside it. It is not signed: use
bailey pack sign. The same files always give the same bytes.`,
		Example: "  bailey pack bundle ./demo --out demo-1.0.0.baileypack",
		Args:    OneArg("a pack's directory, for example: bailey pack bundle ./demo"),
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
			if err := writeNewFile(out, string(data), 0o644); err != nil {
				return err
			}
			return a.printBundle(out, b)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the bundle's `file` (default NAME-VERSION.baileypack)")
	return cmd
}

// printBundle prints which bundle a file contains.
func (a *App) printBundle(file string, b *pack.Bundle) error {
	return a.PrintLine(map[string]any{"ok": true, "file": file, "name": b.Name, "version": b.Version,
		"digest": b.Digest, "signer": b.Signer, "files": b.Files},
		"%s: %s %s, %s, digest %s\n", terminal.CutLine(file), b.Name, b.Version, apitype.Counts(len(b.Files), "file"),
		b.Digest)
}

func (a *App) packSign() *cobra.Command {
	var key, out string
	cmd := &cobra.Command{
		Use: "sign BUNDLE --key FILE", Short: "Sign a bundle",
		Long: `Sign BUNDLE with the key in FILE, which bailey pack keygen created. The signed bundle replaces it,
or is written to the file of --out. A bundle has one signature.`,
		Example: "  bailey pack sign demo-1.0.0.baileypack --key acme.key",
		Args:    OneArg("a bundle, for example: bailey pack sign demo-1.0.0.baileypack --key acme.key"),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, _, err := readUnverified(args[0]); err != nil { // refuse to sign an invalid pack
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
				err = writeNewFile(out, string(signed), 0o644)
			}
			if err != nil {
				return err
			}
			return a.printBundle(out, b)
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
		err = bailey.NotFound.New("there is no file "+name, "run bailey pack keygen NAME to create NAME.key")
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Lstat(name); err != nil || strings.HasPrefix(string(data), "PRIVATE") && safefile.Wide(info) {
		return "", bailey.Denied.Wrap(err, name+" can be read by others, but only its owner may read a private key",
			"chmod 600 "+name+", or create another with bailey pack keygen if others may have read it")
	}
	return string(data), nil
}

// replaceFile replaces a file atomically.
func replaceFile(name string, content []byte) error {
	return safefile.Put(filepath.Dir(name), filepath.Base(name), content, 0o644, nil)
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
		Use: "verify BUNDLE", Short: "Verify the signature of a bundle",
		Long: `Verify BUNDLE against the keys that this home trusts, or against the one in --key FILE. Exit code
0 means that one of these keys made the signature and that every file is unchanged.`,
		Example: "  bailey pack verify demo-1.0.0.baileypack\n  bailey pack verify demo-1.0.0.baileypack --key acme.pub",
		Args:    OneArg("a bundle, for example: bailey pack verify demo-1.0.0.baileypack"),
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
			verdict := packVerdict{true, v.Name, v.Version, v.Digest, v.Key, v.Files}
			return PrintAnswer(a, verdict, func(w io.Writer, v packVerdict) {
				fmt.Fprintf(w, "%s %s, signed by %s, digest %s\n", v.Name, v.Version, v.Key, v.Digest)
				for _, f := range v.Files {
					fmt.Fprintf(w, "  %s  %7d  %s\n", f.SHA256, f.Size, f.Path)
				}
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "a public key's `file`, instead of the trusted keys")
	return cmd
}

// keysFor returns the key in file or, if file is empty, the trusted keys.
func (a *App) keysFor(ctx context.Context, file string) ([]pack.Key, error) {
	if file != "" {
		k, err := readKey(file)
		return []pack.Key{k}, err
	}
	trusted, err := Ask(ctx, a, apitype.ListPackKeys, localapi.None{})
	if err != nil {
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
		Use: "diff OLD NEW", Short: "Show what a pack may do that another version may not",
		Long: `Show what the pack NEW may do that OLD may not; each is a directory or a bundle. Reductions are
not shown; changes that cannot be judged are. A milder class is shown too, since rules for the stricter one no
longer match. Exit code 0: NEW may do nothing more; 1: it may do what is shown.`,
		Example: "  bailey pack diff demo-1.0.0.baileypack ./demo",
		Args: CheckArgs(func(_ *cobra.Command, args []string) bool { return len(args) == 2 }, "diff needs two packs",
			"use for example: bailey pack diff demo-1.0.0.baileypack ./demo"),
		RunE: func(_ *cobra.Command, args []string) error {
			var both [2]*pack.Pack
			for i, path := range args {
				_, p, err := readUnverified(path)
				if err != nil {
					return bailey.KindOf(err).Wrap(err, path, bailey.HintOf(err))
				}
				both[i] = p
			}
			changes := pack.Diff(both[0], both[1])
			same, text := len(changes) == 0, packstore.ChangeLines(changes)
			if same {
				text = "it may do nothing that the other may not\n"
			}
			return ExitUnless(same, apitype.ExitDenied, a.PrintLine(map[string]any{"ok": true, "wider": !same,
				"changes": append([]pack.Change{}, changes...)}, "%s", text))
		},
	}
}

func (a *App) packKeygen() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "keygen NAME", Short: "Create a key that signs packs",
		Long: `Create an Ed25519 key: NAME.key, the private key that signs, and NAME.pub, the public key for
everyone who trusts your packs. Neither file is ever overwritten.`,
		Example: "  bailey pack keygen acme\n  bailey pack keygen acme --out ~/keys",
		Args:    OneArg("a name, for example: bailey pack keygen acme"),
		RunE: func(_ *cobra.Command, args []string) error {
			private, public, err := pack.GenerateKey(args[0])
			if err != nil {
				return err
			}
			key, pub := filepath.Join(dir, args[0]+".key"), filepath.Join(dir, args[0]+".pub")
			if err := writeNewFile(pub, public+"\n", 0o644); err != nil {
				return err
			}
			if err := writeNewFile(key, private+"\n", 0o600); err != nil {
				return errors.Join(err, os.Remove(pub))
			}
			return a.PrintLine(map[string]any{"ok": true, "name": args[0], "private": key, "public": pub, "key": public},
				"%s signs; keep it secret\n%s is for the users who trust it: %s\n", key, pub, public)
		},
	}
	cmd.Flags().StringVar(&dir, "out", ".", "the directory")
	return cmd
}

// writeNewFile writes a file that must not exist yet.
func writeNewFile(name, content string, mode fs.FileMode) error {
	err := safefile.Create(name, []byte(content), mode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return bailey.Conflict.New(name+" exists, and is not overwritten", "use another name, or move it away")
	case err != nil:
		return bailey.Unavailable.Wrap(err, name+" cannot be written",
			"check the directory's mode and the disk's space")
	}
	return nil
}

func (a *App) packTrust() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "trust FILE", Short: "Trust the key of a pack's author",
		Long: `Trust the key in FILE, as bailey pack keygen wrote it: packs that it signed may be installed.
Compare the displayed key with the one that its author published through another channel.`,
		Example: "  bailey pack trust acme.pub",
		Args:    OneArg("a public key's file, for example: bailey pack trust acme.pub"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := readKey(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Dialog(), "%s\n", terminal.CutLine(k.Text))
			return changeKey(cmd.Context(), a, "pack trust", apitype.TrustPackKey, apitype.PackKey{Key: k.Text},
				"Trust this key?",
				func(c apitype.KeyChanged) string { return "packs that " + c.Name + " signed may be installed" })
		},
	})
}

func readKey(name string) (pack.Key, error) {
	data, err := safefile.ReadPlain(name, 4<<10)
	switch {
	case err != nil:
		return pack.Key{}, err
	case data == nil:
		return pack.Key{}, bailey.NotFound.New("there is no file "+name, "name the file of a public key: NAME.pub")
	}
	return pack.ParseKey(string(data))
}

func (a *App) packUntrust() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "untrust NAME", Short: "Stop trusting the key of a pack's author",
		Long: `Stop trusting the key NAME. Packs that it signed stay installed but are not loaded, from the next
call on. If the policy in use refers to them, apply another policy first; bailey kill stops everything at
once.`,
		Example: "  bailey pack untrust acme",
		Args:    OneArg("a key's name, for example: bailey pack untrust acme"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeKey(cmd.Context(), a, "pack untrust", apitype.UntrustPackKey,
				apitype.PackKeyName{Name: args[0]},
				"Trust "+terminal.CutLine(args[0])+" no longer?", func(c apitype.KeyChanged) string {
					return c.Name + " is no longer trusted, and " + apitype.Counts(len(c.Packs), "pack") +
						" signed by it are not loaded"
				})
		},
	})
}

func changeKey[Request any](ctx context.Context, a *App, verb string, e localapi.Endpoint[Request, apitype.KeyChanged],
	r Request, question string, words func(apitype.KeyChanged) string) error {
	out, err := Operate(ctx, a, verb, e, r, question)
	if err != nil {
		return err
	}
	text := "nothing to do: this key is trusted"
	if out.Changed {
		text = words(out)
	}
	return a.PrintLine(out, "%s\n", text)
}

// packIndex is index.json of a directory with published bundles. It proves nothing: each bundle is verified when
// installed.
type packIndex struct {
	Packs []publishedPack `json:"packs"` // by name, newest version first
}

type publishedPack struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Key     string `json:"key"`
	File    string `json:"file"`
}

const packIndexName = "index.json"

func (a *App) packPublish() *cobra.Command {
	var dir, key string
	cmd := &cobra.Command{
		Use: "publish BUNDLE --to DIR", Short: "Add a signed bundle to a directory that others install from",
		Long: `Copy a bundle that is signed by a trusted key, or by the one in --key FILE, into DIR, and add it
to DIR/index.json. Any web server can serve DIR. A published version does not change: a different bundle of
the same version is refused.`,
		Example: "  bailey pack publish demo-1.0.0.baileypack --to /srv/packs",
		Args:    OneArg("a bundle, for example: bailey pack publish demo-1.0.0.baileypack --to /srv/packs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			return a.publishBundle(cmd.Context(), args[0], dir, key)
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "to", "", "the `directory`")
	f.StringVar(&key, "key", "", "a public key's `file`, instead of the trusted keys")
	cmd.MarkFlagRequired("to")
	return a.OperatorVerb(cmd)
}

func (a *App) publishBundle(ctx context.Context, bundle, dir, key string) error {
	op, c, err := a.OperatorClient("pack publish")
	if err != nil {
		return err
	}
	keys, err := a.keysFor(ctx, key)
	if err != nil {
		return err
	}
	v, data, err := packstore.ReadAt(bundle, false, keys)
	if err == nil {
		_, err = v.Pack(pack.ManifestName)
	}
	if err != nil {
		return err
	}
	entry := publishedPack{v.Name, v.Version, v.Digest, v.Key, v.Name + "-" + v.Version + ".baileypack"}
	unlock, err := localapi.LockFile(filepath.Join(dir, ".publish.lock"))
	if err != nil {
		return bailey.Unavailable.Wrap(err, dir+" cannot be published to",
			"use a directory that you can write and in which no other process is publishing")
	}
	defer unlock()
	index, there, err := addToIndex(dir, entry, data)
	if err != nil {
		return err
	}
	if !there {
		fmt.Fprintf(a.Dialog(), "%s %s, signed by %s, digest %s\n", v.Name, v.Version, v.Key, v.Digest)
		if err := a.Confirm(ctx, "Publish this in "+terminal.CutLine(dir)+"?"); err != nil {
			return err
		}
		noted := apitype.PackPublication{Name: v.Name, Version: v.Version, Digest: v.Digest, Key: v.Key, Dir: dir}
		if _, err := apitype.PublishPack.Do(ctx, c, op, noted); err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(dir, entry.File), data); err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(dir, packIndexName), index); err != nil {
			return err
		}
	}
	text := "published: " + filepath.Join(dir, entry.File)
	if there {
		text = "nothing to do: it is published"
	}
	return a.PrintLine(struct {
		OK      bool   `json:"ok"`
		Changed bool   `json:"changed"`
		Dir     string `json:"dir"`
		publishedPack
	}{true, !there, dir, entry}, "%s\n", text)
}

// addToIndex returns the index with the bundle added, and whether it already contains it. If another bundle of this
// version exists, it returns an error, even if the index does not list that bundle.
func addToIndex(dir string, p publishedPack, data []byte) (index []byte, there bool, err error) {
	taken := func(digest string) error {
		return bailey.Conflict.Errorf("give it a new version: users of the published one rely on it",
			"%s %s is published as %.12s, but this is %.12s", p.Name, p.Version, digest, p.Digest)
	}
	old, err := safefile.ReadPlain(filepath.Join(dir, p.File), pack.MaxBundle)
	if err != nil {
		return nil, false, err
	}
	if old != nil && !bytes.Equal(old, data) {
		digest := "no bundle"
		if b, err := pack.ReadBundle(old); err == nil {
			digest = b.Digest
		}
		return nil, false, taken(digest)
	}
	list, err := readIndex(dir)
	if err != nil {
		return nil, false, err
	}
	for _, o := range list.Packs {
		switch {
		case o.Name != p.Name || o.Version != p.Version:
		case o.Digest != p.Digest || o.Key != p.Key:
			return nil, false, taken(o.Digest)
		case old != nil:
			return nil, true, nil
		}
	}
	list.Packs = append(slices.DeleteFunc(list.Packs, func(o publishedPack) bool { return o == p }), p)
	slices.SortFunc(list.Packs, func(a, b publishedPack) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), pack.CompareVersions(b.Version, a.Version))
	})
	index, err = json.MarshalIndent(list, "", "  ")
	return append(index, '\n'), false, err
}

func readIndex(dir string) (list packIndex, err error) {
	name := filepath.Join(dir, packIndexName)
	text, err := safefile.ReadPlain(name, 16<<20)
	if err != nil || text == nil {
		return list, err
	}
	if err := strictjson.Decode(text, &list); err != nil {
		return list, bailey.Invalid.Wrap(err, name+" is not an index of packs",
			"move it away; publishing creates a new one, which lists packs published from then on")
	}
	return list, nil
}

// scaffolds contains a valid, working manifest for each kind.
//
//go:embed scaffold/*.yaml
var scaffolds embed.FS

// scaffoldKinds lists the kinds, the least powerful first.
var scaffoldKinds = []string{"read-only", "change-controlled", "operator"}

func (a *App) packScaffold() *cobra.Command {
	var dir, kind string
	cmd := &cobra.Command{
		Use: "scaffold NAME", Short: "Create the files of a new pack",
		Long: `Write a valid pack as a starting point: pack.yaml and README.md. Nothing is overwritten. Kinds:

  read-only          it reads
  change-controlled  it changes a file, and the approver sees the new contents
  operator           it destroys data irreversibly: only a rule that names it allows it`,
		Example: "  bailey pack scaffold demo\n  bailey pack scaffold --kind change-controlled --dir packs/demo demo",
		Args:    OneArg("the pack's name, for example: bailey pack scaffold demo"),
		RunE: func(_ *cobra.Command, args []string) error {
			if dir == "" {
				dir = args[0]
			}
			files, err := scaffoldPack(args[0], kind)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return bailey.Unavailable.Wrap(err, dir+" cannot be created", "give another one to --dir")
			}
			names := []string{filepath.Join(dir, pack.ManifestName), filepath.Join(dir, "README.md")}
			for i, name := range names {
				if err := writeNewFile(name, files[i], 0o644); err != nil {
					if i > 0 {
						err = errors.Join(err, os.Remove(names[0]))
					}
					return err
				}
			}
			return a.PrintLine(map[string]any{"ok": true, "name": args[0], "kind": kind, "dir": dir, "files": names},
				"%s and %s: edit them, then\n  bailey pack validate %s\n  bailey pack install --dev %s\n", names[0], names[1],
				dir, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the `directory` (default NAME)")
	cmd.Flags().StringVar(&kind, "kind", scaffoldKinds[0], "one of "+strings.Join(scaffoldKinds, ", "))
	return cmd
}

// scaffoldPack returns a manifest and a README. It parses the manifest, so that each file that it returns is valid.
func scaffoldPack(name, kind string) ([]string, error) {
	text, err := scaffolds.ReadFile("scaffold/" + kind + ".yaml")
	if err != nil {
		return nil, bailey.Invalid.Errorf("kinds are "+strings.Join(scaffoldKinds, ", "),
			"unknown kind %q", kind)
	}
	text = bytes.ReplaceAll(text, []byte("NAME"), []byte(name))
	if _, err := pack.Parse(pack.ManifestName, text); err != nil {
		return nil, bailey.Invalid.Errorf("use lower case letters, digits and -, beginning with a letter",
			"%q is not a valid name of a pack", name)
	}
	return []string{string(text),
		"# " + name + "\n\nDescribe its purpose, its requirements on the machine, and its maintainer.\n"}, nil
}
