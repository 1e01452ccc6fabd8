package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
	"bailey/internal/wire"
)

// hooksEvent is the ledger's kind of entry for a hooks.json that took effect; its data is an [appliedHooks].
const hooksEvent = "hooks.apply"

// hooksName is the file in the home that operators edit, keptHooks the directory in which each that was applied stays, by
// its digest.
const hooksName, keptHooks = "hooks.json", "applied-hooks"

// appliedHooks is the hooks.json that an operator applied last. The zero one has no hooks.
type appliedHooks struct {
	Digest   string        `json:"digest,omitempty"`   // SHA-256 of the file, hex
	UserHome string        `json:"userHome,omitempty"` // what ~/ stands for, whoever starts the gateway
	Hooks    int           `json:"hooks"`              // how many
	At       time.Time     `json:"at,omitzero"`
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

func (a appliedHooks) id() string { return a.Digest + " " + a.UserHome }

// hookEdition is a hooks.json as it was loaded.
type hookEdition struct {
	text   []byte
	config hook.Config
	id     string // of the file and what ~/ stands for in it; "": there is none
	fault  error  // why no call goes on
}

// hookbook is the hooks.json in force. The file is read when an operator applies it, never because it changed; what was
// applied is kept in the home by its digest, which the ledger has.
type hookbook struct {
	home     wire.Home
	userHome string
	note     func(ctx context.Context, kind string, data any) error
	tools    func() []string // what a matcher may name; nil: nobody looks
	log      *slog.Logger

	now atomic.Pointer[hookEdition]

	mu      sync.Mutex // one apply at a time; guards applied
	applied appliedHooks
}

// openHookbook puts to use what was applied last. Where that is not there any more the gateway starts and no call goes on,
// for only so can another be applied. A file that cannot be read is told of at once: later nobody looks.
func openHookbook(b *hookbook, last appliedHooks) (*hookbook, error) {
	if _, _, err := b.file(); err != nil {
		return nil, err
	}
	b.applied = last
	e, err := b.last()
	if err != nil {
		e.fault = &bailey.Error{Kind: bailey.Unavailable, Message: noHooks, Err: err, Hint: "bailey hooks reload shows " + hooksName + " and applies it"}
		b.log.Error("the hooks cannot be used", "why", err)
	}
	b.now.Store(&e)
	return b, nil
}

const noHooks = "the hooks that were applied last cannot be used, so no call goes on"

// standInHooks is what a gateway of this home would put to use.
func standInHooks(home wire.Home) (*hookbook, error) {
	var known lore
	if ledger.Begun(home.Ledger()) {
		var err error
		if known, err = recalled(home); err != nil {
			return nil, err
		}
	}
	userHome, _ := os.UserHomeDir() // "": nothing begins with ~/
	return openHookbook(&hookbook{home: home, userHome: userHome, log: slog.New(slog.DiscardHandler)}, known.Hooks)
}

// last loads what was applied last.
func (b *hookbook) last() (e hookEdition, err error) {
	if b.applied.Digest == "" {
		return e, nil
	}
	dir := filepath.Join(string(b.home), keptHooks)
	e.text, err = readFrame(filepath.Join(dir, b.applied.Digest+".json"))
	switch {
	case err != nil:
		return e, err
	case e.text == nil:
		return e, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no hooks %.12s are kept in %s", b.applied.Digest, dir)}
	case digestOf(string(e.text)) != b.applied.Digest:
		return e, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the hooks kept as %.12s are others", b.applied.Digest), Hint: "somebody changed " + dir}
	}
	e.id = b.applied.id()
	e.config, err = hook.ParseConfig(e.text, b.applied.UserHome)
	return e, err
}

// file is hooks.json as it is now; without one there are no hooks.
func (b *hookbook) file() (text []byte, c hook.Config, err error) {
	name := b.path()
	if text, err = readFrame(name); err != nil || text == nil {
		return text, c, err
	}
	if c, err = hook.ParseConfig(text, b.userHome); err != nil {
		err = &bailey.Error{Kind: bailey.Invalid, Message: name + " cannot be used", Err: err, Hint: "mend it, or take it away; bailey hooks reload then applies it"}
	}
	return text, c, err
}

func (b *hookbook) path() string { return filepath.Join(string(b.home), hooksName) }

// readFrame reads a file of a frame's size; nil is one that is not there.
func readFrame(name string) ([]byte, error) { return readPlain(name, hook.MaxFrame) }

// readPlain reads a file of at most so many bytes; nil is one that is not there. It follows no link and waits for no pipe.
func readPlain(name string, most int64) ([]byte, error) {
	text, err := gateway.ReadPlain(name, most)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: name + " cannot be read", Err: err, Hint: fmt.Sprintf("it is a regular file of yours of at most %d bytes", most)}
	}
	return text, nil
}

// Config are the hooks in force.
func (b *hookbook) Config() hook.Config { return b.now.Load().config }

// Edition names what is asked: "" where nothing is, or no call goes on.
func (b *hookbook) Edition() string {
	e := b.now.Load()
	if e.fault != nil || len(e.config.Hooks) == 0 {
		return ""
	}
	return e.id
}

// Fault says why no call may go on, nil when they may.
func (b *hookbook) Fault() error { return b.now.Load().fault }

// Applied is what an operator applied last.
func (b *hookbook) Applied() appliedHooks {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.applied
}

// drift says how the file differs from what was applied; "" when it does not.
func (b *hookbook) drift() string {
	text, _, err := b.file()
	switch {
	case err != nil:
		return "what was applied stays in use, but " + err.Error()
	case fileDigest(text) == b.Applied().Digest:
		return ""
	case text == nil:
		return hooksName + " is gone, and what was applied stays in use"
	}
	return hooksName + " is not what was applied, and is not used"
}

func fileDigest(text []byte) string {
	if text == nil {
		return ""
	}
	return digestOf(string(text))
}
