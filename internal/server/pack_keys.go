package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/safefile"
	"bailey/pack"
)

// keys is a query: it returns the trusted keys in use.
func (b *packStore) keys(context.Context, localapi.Query, bailey.Call) (any, error) {
	keys, _ := packstore.Keys(b.home, b.now())
	list := []packstore.TrustedKey{}
	for _, k := range keys {
		list = append(list, packstore.TrustedKey{Name: k.Name, Key: k.Text})
	}
	return list, nil
}

// trust is the operator command. If another key is trusted under the same name, that key must be untrusted first.
func (b *packStore) trust(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	k, err := pack.ParseKey(text(q.Args, "key"))
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := packstore.TrustedKey{Name: k.Name, Key: k.Text, At: time.Now().UTC().Truncate(time.Second), Operator: q.Operator, Person: from.Principal.Person}
	if was, ok := b.known.Keys[k.Name]; ok && was.Key != k.Text {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("another key is trusted as %s", k.Name), Hint: "bailey pack untrust " + k.Name + " first, if its author has another key now"}
	}
	out := apitype.KeyChanged{OK: true, Name: k.Name, Key: k.Text}
	if keys, _ := packstore.Keys(b.home, b.known); slices.ContainsFunc(keys, func(o pack.Key) bool { return o.Text == k.Text }) {
		return out, nil
	}
	root, err := safefile.OpenDir(string(b.home), packstore.KeysDirName)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "the key cannot be kept", Err: err, Hint: "look at the home's mode and the disk's space"}
	}
	defer root.Close()
	if err := safefile.Replace(root, k.Name+".pub", []byte(k.Text+"\n"), 0o644, func() error { return nil }); err != nil {
		return nil, err
	}
	if err := b.turn(ctx, packstore.PackTrustEvent, now, func(l *packstore.State) { l.Trust(now) }); err != nil {
		return nil, errors.Join(err, root.Remove(k.Name+".pub"))
	}
	out.Changed = true
	return out, nil
}

// untrust is the operator command. Packs that the key signed are no longer loaded.
func (b *packStore) untrust(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.known.Keys[text(q.Args, "name")]
	if !ok {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no key %q is trusted", text(q.Args, "name")), Hint: "bailey pack list shows who signed what"}
	}
	out := apitype.KeyChanged{OK: true, Name: k.Name, Key: k.Key, Packs: b.signedWith(k)}
	k.At, k.Operator, k.Person = time.Now().UTC().Truncate(time.Second), q.Operator, from.Principal.Person
	if err := b.turn(ctx, packstore.PackUntrustEvent, k, func(l *packstore.State) { l.Untrust(k) }); err != nil {
		return nil, err
	}
	if err := os.Remove(packstore.KeyFile(b.home, k.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("the file of a key stays", "err", err)
	}
	out.Changed = true
	return out, nil
}

func (b *packStore) signedWith(k packstore.TrustedKey) (names []string) {
	key, err := pack.ParseKey(k.Key)
	for _, name := range slices.Sorted(maps.Keys(b.known.Installed)) {
		if err == nil && b.known.Installed[name].Key == key.ID() {
			names = append(names, name)
		}
	}
	return names
}
