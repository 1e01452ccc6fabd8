package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/bits"
	"strings"
	"time"
	"unicode/utf8"

	"bailey"
	"bailey/audit"
	"bailey/internal/fleet"
	"bailey/internal/store"

	"golang.org/x/mod/sumdb/note"
)

// fork is the error for a ledger that is not the one that the server has a copy of.
type fork struct{ reason, evidence string }

func (f *fork) Error() string { return f.reason }

// openRecord begins the copy of a host's ledger, or compares it with the registration. The result is nil if the host has
// no ledger.
func (h *Hosts) openRecord(ctx context.Context, l *liveHost, r *fleet.Ledger) (*store.Ledger, error) {
	if r == nil {
		return nil, nil
	}
	key, err := audit.ParseKey(r.PublicKey)
	if err != nil || key.Name() != r.Origin || key.Witness() {
		return nil, bailey.Invalid.New("the key in the registration is not that of its ledger", "use versions that understand each other")
	}
	has, err := h.s.Store.BeginLedger(ctx, l.host, r.Origin, key.String())
	if err != nil || !has.Forked.IsZero() {
		return &has, err
	}
	if has.Origin != r.Origin {
		if err := h.recordFork(ctx, l, &fork{"the host has another ledger than before", r.Origin + "\n" + r.PublicKey}); err != nil {
			return nil, err
		}
		has.Forked = h.s.Now()
	}
	return &has, nil
}

// recordFork marks the host. Its entry in the server's own ledger precedes that.
func (h *Hosts) recordFork(ctx context.Context, l *liveHost, f *fork) error {
	h.s.Log.Error("the ledger of a host is not the one that it has shown before", "host", l.host.ID, "name", l.host.Name,
		"reason", f.reason)
	err := h.s.Ledger.Note(ctx, "host.fork", map[string]string{"host": l.host.ID, "organisation": l.host.Organisation,
		"reason": f.reason})
	if err != nil {
		return err
	}
	return h.s.Store.AddFork(ctx, l.host.ID, f.reason, strings.ToValidUTF8(strings.ReplaceAll(f.evidence, "\x00", "?"), "?"))
}

// storeReceipts adds lines to the copy of the host's ledger, and answers how much it holds.
func (h *Hosts) storeReceipts(ctx context.Context, l *liveHost, r *fleet.Receipts) error {
	answer, spent := &fleet.Cosigned{}, false
	if len(r.Lines) == 0 && len(r.Checkpoint) == 0 {
		return h.answerSize(ctx, l, r.From)
	}
	err := h.s.Store.Change(ctx, func(tx *store.Tx) error {
		has, err := h.s.Store.LedgerIn(ctx, tx, l.host.ID)
		if err != nil {
			return err
		}
		if answer.Size, answer.Forked = has.Size, !has.Forked.IsZero(); answer.Forked {
			return nil
		}
		g := &growth{s: h.s, tx: tx, Ledger: has}
		if err := g.addLines(ctx, r); err != nil {
			return err
		}
		if answer.Line, err = g.cosignCheckpoint(r.Checkpoint); err != nil {
			return err
		}
		answer.Size, spent = g.Size, g.spent
		return h.s.Store.GrowLedger(ctx, tx, g.Ledger)
	})
	if f, ok := errors.AsType[*fork](err); ok {
		answer.Forked = true
		err = h.recordFork(ctx, l, f)
	}
	if err != nil {
		return err
	}
	h.s.live.announceTopics(l.host.Organisation, topicReceipts)
	if spent {
		h.s.spent.markChanged(l.host.Organisation)
	}
	return l.sendFrame(&fleet.Frame{Cosigned: answer})
}

// answerSize answers a frame that brings nothing, without a write.
func (h *Hosts) answerSize(ctx context.Context, l *liveHost, from uint64) error {
	has, err := h.s.Store.LedgerOf(ctx, l.host.Organisation, l.host.ID)
	if err != nil {
		return err
	}
	if has.Forked.IsZero() && from != has.Size {
		return notFollowing(has.Size, from)
	}
	return l.sendFrame(&fleet.Frame{Cosigned: &fleet.Cosigned{Size: has.Size, Forked: !has.Forked.IsZero()}})
}

func notFollowing(size, from uint64) error {
	return bailey.Conflict.Errorf("connect again", "the copy of the ledger has %d entries, and the lines follow entry %d",
		size, from)
}

// growth adds to the copy of a ledger.
type growth struct {
	s  *Server
	tx *store.Tx
	store.Ledger
	tree audit.Tree
	last audit.Tree // over the entries of the subtree that is not full yet
	keys audit.Keys
	// spent is set if there was a request to a model among the lines.
	spent bool
}

// load reads the state of the copy.
func (g *growth) loadState() (head audit.Head, err error) {
	edge := make([]audit.Hash, len(g.Edge))
	for i, text := range g.Edge {
		if err := edge[i].UnmarshalText([]byte(text)); err != nil {
			return head, err
		}
	}
	if g.tree, err = audit.NewTree(g.Size, edge); err != nil {
		return head, err
	}
	if g.last, err = audit.NewTree(g.Size%subtreeSize, edge[bits.OnesCount64(g.Size/subtreeSize):]); err != nil {
		return head, err
	}
	for i, data := range g.Keys {
		if err := g.keys.Add(audit.Entry{Seq: uint64(i + 1), Kind: audit.KindKey, Data: data}); err != nil {
			return head, err
		}
	}
	if head.Seq = g.Size; g.Size > 0 {
		err = head.Hash.UnmarshalText([]byte(g.Head))
	}
	return head, err
}

