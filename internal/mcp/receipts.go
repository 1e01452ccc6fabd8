package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// receiptURI is before the id of a receipt in the URI by which it is a resource.
const receiptURI = "bailey://receipts/"

// maxReceipts bounds how many of a session's receipts are listed: the newest.
const maxReceipts = 100

// Receipt is one of a session's own, as a list has it.
type Receipt struct {
	ID         bailey.ReceiptID
	Capability bailey.CapabilityID
	Status     bailey.Status // "" while it is open
	Started    time.Time
}

// listReceipts answers resources/list: the receipts of the own session, the newest first.
func (s *session) listReceipts(ctx context.Context) (sdk.Result, error) {
	list, err := s.Gate.Receipts(ctx, s.Session.ID, maxReceipts)
	if err != nil {
		return nil, err
	}
	res := &sdk.ListResourcesResult{Resources: []*sdk.Resource{}, Cacheable: sdk.Cacheable{CacheScope: "private"}}
	for _, r := range list {
		became := string(r.Status)
		if became == "" {
			became = "open"
		}
		res.Resources = append(res.Resources, &sdk.Resource{
			URI: receiptURI + string(r.ID), Name: string(r.ID), Title: string(r.Capability), MIMEType: "application/json",
			Description: fmt.Sprintf("Receipt of %s at %s: %s", r.Capability, stamp(r.Started), became),
		})
	}
	return res, nil
}

// readReceipt answers resources/read. A receipt of another session is not told from one that is none.
func (s *session) readReceipt(ctx context.Context, req *sdk.ReadResourceRequest) (sdk.Result, error) {
	uri := req.Params.URI
	id, ok := strings.CutPrefix(uri, receiptURI)
	if !ok {
		return nil, sdk.ResourceNotFoundError(printable(uri, 256))
	}
	text, err := s.Gate.Receipt(ctx, s.Session.ID, bailey.ReceiptID(id))
	switch {
	case bailey.KindOf(err) == bailey.NotFound:
		return nil, sdk.ResourceNotFoundError(printable(uri, 256))
	case err != nil:
		return nil, err
	}
	out := &contents{Cacheable: sdk.Cacheable{CacheScope: "private"}, Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: "application/json", Text: string(text)}}}
	if _, newer := capabilities(req.Params.GetMeta()); newer {
		out.Type = "complete"
	}
	return out, nil
}

// contents are a resource's. The SDK's own type says its kind of result only where its own handlers made it.
type contents struct {
	sdk.ResultBase
	sdk.Cacheable
	Type     string                  `json:"resultType,omitempty"`
	Contents []*sdk.ResourceContents `json:"contents"`
}
