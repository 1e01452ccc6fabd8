package egress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/internal/sigv4"
)

// maxSignedBody limits a body that is read whole, because its hash is a part of the signature and the tool did not send
// the hash in a header.
const maxSignedBody = 16 << 20

// maxBuffered limits all such bodies of a call together.
const maxBuffered = 4 * maxSignedBody

// awsKeys returns the keys of an injection that signs.
func awsKeys(in Injection) (sigv4.Credentials, error) {
	profiles, err := sigv4.ParseFile(in.Value.Reveal())
	if err != nil || len(profiles) != 1 {
		return sigv4.Credentials{}, errors.Join(err, errors.New("not one profile"))
	}
	return profiles[0].Credentials, nil
}

// signRequests replaces the signature of a request that was made with the placeholder of a secret. The keys never enter
// the cage: there the placeholder is the id of the key, and the secret key is worthless.
func (g *grant) signRequests(r *http.Request) *Refusal {
	for _, s := range g.entry.inject {
		if s.Sign == "" || !strings.Contains(r.Header.Get("Authorization"), s.Placeholder) {
			continue
		}
		if cause := s.signAgain(r, g.hostHeader("https"), &g.p.buffered); cause != "" {
			ref := deniedRefusal("egress to "+g.target.String()+" is refused: its signature with "+s.Name+" cannot be replaced: "+cause,
				"let the tool sign in the header Authorization, with Signature Version 4")
			ref.kind = KindMisused
			return ref
		}
	}
	return nil
}

// signAgain signs a request for a host. It returns the cause if that is impossible.
func (s *secret) signAgain(r *http.Request, host string, buffered *atomic.Int64) string {
	made, ok := sigv4.ParseAuthorization(r.Header.Get("Authorization"))
	if !ok || made.ID != s.Placeholder || len(r.Header.Values("Authorization")) != 1 {
		return "it is not of a kind that can be made anew"
	}
	keys, err := awsKeys(s.Injection)
	if err != nil {
		return "the keys are unusable"
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case hash == "" || !slices.Contains(made.Headers, "x-amz-content-sha256"):
		body, err := readWhole(r, buffered)
		if err != nil {
			return err.Error()
		}
		hash = sigv4.HashBody(body)
		if r.Header.Get("X-Amz-Content-Sha256") != "" {
			r.Header.Set("X-Amz-Content-Sha256", hash)
		}
	case strings.HasPrefix(hash, "STREAMING-AWS4"):
		return "each part of its body is signed, too"
	}
	r.Host = host
	made.Again(r, keys, hash, time.Now())
	return ""
}

// readWhole reads the body of a request and puts it back. buffered counts the bytes of all such bodies of a call.
func readWhole(r *http.Request, buffered *atomic.Int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	size := int64(maxSignedBody)
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength)
	}
	body := &heldBody{held: buffered, size: size}
	if buffered.Add(size) > maxBuffered {
		body.Close()
		return nil, errors.New("too many bodies without a hash in X-Amz-Content-Sha256 are sent at the same time")
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxSignedBody+1))
	if err == nil && len(text) > maxSignedBody {
		err = errors.New("its body has more than 16 MiB and no hash in X-Amz-Content-Sha256")
	}
	if err != nil {
		body.Close()
		return nil, err
	}
	body.Reader = bytes.NewReader(text)
	r.Body, r.ContentLength = body, int64(len(text))
	return text, nil
}

// heldBody is a body in memory, which counts until it is closed.
type heldBody struct {
	*bytes.Reader
	held *atomic.Int64
	size int64
	once sync.Once
}

func (b *heldBody) Close() error {
	b.once.Do(func() { b.held.Add(-b.size) })
	return nil
}

// maskKeys replaces the parts of the keys in text of the outside.
func (s *secret) maskKeys(v string) string {
	keys, err := awsKeys(s.Injection)
	if err != nil {
		return v
	}
	for _, part := range []string{keys.Secret, keys.Session, keys.ID} {
		if part != "" {
			one := secret{Injection: Injection{Placeholder: s.Placeholder, Value: bailey.NewSecret(part)}}
			v = one.maskValue(v)
		}
	}
	return v
}
