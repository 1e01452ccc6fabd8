package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"bailey/internal/wire"

	"bailey"
)

// packOnboardEvent is the operator command, and the kind of the ledger entry, for a tool whose help is read.
const packOnboardEvent = "pack.onboard"

// onboardEvent is the data of the ledger entry. It is written before the tool starts; the cage is that of the first
// probe.
type onboardEvent struct {
	Tool     string   `json:"tool"`
	Probes   int      `json:"probes"` // maximum
	Depth    int      `json:"depth"`
	ReadOnly []string `json:"ro,omitempty"`
	bailey.Cage
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// onboardQuery is the event as it is sent to the gateway, which keeps the text of the plan.
type onboardQuery struct {
	onboardEvent
	Plan string `json:"plan"`
}

// packOnboard is the operator command: it writes the ledger entry before the tool runs.
func (s *stack) packOnboard(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	var asked onboardQuery
	b, err := json.Marshal(q.Args["onboard"])
	if err == nil {
		err = json.Unmarshal(b, &asked)
	}
	if err != nil || asked.Tool == "" || asked.PlanDigest == "" {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "an onboarding names a tool and a plan", Err: err}
	}
	asked.Operator, asked.Person = q.Operator, from.Principal.Person
	cage := asked.Cage
	if cage.Plan = asked.Plan; s.redaction.Value(from.Session.ID, cage.Plan) != any(cage.Plan) {
		cage.Plan = ""
	}
	event, err := s.hidden(from.Session.ID, asked.onboardEvent)
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.ledger.NoteCaged(ctx, packOnboardEvent, event, &cage)
}

// vacant returns an error if dir exists and is not an empty directory.
func vacant(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return &bailey.Error{Kind: bailey.Invalid, Message: dir + " is a symbolic link", Hint: "name the directory itself with --dir"}
	}
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &bailey.Error{Kind: bailey.Invalid, Message: dir + " is no directory that a pack can be written to", Err: err, Hint: "name another one with --dir"}
	case len(list) > 0:
		return &bailey.Error{Kind: bailey.Conflict, Message: dir + " is not empty, and nothing in it is overwritten", Hint: "name another directory with --dir"}
	}
	return nil
}

// settle creates the directory with all its files atomically. If it fails, nothing remains.
func settle(dir string, files map[string][]byte) (err error) {
	defer func() {
		if err != nil {
			err = &bailey.Error{Kind: bailey.Unavailable, Message: "the pack could not be written to " + dir, Err: err, Hint: "name another directory with --dir"}
		}
	}()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".onboard-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(made, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return err
	}
	// succeeds only if empty
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(made, dir)
}
