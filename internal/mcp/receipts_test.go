package mcp

import (
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestReceiptsAreResources checks that a session lists and reads its own receipts and no others.
func TestReceiptsAreResources(t *testing.T) {
	s := connect(t, yard())
	list, err := s.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 2 || list.Resources[0].URI != receiptURI+"r-one" || !strings.Contains(list.Resources[1].Description, "git.push") || !strings.HasSuffix(list.Resources[1].Description, "open") {
		t.Fatalf("%+v %v", list, err)
	}
	r, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: list.Resources[0].URI})
	if err != nil || len(r.Contents) != 1 || r.Contents[0].Text != `{"id":"r-one"}` || r.Contents[0].URI != list.Resources[0].URI {
		t.Fatalf("%+v %v", r, err)
	}
	for _, uri := range []string{receiptURI + "r-none", receiptURI, "file:///etc/passwd", "bailey://receipts", "", strings.Repeat("x", 9000)} {
		if r, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "not found") && uri != "" || len(err.Error()) > 2000 {
			t.Errorf("%.40q: %+v %v", uri, r, err)
		}
	}
	if list, err := s.ListResourceTemplates(t.Context(), nil); err != nil || len(list.ResourceTemplates) != 0 {
		t.Errorf("templates: %+v %v", list, err)
	}
}

// TestReceiptsOfNobodyElse checks that the gate is asked only for the connection's own session, regardless of the
// client's request.
func TestReceiptsOfNobodyElse(t *testing.T) {
	w := serveWeb(t, yard(), nil) // its first session is s-1, the next one is not
	read := `{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"` + receiptURI + `r-one",` + metaHTTP + `}}`
	in := newer("resources/read", receiptURI+"r-one")
	if code, _, body := w.post(read, in); code != 200 || !strings.Contains(body, `r-one`) || !strings.Contains(body, `"resultType":"complete"`) {
		t.Errorf("its own: %d %s", code, body)
	}
	eve := func(r *http.Request) { in(r); r.Header.Set("Authorization", "Bearer good-eve") }
	if code, _, body := w.post(read, eve); code != 400 || !strings.Contains(body, "not found") {
		t.Errorf("another's: %d %s", code, body)
	}
	list := `{"jsonrpc":"2.0","id":3,"method":"resources/list","params":{` + metaHTTP + `}}`
	if code, _, body := w.post(list, func(r *http.Request) {
		newer("resources/list", "")(r)
		r.Header.Set("Authorization", "Bearer good-eve")
	}); code != 200 || !strings.Contains(body, `"resources":[]`) || !strings.Contains(body, `"resultType":"complete"`) {
		t.Errorf("another's list: %d %s", code, body)
	}
}
