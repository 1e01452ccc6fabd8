package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// receiptURI is the prefix of the resource URI of a receipt.
const receiptURI = "bailey://receipts/"

// maxReceipts limits the list to the newest receipts of a session.
const maxReceipts = 100

// Receipt is an entry in the list of a session's receipts.
type Receipt struct {
	ID         bailey.ReceiptID
	Capability bailey.CapabilityID
	Status     bailey.Status // "" while the call is open
	Started    time.Time
}

// listReceipts answers resources/list with the receipts of the session, newest first.
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
			URI: receiptURI + string(r.ID), Name: string(r.ID), Title: string(r.Capability),
			MIMEType:    "application/json",
			Description: fmt.Sprintf("Receipt of %s at %s: %s", r.Capability, formatTime(r.Started), became),
		})
	}
	return res, nil
}

// readReceipt answers resources/read. It gives the same error for a receipt of another session and for one that does
// not exist.
func (s *session) readReceipt(ctx context.Context, req *sdk.ReadResourceRequest) (sdk.Result, error) {
	uri := req.Params.URI
	id, ok := strings.CutPrefix(uri, receiptURI)
	if !ok {
		return nil, sdk.ResourceNotFoundError(printableText(uri, 256))
	}
	text, err := s.Gate.Receipt(ctx, s.Session.ID, bailey.ReceiptID(id))
	switch {
	case bailey.KindOf(err) == bailey.NotFound:
		return nil, sdk.ResourceNotFoundError(printableText(uri, 256))
	case err != nil:
		return nil, err
	}
	out := &contents{Cacheable: sdk.Cacheable{CacheScope: "private"},
		Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: "application/json", Text: string(text)}}}
	if _, newer := clientCapabilities(req.Params.GetMeta()); newer {
		out.Type = "complete"
	}
	return out, nil
}

// contents is the content of a resource. The SDK type sets resultType only for results of the SDK's own handlers.
type contents struct {
	sdk.ResultBase
	sdk.Cacheable
	Type     string                  `json:"resultType,omitempty"`
	Contents []*sdk.ResourceContents `json:"contents"`
}
