package server

import (
	"context"
	"slices"
	"unicode/utf8"

	"bailey"
	"bailey/audit"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
	"bailey/internal/ledger/notary"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/safefile"
)

// addBodies adds to a receipt the bodies that it names.
func (s *Server) addBodies(r receipts.Record) apitype.ShownReceipt {
	shown := apitype.ShownReceipt{Record: r}
	add := func(part string, said *bailey.Body) {
		if said == nil {
			return
		}
		b := apitype.ShownBody{Part: part, Length: said.Length}
		switch body, err := s.ledger.Body(r.Intent.Receipt, part, *said); {
		case err != nil:
			b.Why = err.Error()
		case utf8.Valid(body):
			b.Text = string(body)
		default:
			b.Bytes = body
		}
		shown.Bodies = append(shown.Bodies, b)
	}
	input := r.Intent.InputBody
	if o := r.Outcome; o != nil && o.InputBody != nil {
		input = o.InputBody // set if the intent's body was not stored
	}
	add(receipts.InputPart, input)
	if r.Outcome != nil {
		add(receipts.StdoutPart, r.Outcome.StdoutBody)
		add(receipts.StderrPart, r.Outcome.StderrBody)
	}
	return shown
}

func (s *Server) forgetReceipt(ctx context.Context, r apitype.ID, from gateway.Caller) (receipts.Forgotten, error) {
	return s.ledger.Forget(ctx, receipts.Forgotten{
		Receipt: bailey.ReceiptID(r.ID), Operator: string(from.Operator), Person: from.Principal.Person})
}

// listRecords returns complete receipts.
func (s *Server) listRecords(ctx context.Context, f receipts.Filter, _ gateway.Caller) (receipts.Page, error) {
	return s.index.Find(ctx, f)
}

// listReceipts returns the rows of a list.
func (s *Server) listReceipts(ctx context.Context, f receipts.Filter, _ gateway.Caller) (apitype.ReceiptList, error) {
	page, err := s.index.Find(ctx, f)
	return apitype.NewReceiptList(page), err
}

// showReceipt returns one complete receipt. If the index lacks it, or the outcome of a call that no longer runs, the
// ledger is read: a process that can write the index file could have removed it.
func (s *Server) showReceipt(ctx context.Context, r apitype.ID, _ gateway.Caller) (apitype.ShownReceipt, error) {
	id := bailey.ReceiptID(r.ID)
	f := receipts.Filter{ID: id, Limit: 1}
	if !apitype.Possible(id) {
		return apitype.ShownReceipt{}, apitype.NoReceipt(id)
	}
	page, err := s.index.Find(ctx, f)
	if err == nil && (len(page.Records) == 0 || page.Records[0].Outcome == nil && !s.isLive(id)) {
		page, err = s.index.Scan(ctx, f)
	}
	if err != nil {
		return apitype.ShownReceipt{}, err
	}
	if len(page.Records) == 0 {
		return apitype.ShownReceipt{}, apitype.NoReceipt(id)
	}
	return s.addBodies(page.Records[0]), nil
}

func (s *Server) isLive(id bailey.ReceiptID) bool {
	calls, _ := s.live.Now()
	return slices.ContainsFunc(calls, func(c apitype.LiveCall) bool { return c.Receipt == id })
}

// openNotary creates the notary, which signs checkpoints of the ledger.
func openNotary(home localapi.Home, log *ledger.Log, newest []byte, keys notary.Keys) (*notary.Notary, error) {
	cosigned, err := apitype.KeptNote(home.Cosigned())
	if err != nil {
		return nil, err
	}
	keep := func(name string) func(signed []byte) error {
		return func(signed []byte) error { return safefile.Put(string(home), name, signed, 0o600, nil) }
	}
	return notary.New(notary.Config{Log: log, Keys: keys,
		Newest: newest, Keep: keep(localapi.CheckpointName), Cosigned: cosigned, KeepCosigned: keep(localapi.CosignedName)}), nil
}

// signCheckpoint is a query: it does not change the behavior of the gate.
func (s *Server) signCheckpoint(ctx context.Context, r apitype.CheckpointRequest,
	_ gateway.Caller) (apitype.CheckpointReply, error) {
	signed, err := s.notary.Sign(ctx)
	if err != nil {
		return apitype.CheckpointReply{}, err
	}
	return s.checkpointReply(ctx, signed, r.Since)
}

// checkpointReply returns the reply for a checkpoint. If since is set, it has the request for a witness.
func (s *Server) checkpointReply(ctx context.Context, signed []byte,
	since *uint64) (r apitype.CheckpointReply, err error) {
	key, err := s.notary.Key(ctx)
	if err != nil {
		return r, err
	}
	says, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return r, err
	}
	r = apitype.CheckpointReply{OK: true, Signed: string(signed), Says: says, Key: key}
	if since != nil {
		proof, err := s.notary.Consistency(ctx, *since, signed)
		if err != nil {
			return r, err
		}
		r.Request = string(audit.Request{Old: *since, Proof: proof, Checkpoint: signed}.Text())
	}
	return r, nil
}

// showCheckpoint returns the newest checkpoint and the request to a witness for it.
func (s *Server) showCheckpoint(ctx context.Context, r apitype.CheckpointRequest,
	_ gateway.Caller) (apitype.CheckpointReply, error) {
	signed := s.notary.Newest()
	if signed == nil {
		return apitype.CheckpointReply{}, bailey.NotFound.New("there is no checkpoint yet",
			"run bailey audit checkpoint to sign one")
	}
	return s.checkpointReply(ctx, signed, r.Since)
}

// cosignCheckpoint is a query. It stores the cosignatures that witnesses added to the newest checkpoint.
func (s *Server) cosignCheckpoint(ctx context.Context, r apitype.CosignedCheckpoint,
	_ gateway.Caller) (apitype.CheckpointReply, error) {
	if err := s.notary.Cosigned(ctx, []byte(r.Signed)); err != nil {
		return apitype.CheckpointReply{}, err
	}
	return s.checkpointReply(ctx, s.notary.Newest(), nil)
}

func (s *Server) showCheckpointKey(ctx context.Context, _ localapi.None, _ gateway.Caller) (apitype.KeyReply, error) {
	key, err := s.notary.Key(ctx)
	return apitype.KeyReply{OK: err == nil, Key: key}, err
}

// rotateCheckpointKey is a command. The new key signs at once, so that the key of the newest checkpoint can still sign.
func (s *Server) rotateCheckpointKey(ctx context.Context, _ localapi.None,
	from gateway.Caller) (r apitype.KeyReply, err error) {
	old, err := s.notary.Key(ctx)
	if err != nil {
		return r, err
	}
	if err := s.newKeyring(s.home).mayLeave(old.Public()); err != nil {
		return r, err
	}
	change, err := s.notary.Rotate(ctx)
	if err != nil {
		return r, err
	}
	event := map[string]any{"key": change.Key, "old": change.Old,
		"operator": from.Operator, "person": from.Principal.Person}
	if err := s.scribe.recordEvent(ctx, apitype.RotateCommand, event); err != nil {
		return r, err
	}
	_, err = s.notary.Sign(ctx)
	return apitype.KeyReply{OK: err == nil, Key: change.Key, Old: change.Old, Changed: true}, err
}

func (s *Server) proveReceipt(ctx context.Context, r apitype.ID, _ gateway.Caller) (apitype.ProofReply, error) {
	id := bailey.ReceiptID(r.ID)
	proof, err := s.notary.Prove(ctx, id)
	return apitype.ProofReply{OK: err == nil, ID: id, Receipt: string(proof)}, err
}
