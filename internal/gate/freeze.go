package gate

import (
	"context"
	"slices"
	"strings"

	"bailey"
)

// freeze has the tool get each file that it only reads as the file is now, and plans the run anew with that. A directory
// cannot be kept so, nor a file that lies in one of the call's directories: the tool could find it on another way.
func (c *course) freeze(ctx context.Context) error {
	c.files = nil
	held := map[string]*bailey.Frozen{}
	for i := range c.places {
		p := &c.places[i]
		if c.loose(*p) {
			continue
		}
		f, again := held[p.Path]
		if !again {
			frozen, release, err := c.Places.Freeze(*p)
			if err != nil {
				return err
			}
			if frozen == nil {
				continue
			}
			c.thaw = append(c.thaw, release)
			held[p.Path], f = frozen, frozen
		}
		p.Frozen = f
		c.files = append(c.files, bailey.FrozenFile{Input: p.Input, Size: f.Size, SHA256: f.SHA256})
	}
	if len(c.files) == 0 {
		return nil
	}
	return c.plan(ctx)
}

// loose reports whether a place is written, under whatever input, or lies in another. What the tool reads as stdin it has from
// us and on no other way.
func (c *course) loose(p bailey.Place) bool {
	if c.manifest.Reads(p) {
		return false
	}
	for _, o := range c.places {
		if o.Path == p.Path && o.Write || strings.HasPrefix(p.Path, strings.TrimSuffix(o.Path, "/")+"/") {
			return true
		}
	}
	return false
}

// contents says of the files and directories that the call names whether they are what they were when it was asked about.
func (c *course) contents() string {
	ch, workflow := c.run.(*chain)
	switch {
	case workflow && slices.ContainsFunc(ch.steps, func(l link) bool { return l.Late || l.places }): // a step that no rule asks about reads what is there by then
		return bailey.NotBound
	case len(c.places) == 0:
		return bailey.NoContents
	case len(c.files) == len(c.places) || c.manifest.Covers():
		return bailey.Bound
	}
	return bailey.NotBound
}
