package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/pack"
)

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
	var yes bool
	var dir, key string
	cmd := &cobra.Command{
		Use: "publish BUNDLE --to DIR", Short: "Put a signed bundle where others get it",
		Long: `Put a bundle, signed by a trusted key or by the one in --key FILE, into DIR, which any web server can serve, and enter it
in DIR/index.json. A version that is there stays what it is: another bundle of the same version is refused.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack publish demo-1.0.0.baileypack --to /srv/packs",
		Args:    OneArg("a bundle, as in: bailey pack publish demo-1.0.0.baileypack --to /srv/packs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			return a.publish(cmd.Context(), args[0], dir, key, yes)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.StringVar(&dir, "to", "", "the `directory`")
	f.StringVar(&key, "key", "", "a public key's `file`, instead of those that are trusted")
	cmd.MarkFlagRequired("to")
	return cmd
}

func (a *App) publish(ctx context.Context, bundle, dir, key string, yes bool) error {
	op, err := a.Operator("pack publish", yes)
	if err != nil {
		return err
	}
	c, err := a.Client()
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
		return &bailey.Error{Kind: bailey.Unavailable, Message: dir + " cannot be published to", Err: err, Hint: "it is a directory that you may write, in which nobody else publishes just now"}
	}
	defer unlock()
	index, there, err := entered(dir, entry, data)
	if err != nil {
		return err
	}
	if !there {
		fmt.Fprintf(a.Dialog(), "%s %s, signed by %s, digest %s\n", v.Name, v.Version, v.Key, v.Digest)
		if !yes {
			if err := a.Confirm(ctx, "Publish this in "+terminal.CutLine(dir)+"?"); err != nil {
				return err
			}
		}
		noted := map[string]any{"name": v.Name, "version": v.Version, "digest": v.Digest, "key": v.Key, "dir": dir}
		var in packstore.Installed
		if err := Command(ctx, c, op, packstore.PackPublishEvent, noted, &in); err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(dir, entry.File), data); err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(dir, packIndexName), index); err != nil {
			return err
		}
	}
	switch {
	case a.JSON:
		return a.Print(struct {
			OK      bool   `json:"ok"`
			Changed bool   `json:"changed"`
			Dir     string `json:"dir"`
			publishedPack
		}{true, !there, dir, entry})
	case there:
		fmt.Fprintln(a.Stdout, "nothing changes: it is published")
	default:
		fmt.Fprintf(a.Stdout, "published: %s\n", filepath.Join(dir, entry.File))
	}
	return nil
}

// entered returns the index with the bundle added, and whether it already contains it. If another bundle of this
// version exists, it returns an error, even if the index does not list that bundle.
func entered(dir string, p publishedPack, data []byte) (index []byte, there bool, err error) {
	taken := func(digest string) error {
		return &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("%s %s is published as %.12s, and this is %.12s", p.Name, p.Version, digest, p.Digest),
			Hint: "give it a new version: who installed that one relies on it"}
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
	if err := apitype.Strictly(text, &list); err != nil {
		return list, &bailey.Error{Kind: bailey.Invalid, Message: name + " is no index of packs", Err: err, Hint: "move it away; publishing makes a new one, of what is published from then on"}
	}
	return list, nil
}