// addLines checks each line against the chain, so that the copy has one history.
func (g *growth) addLines(ctx context.Context, r *fleet.Receipts) error {
	head, err := g.loadState()
	if err != nil {
		return err
	}
	if r.From != g.Size {
		if said, err := audit.ReadCheckpoint(r.Checkpoint); err == nil && r.From < g.Size && said.Size == r.From && len(r.Lines) == 0 {
			return g.checkRollback(r.Checkpoint)
		}
		return notFollowing(g.Size, r.From)
	}
	if !utf8.Valid(r.Lines) {
		return bailey.Invalid.New("lines of a ledger must be UTF-8", "")
	}
	rest := string(r.Lines)
	for e, err := range audit.Scan(bytes.NewReader(r.Lines), head) {
		var bad *audit.Bad
		switch {
		case errors.As(err, &bad) && bad.Reason == audit.Chain:
			return &fork{"lines do not follow the last entry of the copy: " + bad.Error(), clipText(r.Lines)}
		case err != nil:
			return bailey.Invalid.Wrap(err, "the host sent lines that are not those of a ledger", "")
		}
		line, after, _ := strings.Cut(rest, "\n")
		rest = after
		if err := g.addEntry(ctx, e, line+"\n"); err != nil {
			return err
		}
	}
	g.Edge = nil
	for _, hash := range g.tree.Edge() {
		g.Edge = append(g.Edge, hash.String())
	}
	return nil
}

// checkRollback: a checkpoint of fewer entries than the copy has is evidence if the log has signed it.
func (g *growth) checkRollback(signed []byte) error {
	if _, err := g.trustKeys().Open(signed); err != nil {
		return bailey.Denied.Wrap(err, "the checkpoint is not signed by a key of the ledger", "")
	}
	return &fork{"the ledger of the host has fewer entries than before", string(signed)}
}

func clipText(text []byte) string { return string(text[:min(len(text), 8<<10)]) }

func (g *growth) addEntry(ctx context.Context, e audit.Entry, line string) error {
	switch e.Kind {
	case audit.KindGenesis:
		var first audit.Genesis
		if json.Unmarshal(e.Data, &first) != nil || first.Name() != g.Origin {
			return &fork{"the ledger begins with another name than the one that was registered", line}
		}
	case audit.KindSegment:
		g.Segment++
	case audit.KindKey:
		if len(g.Keys) >= maxKeys {
			return bailey.Invalid.Errorf("", "the ledger has more than %d keys", maxKeys)
		}
		if err := g.addKey(e); err != nil {
			return &fork{err.Error(), line}
		}
	}
	if e.Seq == 1 && e.Kind != audit.KindGenesis {
		return bailey.Invalid.New("the ledger does not begin at its beginning", "")
	}
	g.Size, g.Head = e.Seq, e.Hash.String()
	g.tree.Add(e.Leaf)
	if err := g.addLeaf(ctx, e.Leaf); err != nil {
		return err
	}
	err := g.s.Store.AddEntry(ctx, g.tx, g.Host, store.Entry{Seq: e.Seq, Segment: g.Segment, Kind: e.Kind, Line: line})
	if err != nil {
		return err
	}
	return g.indexEntry(ctx, e)
}

// maxKeys limits the keys of a ledger: each batch of lines reads them all.
const maxKeys = 1000

func (g *growth) addKey(e audit.Entry) error {
	if err := g.keys.Add(e); err != nil {
		return err
	}
	if k, _ := g.keys.Last(); len(g.Keys) == 0 && k.String() != g.FirstKey {
		return errors.New("the first key of the ledger is not the one that was registered")
	}
	g.Keys = append(g.Keys, bytes.Clone(e.Data))
	return nil
}

func (g *growth) trustKeys() audit.Trust { return audit.Trust{Keys: g.keys.All()} }

// cosign verifies the checkpoint of a batch and returns the server's cosignature. The server holds every entry, so the
// entries themselves prove that the checkpoint extends the one before.
func (g *growth) cosignCheckpoint(signed []byte) ([]byte, error) {
	if len(signed) == 0 {
		return nil, nil
	}
	if len(g.Keys) == 0 {
		return nil, bailey.Invalid.New("the ledger announces no key before its first checkpoint", "")
	}
	s, err := g.trustKeys().Open(signed)
	if err != nil {
		return nil, bailey.Denied.Wrap(err, "the checkpoint is not signed by a key of the ledger", "")
	}
	here := audit.Checkpoint{Origin: g.Origin, Size: g.Size, Root: g.tree.Root()}
	if s.Checkpoint != here {
		return nil, &fork{"the signed checkpoint is of other entries than the host has sent", string(signed)}
	}
	g.Checkpoint, g.Signed = string(signed), s.Size
	if g.s.Cosigner == nil {
		return nil, nil
	}
	own, err := note.Sign(&note.Note{Text: here.Text()}, g.s.Cosigner)
	if err != nil {
		return nil, err
	}
	both, err := audit.Join(signed, own)
	if err != nil {
		return nil, err
	}
	g.Checkpoint = string(both)
	return bytes.TrimPrefix(own, []byte(here.Text()+"\n")), nil
}

// parseMoment reads a time of a query.
func parseMoment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, bailey.Invalid.New("a time of the query is not in the form 2026-01-31T12:00:00Z", "")
	}
	return t, nil
}
