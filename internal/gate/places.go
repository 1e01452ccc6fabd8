package gate

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"bailey"
	"bailey/pack"
)

// openInput opens a path input, and the git repository around it if the manifest says so.
func (c *callState) openInput(in pack.PathInput) error {
	given, present := c.input[in.Name]
	if !present {
		return nil // Check has already refused a missing required input
	}
	value, ok := given.(string)
	if !ok { // a path that was not opened must not reach the tool
		return bailey.Invalid.Errorf("pass one path as text", "input /%s is not a path", in.Name)
	}
	place, err := c.Places.Open(c.call, in, value)
	if err != nil {
		return err
	}
	places := []bailey.Place{place}
	if in.Repository {
		if places, err = c.Places.Repository(c.call, in, place); err != nil {
			return err
		}
	}
	c.places = append(c.places, places...)
	return nil
}

// usePerson takes over the person's settings of git, if the manifest says so, and the key if they want signatures.
func (c *callState) usePerson(ctx context.Context) error {
	if !c.manifest.NeedsPerson() {
		return nil
	}
	var repo []bailey.Place
	for _, p := range c.places {
		if name := c.manifest.RepositoryInput(); p.Input == name || p.Input == bailey.CommonInput(name) {
			repo = append(repo, p)
		}
	}
	c.person = c.Places.GitPerson(repo)
	if err := c.planSigning(ctx); err != nil {
		return err
	}
	c.argv = c.personArgs(c.argv)
	return nil
}

// openWorkspace opens the workspace if the tool runs there, and checks that the places contain the files that the manifest
// requires.
func (c *callState) openWorkspace() error {
	if c.manifest.Workspace() {
		place, err := c.Places.Open(c.call, pack.PathInput{Dir: true, Write: c.manifest.Uncaged()}, "")
		if err != nil {
			return err
		}
		c.places = append(c.places, place)
	}
	for _, r := range c.manifest.Requires() {
		has, err := c.hasRequired(r)
		if err != nil {
			return err
		}
		if !has {
			return c.manifest.Missing(r)
		}
	}
	return nil
}

func (c *callState) hasRequired(r pack.Required) (bool, error) {
	for _, p := range c.places {
		if p.Input == r.Input {
			if r.Path == "" {
				return true, nil
			}
			return c.Places.Has(p, r.Path)
		}
	}
	return false, nil
}

// resolveRemote fills in the address of the remote of a git repository, if the manifest says so. It reads the files of
// the repository through the descriptor of its directory.
func (c *callState) resolveRemote(input map[string]any) (map[string]any, error) {
	name := c.manifest.ResolvesRemote()
	if name == "" {
		return input, nil
	}
	i := slices.IndexFunc(c.places, func(p bailey.Place) bool { return p.Input == name })
	if i < 0 {
		return nil, bailey.Invalid.Errorf("name the directory of the repository", "input /%s is missing", name)
	}
	return c.manifest.ResolveRemote(input, func(below string) ([]byte, bool, error) {
		p, below := c.placeOf(c.places[i], below)
		return c.Places.Load(p, below, maxLoaded)
	})
}

// placeOf returns the place that contains a file below the top of a repository, and the name of the file below that
// place.
func (c *callState) placeOf(top bailey.Place, below string) (bailey.Place, string) {
	if top.Repository == nil {
		return top, below
	}
	path := top.Repository.Below("/" + below)
	for _, p := range c.places {
		if p.Input != top.Input && p.Input != bailey.CommonInput(top.Input) {
			continue
		}
		if name, ok := strings.CutPrefix(path, p.Path+"/"); ok {
			return p, name
		}
	}
	return top, below
}

// maxLoaded limits a file that is read to resolve a remote, in bytes.
const maxLoaded = 1 << 20

// stillResolved returns Conflict if the remote has another address now. A person may have been asked meanwhile.
func (c *callState) stillResolved() error {
	now, err := c.resolveRemote(c.input)
	if err == nil && plainJSON(now) == plainJSON(c.input) {
		return nil
	}
	return bailey.Conflict.Wrap(err, "the configuration of the repository changed while this call was decided",
		"call again")
}

// openStdin returns the standard input of the tool, or nil. If the file has a snapshot from the time of the question, stdin
// returns the snapshot.
func (c *callState) openStdin() (r io.Reader, shut func(), err error) {
	none := func() {}
	if text, ok := c.manifest.Stdin(c.input); ok {
		return strings.NewReader(text), none, nil
	}
	for _, p := range c.places {
		switch {
		case !c.manifest.Reads(p):
		case p.Frozen != nil:
			return io.NewSectionReader(p.Frozen.File, 0, p.Frozen.Size), none, nil
		default:
			f, err := c.Places.Read(p)
			if err != nil {
				return nil, nil, err
			}
			return f, func() { f.Close() }, nil
		}
	}
	return nil, none, nil
}

// validateOutput checks the output, as the caller gets it, against the manifest. The text is kept even if the check fails.
func (c *callState) validateOutput(context.Context) error {
	switch {
	case c.manifest.OutputSchema() == nil, c.call.Whole: // a caller with the raw output gets no structured one
	case c.stdout.cut:
		return c.manifest.Cut()
	default:
		var text []byte
		if body := c.stdout.receiptBody(); body != nil {
			text = body.Bytes
		}
		raw, err := c.manifest.Structure(text)
		if err != nil {
			return err
		}
		// JSON escapes in the text may have hidden a secret. They are decoded now.
		if again := c.Redactor.Again(c.call.Session.ID, raw); !bytes.Equal(again, raw) {
			if raw, err = c.manifest.Structure(again); err != nil {
				return err
			}
		}
		c.structured = raw
	}
	return nil
}

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
