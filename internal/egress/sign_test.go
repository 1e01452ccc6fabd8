package egress

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/sigv4"
)

var keys = sigv4.Credentials{ID: "AKIDEXAMPLE", Secret: "s3cr3t-key", Session: "s3cr3t-session"}

// signing is an injection that signs, with the placeholder held.
func signing(to ...string) Injection {
	return Injection{Name: "keys", Placeholder: held, To: to, Headers: []string{"Authorization"}, Sign: bailey.SignAWS,
		Value: bailey.NewSecret(sigv4.Profile{Name: "default", Credentials: keys}.String())}
}

// signedRequest returns a request as a tool in the cage signs it.
func signedRequest(method, address, body string, header ...string) *http.Request {
	r, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	sigv4.Signer{Credentials: sigv4.Credentials{ID: held, Secret: "signed-outside-the-cage"}, Region: "eu-west-1", Service: "s3"}.Sign(r, []byte(body), time.Now())
	return r
}

// TestSign checks that a request which was signed with the placeholder arrives with a valid signature of the keys, also
// with a path, a query and a body, and that the cage never gets a part of the keys.
func TestSign(t *testing.T) {
	w := newWorld(t)
	heard := w.told("b.s3.amazonaws.com", public)
	y := w.start(Config{Allow: allow("*.amazonaws.com:443"), Inject: []Injection{signing("*.amazonaws.com:443")}})
	body := strings.Repeat("a part of a body ", 1<<12)
	for name, r := range map[string]*http.Request{
		"a query":         signedRequest("GET", "https://b.s3.amazonaws.com/?list-type=2&prefix=a%2Fb&delimiter=", ""),
		"a path":          signedRequest("GET", "https://b.s3.amazonaws.com/a%20b/c%2Bd/%E2%82%AC", ""),
		"a body":          signedRequest("PUT", "https://b.s3.amazonaws.com/k", body),
		"a hash":          signedRequest("PUT", "https://b.s3.amazonaws.com/k", body, "X-Amz-Content-Sha256", sigv4.HashBody([]byte(body))),
		"no hash":         signedRequest("PUT", "https://b.s3.amazonaws.com/k", body, "X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD"),
		"another header":  signedRequest("POST", "https://b.s3.amazonaws.com/k", body, "X-Amz-Meta-A", "  two   words ", "Content-Type", "text/plain"),
		"a session of it": signedRequest("GET", "https://b.s3.amazonaws.com/k", "", "X-Amz-Security-Token", "of the tool"),
	} {
		res, err := y.client().Do(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || strings.Contains(res.Header.Get("X-Echo"), keys.ID) {
			t.Errorf("%s: %d %s, echo %q", name, res.StatusCode, text, res.Header.Get("X-Echo"))
			continue
		}
		got := <-heard
		sent, _ := io.ReadAll(got.Body)
		made, ok := sigv4.ParseAuthorization(got.Header.Get("Authorization"))
		at, err := time.Parse("20060102T150405Z", got.Header.Get("X-Amz-Date"))
		if !ok || err != nil || made.ID != keys.ID || got.Header.Get("X-Amz-Security-Token") != keys.Session {
			t.Errorf("%s: %v", name, got.Header)
			continue
		}
		was := got.Header.Get("Authorization")
		hash := got.Header.Get("X-Amz-Content-Sha256")
		if hash == "" {
			hash = sigv4.HashBody(sent)
		}
		got.URL.Host = got.Host
		made.Again(got, keys, hash, at)
		if again := got.Header.Get("Authorization"); again != was {
			t.Errorf("%s: the signature is not valid:\n%s\n%s", name, was, again)
		}
		if hash != "UNSIGNED-PAYLOAD" && hash != sigv4.HashBody(sent) {
			t.Errorf("%s: the hash is of another body", name)
		}
	}
}

// TestAttackSigned checks that requests which would make a signature for another place, or of another kind, are refused,
// and that the placeholder gets nothing elsewhere.
func TestAttackSigned(t *testing.T) {
	w := newWorld(t)
	heard := w.told("b.s3.amazonaws.com", public)
	other := w.told("other.example.com", public2)
	y := w.start(Config{Allow: append(allow("*.amazonaws.com:443"), Endpoint{Host: "other.example.com", Port: 443, Inspect: true}),
		Inject: []Injection{signing("*.amazonaws.com:443")}})
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		says   string
	}{
		"another host":          {func(r *http.Request) { r.URL.Host = "other.example.com" }, "placeholder of keys is in the header"},
		"a presigned address":   {func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "X-Amz-Credential=" + held }, "query parameter"},
		"parts signed, too":     {set("X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), "each part"},
		"signature version 4a":  {set("Authorization", "AWS4-ECDSA-P256-SHA256 Credential="+held+"/20260101/s3/aws4_request, SignedHeaders=host, Signature=00"), "cannot be replaced"},
		"a bearer":              {set("Authorization", "Bearer "+held), "cannot be replaced"},
		"another id with it":    {set("Authorization", "AWS4-HMAC-SHA256 Credential=x"+held+"/20260101/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=00"), "cannot be replaced"},
		"no signed headers":     {set("Authorization", "AWS4-HMAC-SHA256 Credential="+held+"/20260101/eu-west-1/s3/aws4_request"), "cannot be replaced"},
		"no region":             {set("Authorization", "AWS4-HMAC-SHA256 Credential="+held+"/20260101/s3/aws4_request, SignedHeaders=host"), "cannot be replaced"},
		"two signatures":        {func(r *http.Request) { r.Header.Add("Authorization", held) }, "cannot be replaced"},
		"the placeholder again": {set("X-Amz-Meta-A", held), "placeholder of keys is in the header"},
		"in the body": {func(r *http.Request) {
			*r = *signedRequest("PUT", "https://b.s3.amazonaws.com/k", "x"+held)
		}, "placeholder of keys is in the body"},
		"a long body without a hash": {func(r *http.Request) {
			*r = *signedRequest("PUT", "https://b.s3.amazonaws.com/k", "")
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, maxSignedBody+1))), maxSignedBody+1
		}, "more than 16 MiB"},
	} {
		r := signedRequest("GET", "https://b.s3.amazonaws.com/k", "")
		if c.change(r); strings.HasPrefix(name, "parts") {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "host;", "host;x-amz-content-sha256;", 1))
		}
		r.Host = ""
		res, err := y.client().Do(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 403 || !strings.Contains(string(text), c.says) {
			t.Errorf("%s: %d %q", name, res.StatusCode, text)
		}
	}
	y.stop()
	if len(heard)+len(other) > 0 {
		t.Errorf("%d requests arrived", len(heard)+len(other))
	}
}

// TestSignedBodiesAreBounded checks that bodies which are held in memory count together, and no longer than they are held.
func TestSignedBodiesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.told("b.s3.amazonaws.com", public)
	y := w.start(Config{Allow: allow("*.amazonaws.com:443"), Inject: []Injection{signing("*.amazonaws.com:443")}})
	ask := func() int {
		t.Helper()
		res, err := y.client().Do(signedRequest("PUT", "https://b.s3.amazonaws.com/k", "a body"))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	for range 3 {
		if code := ask(); code != 200 {
			t.Fatal(code)
		}
	}
	y.Proxy.buffered.Add(maxBuffered - 1)
	if code := ask(); code != 403 {
		t.Errorf("beyond the bound: %d", code)
	}
	y.Proxy.buffered.Add(-(maxBuffered - 1))
	if code := ask(); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
	for range 1000 { // the answer is there before the request has ended
		if y.Proxy.buffered.Load() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d bytes are held", y.Proxy.buffered.Load())
}
