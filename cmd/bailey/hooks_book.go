package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
)

// hooksEvent is the ledger's kind of entry for a hooks.json that took effect; its data is an [appliedHooks].
const hooksEvent = "hooks.apply"

// hooksName is the file in the home that operators edit, keptHooks the directory in which each that was applied stays, by
// its digest.
const hooksName, keptHooks = "hooks.json", "applied-hooks"

// appliedHooks is the hooks.json that an operator applied last. The zero one has no hooks.
type appliedHooks struct {
	Digest   string           `json:"digest,omitempty"`   // SHA-256 of the file, hex
	UserHome string           `json:"userHome,omitempty"` // what ~/ stands for, whoever starts the gateway
	Hooks    int              `json:"hooks"`              // how many
	At       time.Time        `json:"at,omitzero"`
	Operator gateway.Operator `json:"operator,omitempty"`
	Person   string           `json:"person,omitempty"`
}

// hookEdition is a hooks.json as it was loaded.
type hookEdition struct {
	text   []byte
	config hook.Config
	fault  error // why no call goes on
}

// hookbook is the hooks.json in force. The file is read when an operator applies it, never because it changed; what was
// applied is kept in the home by its digest, which the ledger has.
type hookbook struct {
	home     gateway.Home
	userHome string
	note     func(ctx context.Context, kind string, data any) error
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
func standInHooks(home gateway.Home) (*hookbook, error) {
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
	unread := func(why error) error {
		return &bailey.Error{Kind: bailey.Invalid, Message: name + " cannot be read", Err: why, Hint: fmt.Sprintf("it is a regular file of yours of at most %d bytes", most)}
	}
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, unread(err)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|noWait|noFollow, 0)
	if err != nil {
		return nil, unread(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = errors.New("it is too long")
	}
	if err != nil {
		return nil, unread(err)
	}
	return text, nil // not nil: an empty file is not a missing one
}

// Config are the hooks in force.
func (b *hookbook) Config() hook.Config { return b.now.Load().config }

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

// hookProposal is a hooks.json that would be applied, beside the one in force.
type hookProposal struct {
	OK      bool         `json:"ok"`
	Changed bool         `json:"changed"` // it was applied
	File    string       `json:"file"`
	Digest  string       `json:"digest,omitempty"` // "": there is no file
	Hooks   int          `json:"hooks"`
	Differs bool         `json:"differs"` // from what is in force
	Text    string       `json:"text,omitempty"`
	Loud    []string     `json:"warnings,omitempty"` // what a person should not overlook in it
	Applied appliedHooks `json:"applied"`
}

// propose reads the file and holds it against what is in force.
func (b *hookbook) propose() (p hookProposal, e hookEdition, err error) {
	if e.text, e.config, err = b.file(); err != nil {
		return p, e, err
	}
	now := b.now.Load()
	p = hookProposal{OK: true, File: b.path(), Digest: fileDigest(e.text), Hooks: len(e.config.Hooks), Applied: b.applied}
	p.Differs = now.fault != nil || p.Digest != b.applied.Digest || p.Digest != "" && b.userHome != b.applied.UserHome
	p.Text = difference(string(now.text), string(e.text))
	for _, h := range e.config.Hooks {
		p.Loud = append(p.Loud, loud(h)...)
	}
	return p, e, nil
}

// loud is what a person should not overlook in a hook.
func loud(h hook.Hook) (list []string) {
	say := func(words string, args ...any) {
		list = append(list, fmt.Sprintf("line %d: %s ", h.Line, h.Argv[0])+fmt.Sprintf(words, args...))
	}
	if h.Unsandboxed {
		say("runs without a cage, with all rights of yours")
	}
	for _, path := range h.Write {
		say("may write %s", path)
	}
	for _, to := range h.Network {
		say("may reach %s with what it is asked about", to)
	}
	return list
}

// compare is a look: what a reload would change.
func (b *hookbook) compare(context.Context, gateway.Query, bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, _, err := b.propose()
	return p, err
}

// apply is the act. What is applied has to be what was shown, and what it was held against still in force.
func (b *hookbook) apply(ctx context.Context, q gateway.Query, from bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, e, err := b.propose()
	if err != nil {
		return nil, err
	}
	if p.Digest != text(q.Args, "digest") || b.applied.Digest != text(q.Args, "base") {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: hooksName + " changed meanwhile", Hint: "bailey hooks reload shows it anew"}
	}
	if !p.Differs {
		return p, nil
	}
	now := appliedHooks{Digest: p.Digest, UserHome: b.userHome, Hooks: p.Hooks, At: time.Now().UTC().Truncate(time.Second), Operator: q.Operator, Person: from.Principal.Person}
	if p.Digest != "" {
		if err := b.keep(now.Digest, e.text); err != nil {
			return nil, err
		}
	}
	if err := b.note(ctx, hooksEvent, now); err != nil {
		return nil, err
	}
	b.applied = now
	b.now.Store(&e)
	p.Changed, p.Applied = true, now
	return p, nil
}

// keep stores the text by its digest, durably, before the ledger names it.
func (b *hookbook) keep(digest string, text []byte) error {
	root, err := b.home.Dir(keptHooks)
	if err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the hooks cannot be kept", Err: err, Hint: "look at the home's mode and the disk's space"}
	}
	defer root.Close()
	return gateway.Replace(root, digest+".json", text, 0o600, func() error { return nil })
}
