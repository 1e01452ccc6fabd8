package server

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"unicode/utf8"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/safefile"
)

// show adds to a receipt the bodies that it names.
func (s *Server) show(r receipts.Record) apitype.ShownReceipt {
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

func (s *Server) forget(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return s.ledger.Forget(ctx, receipts.Forgotten{
		Receipt: bailey.ReceiptID(text(q.Args, "id")), Operator: string(q.Operator), Person: from.Principal.Person})
}

func filterOf(args map[string]any) (f receipts.Filter, err error) {
	b, err := json.Marshal(args["filter"])
	if err != nil {
		return f, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields() // ignoring an unknown field would return too many receipts
	if err := dec.Decode(&f); err != nil {
		return f, &bailey.Error{Kind: bailey.Invalid, Message: "the filter is none", Hint: "client and gateway may be of two versions: bailey gateway stop ends the running one", Err: err}
	}
	return f, nil
}

// records is a query: it returns complete receipts.
func (s *Server) records(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	f, err := filterOf(q.Args)
	if err != nil {
		return nil, err
	}
	return s.index.Find(ctx, f)
}

// receipts is a query: it returns the rows of a list.
func (s *Server) receipts(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	f, err := filterOf(q.Args)
	if err != nil {
		return nil, err
	}
	page, err := s.index.Find(ctx, f)
	return apitype.NewReceiptList(page), err
}

// receipt is a query: it returns one complete receipt. If the index lacks it, or the outcome of a call that no longer
// runs, the ledger is read: a process that can write the index file could have removed it.
func (s *Server) receipt(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	id := bailey.ReceiptID(text(q.Args, "id"))
	f := receipts.Filter{ID: id, Limit: 1}
	if !apitype.Possible(id) {
		return nil, apitype.NoReceipt(id)
	}
	page, err := s.index.Find(ctx, f)
	if err == nil && (len(page.Records) == 0 || page.Records[0].Outcome == nil && !s.isLive(id)) {
		page, err = s.index.Scan(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	if len(page.Records) == 0 {
		return nil, apitype.NoReceipt(id)
	}
	return s.show(page.Records[0]), nil
}

func (s *Server) isLive(id bailey.ReceiptID) bool {
	calls, _ := s.live.Now()
	return slices.ContainsFunc(calls, func(c apitype.LiveCall) bool { return c.Receipt == id })
}

// openNotary creates the notary, which signs checkpoints of the ledger.
func openNotary(home localapi.Home, log *ledger.Log, newest []byte, keys ledger.Keys) (*ledger.Notary, error) {
	cosigned, err := apitype.KeptNote(home.Cosigned())
	if err != nil {
		return nil, err
	}
	keep := func(name string) func(signed []byte) error {
		return func(signed []byte) error {
			root, err := os.OpenRoot(string(home))
			if err != nil {
				return err
			}
			defer root.Close()
			return safefile.Replace(root, name, signed, 0o600, func() error { return nil })
		}
	}
	return ledger.NewNotary(ledger.NotaryConfig{Log: log, Keys: keys,
		Newest: newest, Keep: keep(localapi.CheckpointName), Cosigned: cosigned, KeepCosigned: keep(localapi.CosignedName)}), nil
}

// checkpoint is a query: it does not change the behavior of the gate.
func (s *Server) checkpoint(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	signed, err := s.notary.Sign(ctx)
	if err != nil {
		return nil, err
	}
	return s.signed(ctx, q, signed)
}

func (s *Server) signed(ctx context.Context, q localapi.Query, signed []byte) (any, error) {
	key, err := s.notary.Key(ctx)
	if err != nil {
		return nil, err
	}
	says, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	r := apitype.CheckpointReply{OK: true, Signed: string(signed), Says: says, Key: key}
	if _, wanted := q.Args["since"]; wanted {
		old := uint64(max(0, number(q.Args, "since")))
		proof, err := s.notary.Consistency(old, signed)
		if err != nil {
			return nil, err
		}
		r.Request = string(audit.Request{Old: old, Proof: proof, Checkpoint: signed}.Text())
	}
	return r, nil
}

// request is a query. It returns the request to a witness for the newest checkpoint.
func (s *Server) request(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	signed := s.notary.Newest()
	if signed == nil {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: "there is no checkpoint yet", Hint: "bailey audit checkpoint signs one"}
	}
	return s.signed(ctx, q, signed)
}

// cosign is a query. It stores the cosignatures that witnesses added to the newest checkpoint.
func (s *Server) cosign(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	signed := []byte(text(q.Args, "signed"))
	if err := s.notary.Cosigned(ctx, signed); err != nil {
		return nil, err
	}
	return s.signed(ctx, localapi.Query{}, s.notary.Newest())
}

func (s *Server) key(ctx context.Context, _ localapi.Query, _ bailey.Call) (any, error) {
	key, err := s.notary.Key(ctx)
	return apitype.KeyReply{OK: err == nil, Key: key}, err
}

// rotate is a command. The new key signs at once, so that the key of the newest checkpoint can still sign.
func (s *Server) rotate(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	old, err := s.notary.Key(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.keyring(s.home).mayLeave(old.Public()); err != nil {
		return nil, err
	}
	change, err := s.notary.Rotate(ctx)
	if err != nil {
		return nil, err
	}
	event := map[string]any{"key": change.Key, "old": change.Old, "operator": q.Operator, "person": from.Principal.Person}
	if err := s.scribe.note(ctx, apitype.RotateCommand, event); err != nil {
		return nil, err
	}
	_, err = s.notary.Sign(ctx)
	return apitype.KeyReply{OK: err == nil, Key: change.Key, Old: change.Old, Changed: true}, err
}

func (s *Server) prove(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	id := bailey.ReceiptID(text(q.Args, "id"))
	r, err := s.notary.Prove(ctx, id)
	return apitype.ProofReply{OK: err == nil, ID: id, Receipt: string(r)}, err
}
