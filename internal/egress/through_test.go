package egress

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// throughTransport answers requests itself.
type throughTransport struct{ heard chan *http.Request }

func (t throughTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.heard <- r
	return &http.Response{StatusCode: 200, Header: http.Header{"X-By": {"another"}}, Body: io.NopCloser(strings.NewReader("through")),
		Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
}

// TestThrough checks that requests to a target with a transport of its own reach that transport and never the host, over
// TLS, without TLS, and in every form of the request.
func TestThrough(t *testing.T) {
	w := newWorld(t)
	heard := w.told("api.example.com", public)
	w.host("plain.example.com", public, 80, func(http.ResponseWriter, *http.Request) { t.Error("the plain host was reached") })
	other := throughTransport{make(chan *http.Request, 10)}
	list := allow("api.example.com:443", "plain.example.com:80")
	list[1].Plain = true
	y := w.start(Config{Allow: list, Through: map[string]http.RoundTripper{"api.example.com:443": other, "plain.example.com:80": other}})
	for _, url := range []string{"https://api.example.com/v1/messages?beta=true", "http://plain.example.com/v1/messages?beta=true"} {
		if got, err := y.get(url); err != nil || !strings.Contains(got, "through") {
			t.Fatalf("%s: %q, %v", url, got, err)
		}
		if r := <-other.heard; r.URL.Path != "/v1/messages" || r.URL.RawQuery != "beta=true" {
			t.Errorf("%s: %v", url, r.URL)
		}
	}
	c := y.tunnel("plain.example.com:80")
	io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: plain.example.com\r\nConnection: close\r\n\r\n")
	if all, _ := io.ReadAll(c); !strings.Contains(string(all), "through") {
		t.Errorf("in a tunnel: %q", all)
	}
	if len(heard) > 0 || len(w.reached()) > 0 {
		t.Errorf("%d requests and %q reached the host", len(heard), w.reached())
	}
	if _, err := New(Config{Allow: list, Through: map[string]http.RoundTripper{"elsewhere.example.com:443": other}}); err == nil {
		t.Error("a target that no entry names is accepted")
	}
}
