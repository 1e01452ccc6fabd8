package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"bailey"
	"bailey/hook"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
)

// hookEdition is a loaded hooks.json.
type hookEdition struct {
	text   []byte
	config hook.Config
	id     string // identifies the file and the value of ~/ in it; "" without a file
	fault  error  // why every call is denied
}

// hookStore is the hooks.json in use. The file is read when an operator applies it, and never because it changed. The
// applied file is stored in the home by its digest, which the ledger records.
type hookStore struct {
	home     localapi.Home
	userHome string
	note     func(ctx context.Context, kind string, data any) error
	tools    func() []string // names that a matcher may use; nil disables the check
	log      *slog.Logger

	now atomic.Pointer[hookEdition]

	mu      sync.Mutex // serializes apply; guards applied
	applied apitype.AppliedHooks
}

// openHookStore loads the hooks that were applied last. If they cannot be loaded, the gateway starts but denies every
// call, because only a running gateway can apply others. An unreadable hooks.json is an error here, because later it
// could go unnoticed.
func openHookStore(b *hookStore, last apitype.AppliedHooks) (*hookStore, error) {
	if _, _, err := b.file(); err != nil {
		return nil, err
	}
	b.applied = last
	e, err := b.last()
	if err != nil {
		e.fault = &bailey.Error{Kind: bailey.Unavailable, Message: noHooks, Err: err, Hint: "bailey hooks reload shows " + apitype.HooksName + " and applies it"}
		b.log.Error("the hooks cannot be used", "why", err)
	}
	b.now.Store(&e)
	return b, nil
}

const noHooks = "the hooks that were applied last cannot be used, so no call goes on"

// StandInHooks returns the hooks that a gateway of this home would use.
func StandInHooks(home localapi.Home) (*hookStore, error) {
	var known State
	if ledger.Begun(home.Ledger()) {
		var err error
		if known, err = Replayed(home); err != nil {
			return nil, err
		}
	}
	userHome, _ := os.UserHomeDir() // "" if unknown: no path may begin with ~/
	return openHookStore(&hookStore{home: home, userHome: userHome, log: slog.New(slog.DiscardHandler)}, known.Hooks)
}

// last loads the hooks that were applied last.
func (b *hookStore) last() (e hookEdition, err error) {
	if b.applied.Digest == "" {
		return e, nil
	}
	dir := filepath.Join(string(b.home), apitype.KeptHooks)
	e.text, err = safefile.ReadPlain(filepath.Join(dir, b.applied.Digest+".json"), hook.MaxFrame)
	switch {
	case err != nil:
		return e, err
	case e.text == nil:
		return e, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no hooks %.12s are kept in %s", b.applied.Digest, dir)}
	case apitype.DigestOf(string(e.text)) != b.applied.Digest:
		return e, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the hooks kept as %.12s are others", b.applied.Digest), Hint: "somebody changed " + dir}
	}
	e.id = b.applied.ID()
	e.config, err = hook.ParseConfig(e.text, b.applied.UserHome)
	return e, err
}

// file reads the current hooks.json. If it does not exist, there are no hooks.
func (b *hookStore) file() (text []byte, c hook.Config, err error) {
	name := b.path()
	if text, err = safefile.ReadPlain(name, hook.MaxFrame); err != nil || text == nil {
		return text, c, err
	}
	if c, err = hook.ParseConfig(text, b.userHome); err != nil {
		err = &bailey.Error{Kind: bailey.Invalid, Message: name + " cannot be used", Err: err, Hint: "mend it, or take it away; bailey hooks reload then applies it"}
	}
	return text, c, err
}

func (b *hookStore) path() string { return filepath.Join(string(b.home), apitype.HooksName) }

// Config returns the hooks in use.
func (b *hookStore) Config() hook.Config { return b.now.Load().config }

// Edition identifies the hooks in use. It is "" without hooks, or if every call is denied.
func (b *hookStore) Edition() string {
	e := b.now.Load()
	if e.fault != nil || len(e.config.Hooks) == 0 {
		return ""
	}
	return e.id
}

// Fault returns the reason if every call is denied, otherwise nil.
func (b *hookStore) Fault() error { return b.now.Load().fault }

// Applied returns the hooks.json that an operator applied last.
func (b *hookStore) Applied() apitype.AppliedHooks {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.applied
}

// drift describes how the file differs from the applied one, or returns "" if it does not differ.
func (b *hookStore) drift() string {
	text, _, err := b.file()
	switch {
	case err != nil:
		return "what was applied stays in use, but " + err.Error()
	case apitype.FileDigest(text) == b.Applied().Digest:
		return ""
	case text == nil:
		return apitype.HooksName + " is gone, and what was applied stays in use"
	}
	return apitype.HooksName + " is not what was applied, and is not used"
}
