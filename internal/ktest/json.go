package ktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// OneJSON returns an error unless out is one JSON document.
func OneJSON(out []byte) error {
	d := json.NewDecoder(bytes.NewReader(out))
	var one any
	if err := d.Decode(&one); err != nil {
		return fmt.Errorf("no JSON: %w: %q", err, out)
	}
	if err := d.Decode(&one); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more than one JSON document: %q", out)
	}
	return nil
}

// RefusalJSON returns an error unless out is the document that each command prints with --json if it fails.
func RefusalJSON(out []byte) error {
	if err := OneJSON(out); err != nil {
		return err
	}
	var r struct {
		OK     *bool
		Error  string
		Reason string
	}
	if err := json.Unmarshal(out, &r); err != nil || r.OK == nil || *r.OK || r.Error == "" || r.Reason == "" {
		return fmt.Errorf("not {ok:false, error, reason, hint}: %s", out)
	}
	return nil
}
