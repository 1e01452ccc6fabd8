package gate

import (
	"bytes"
	"context"
	"io"
	"strings"

	"bailey/pack"
)

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
