package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/pack"
)

// rows returns the built-in packs and the installed packs. Each installed pack is verified now.
func (b *packStore) rows() (rows apitype.PackRows, all []*pack.Pack, err error) {
	c, err := packstore.BuiltIn()
	if err != nil {
		return rows, nil, err
	}
	for _, p := range c.Packs() {
		rows.Packs, all = append(rows.Packs, packstore.NewRow(p, packstore.BuiltInPack, packstore.Installed{})), append(all, p)
	}
	known := b.now()
	loaded, found := packstore.LoadInstalled(b.home, known)
	for _, p := range loaded {
		rows.Packs, all = append(rows.Packs, packstore.NewRow(p, sourceOf(known.Installed[p.Name]), known.Installed[p.Name])), append(all, p)
	}
	for _, f := range found {
		if in := known.Installed[f.Pack]; f.Pack != "" {
			rows.Packs, all = append(rows.Packs, packstore.Row{Name: in.Name, Version: in.Version, Source: sourceOf(in), Digest: in.Digest, Key: in.Key, Finding: f.Text}), append(all, &pack.Pack{Name: in.Name})
		}
	}
	rows.Findings = append([]packstore.Finding{}, found...)
	return rows, all, nil
}

func sourceOf(in packstore.Installed) string {
	if in.Dev {
		return packstore.DevPack
	}
	return packstore.SignedPack
}

// list is a query: it returns all packs, or those that contain all the words.
func (b *packStore) list(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	rows, _, err := b.rows()
	words := strings.Fields(text(q.Args, "words"))
	rows.Packs = slices.DeleteFunc(rows.Packs, func(p packstore.Row) bool { return !p.Says(words) })
	return rows, err
}

func (b *packStore) show(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	rows, all, err := b.rows()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(p *pack.Pack) bool { return p.Name == text(q.Args, "name") })
	if i < 0 {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("there is no pack %q", text(q.Args, "name")), Hint: "bailey pack list"}
	}
	out := apitype.PackShown{Row: rows.Packs[i], Tools: []apitype.Capability{}}
	for _, m := range all[i].Capabilities {
		out.Tools = append(out.Tools, newCapability(m, true))
	}
	return out, nil
}
