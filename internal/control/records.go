package control

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"bailey"
	"bailey/internal/store"

	"github.com/danielgtaylor/huma/v2"
)

func (s *Server) recordRoutes() {
	const one = "/api/v1/organisations/{organisation}"
	addRoute(s, "GET", one+"/receipts", "list-receipts", "The receipts of all hosts, the newest first",
		Access{Role: store.Admin}, s.listReceipts)
	addRoute(s, "GET", one+"/hosts/{id}/record", "show-record",
		"The copy of a host's ledger: its size, its last checkpoint, and evidence of forks",
		Access{Role: store.Member}, s.showRecord)
	addRoute(s, "GET", one+"/hosts/{id}/ledger", "export-ledger",
		"The copy of a host's ledger as a tar file, for bailey audit verify", Access{Role: store.Admin}, s.exportLedger)
}

// receiptPage is a page of receipts. Next is empty on the last one.
type receiptPage struct {
	Items []store.Receipt `json:"items"`
	Next  string          `json:"next,omitempty" doc:"the parameter next of the following page"`
}

func (s *Server) listReceipts(ctx context.Context, _ *Caller, in *struct {
	InOrganisation
	Host       string `query:"host" maxLength:"40"`
	Receipt    string `query:"receipt" maxLength:"64"`
	Agent      string `query:"agent" maxLength:"200"`
	Session    string `query:"session" maxLength:"200"`
	Capability string `query:"capability" maxLength:"200"`
	Status     string `query:"status" maxLength:"40" doc:"for example ok, refused, failed or open"`
	Since      string `query:"since" maxLength:"40" doc:"started then or later: 2026-01-31T12:00:00Z"`
	Until      string `query:"until" maxLength:"40" doc:"started before"`
	Limit      int    `query:"limit" minimum:"1" maximum:"1000" default:"50"`
	Next       string `query:"next" maxLength:"300" doc:"from the page before"`
}) (*output[receiptPage], error) {
	f := store.ReceiptFilter{Host: in.Host, Receipt: in.Receipt, Agent: in.Agent, Session: in.Session,
		Capability: in.Capability, Status: in.Status, Limit: in.Limit + 1}
	for _, text := range []string{in.Host, in.Receipt, in.Agent, in.Session, in.Capability, in.Status} {
		if strings.Contains(text, "\x00") {
			return nil, bailey.Invalid.New("a filter has a character that no receipt has", "")
		}
	}
	var err error
	if f.Since, err = parseMoment(in.Since); err != nil {
		return nil, err
	}
	if f.Until, err = parseMoment(in.Until); err != nil {
		return nil, err
	}
	if in.Next != "" {
		if err := readCursor(in.Next, &f); err != nil {
			return nil, err
		}
	}
	all, err := s.Store.Receipts(ctx, in.Organisation, f)
	if err != nil {
		return nil, err
	}
	page := receiptPage{Items: all}
	if len(all) > in.Limit {
		page.Items = all[:in.Limit]
		page.Next = writeCursor(page.Items[in.Limit-1])
	}
	return answerWith(page), nil
}

// cursor is the last receipt of a page.
type cursor struct {
	Started int64
	Host    string
	Seq     uint64
}

func writeCursor(r store.Receipt) string {
	text, _ := json.Marshal(cursor{r.Started.UnixMicro(), r.Host, r.Seq})
	return base64.RawURLEncoding.EncodeToString(text)
}

func readCursor(text string, f *store.ReceiptFilter) error {
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(b, &c) != nil || c.Host == "" || strings.Contains(c.Host, "\x00") || c.Seq > 1<<61 {
		return bailey.Invalid.New("the parameter next is not from an answer of this server", "begin without it")
	}
	f.BeforeStarted, f.BeforeHost, f.BeforeSeq = time.UnixMicro(c.Started), c.Host, c.Seq
	return nil
}

// record describes the copy of a ledger.
type record struct {
	Host       string       `json:"host"`
	Name       string       `json:"name"`
	Origin     string       `json:"origin" doc:"the name of the ledger"`
	Key        string       `json:"key" doc:"its key at the first registration: compare it with bailey audit key there"`
	Entries    uint64       `json:"entries"`
	Signed     uint64       `json:"signed" doc:"entries under the last checkpoint"`
	Checkpoint string       `json:"checkpoint,omitempty"`
	Witness    string       `json:"witness,omitempty" doc:"the key of this server's cosignatures"`
	Forked     time.Time    `json:"forked,omitzero"`
	Forks      []store.Fork `json:"forks"`
}

func (s *Server) showRecord(ctx context.Context, _ *Caller, in *InOrganisationByID) (*output[record], error) {
	l, err := s.Store.LedgerOf(ctx, in.Organisation, in.ID)
	if err != nil {
		return nil, err
	}
	forks, err := s.Store.Forks(ctx, l.Host)
	r := record{Host: l.Host, Name: l.Name, Origin: l.Origin, Key: l.FirstKey, Entries: l.Size, Signed: l.Signed,
		Checkpoint: l.Checkpoint, Forked: l.Forked, Forks: forks}
	if s.Cosigner != nil {
		r.Witness = s.Witness.String()
	}
	return answerWith(r), err
}

// exportLedger sends the segments up to the last checkpoint, as bailey audit verify --ledger reads them, and beside them
// the checkpoint and the key.
func (s *Server) exportLedger(ctx context.Context, _ *Caller, in *InOrganisationByID) (*huma.StreamResponse, error) {
	l, err := s.Store.LedgerOf(ctx, in.Organisation, in.ID)
	if err != nil {
		return nil, err
	}
	if l.Size == 0 {
		return nil, bailey.NotFound.New("the server has nothing of the ledger of this host yet", "")
	}
	return &huma.StreamResponse{Body: func(out huma.Context) {
		out.SetHeader("Content-Type", "application/x-tar")
		out.SetHeader("Content-Disposition", `attachment; filename="`+l.Host+`.tar"`)
		if err := s.writeLedger(ctx, out.BodyWriter(), l); err != nil {
			s.Log.Error("the export of a ledger broke off", "host", l.Host, "error", err) // the tar file has no end
		}
	}}, nil
}

// exportStep is how many lines are in memory at once.
const exportStep = 500

// writeLedger writes the tar file. A tar header has the length of its file, so each segment is read twice.
func (s *Server) writeLedger(ctx context.Context, w io.Writer, l store.Ledger) error {
	sizes, err := s.Store.SegmentSizes(ctx, l.Host, l.Size)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	after := uint64(0)
	for i, n := range sizes {
		if err := out.WriteHeader(&tar.Header{Name: fmt.Sprintf("ledger/%08d.jsonl", i+1), Mode: 0o600, Size: n}); err != nil {
			return err
		}
		for written := int64(0); written < n; {
			lines, err := s.Store.Entries(ctx, l.Host, after, exportStep)
			if err == nil && len(lines) == 0 {
				err = bailey.Internal.New("lines of the copy are missing", "")
			}
			if err != nil {
				return err
			}
			for _, e := range lines {
				if written >= n {
					break
				}
				if _, err := io.WriteString(out, e.Line); err != nil {
					return err
				}
				written, after = written+int64(len(e.Line)), e.Seq
			}
		}
	}
	for name, text := range map[string]string{"checkpoint": l.Checkpoint, "key": l.FirstKey + "\n"} {
		if text == "" {
			continue
		}
		err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))})
		if err == nil {
			_, err = io.WriteString(out, text)
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}
