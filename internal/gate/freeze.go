package gate

import (
	"context"
	"slices"
	"strings"

	"bailey"
)

// freezeFiles replaces each file that the tool only reads with a snapshot, and plans the run again with the snapshots. A
// directory cannot be replaced, nor can a file inside a directory of the call, because the tool could reach the
// original through the directory.
func (c *callState) freezeFiles(ctx context.Context) error {
	c.files = nil
	held := map[string]*bailey.Frozen{}
	for i := range c.places {
		p := &c.places[i]
		if c.isUnfreezable(*p) {
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
	return c.planRun(ctx)
}

// isUnfreezable reports whether a snapshot cannot stand in for a place: the place is writable under any input, or lies inside
// another place. A file that is standard input is never loose, because the gate passes its content and the tool has no
// other access to it.
func (c *callState) isUnfreezable(p bailey.Place) bool {
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

// contentsBinding tells whether the files and directories of the call are guaranteed to stay unchanged between the question
// and the run.
func (c *callState) contentsBinding() string {
	ch, workflow := c.run.(*workflowRun)
	switch {
	// If no rule asks about a step, it reads the files as they are at its turn.
	case workflow && slices.ContainsFunc(ch.steps, func(l workflowStep) bool { return l.Late || l.places }):
		return bailey.NotBound
	case len(c.places) == 0:
		return bailey.NoContents
	case len(c.files) == len(c.places) || c.manifest.Covers():
		return bailey.Bound
	}
	return bailey.NotBound
}
