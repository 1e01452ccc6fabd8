package egress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/sigv4"
)

// maxSignedBody limits a body that is read whole, because its hash is a part of the signature and the tool did not send
// the hash in a header.
const maxSignedBody = 16 << 20

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
		if cause := s.signAgain(r, g.hostHeader("https")); cause != "" {
			ref := deniedRefusal("egress to "+g.target.String()+" is refused: its signature with "+s.Name+" cannot be replaced: "+cause,
				"let the tool sign in the header Authorization, with Signature Version 4")
			ref.kind = KindMisused
			return ref
		}
	}
	return nil
}

// signAgain signs a request for a host. It returns the cause if that is impossible.
func (s *secret) signAgain(r *http.Request, host string) string {
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
		body, err := readWhole(r)
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

// readWhole reads the body of a request and puts it back.
func readWhole(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSignedBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxSignedBody:
		return nil, errors.New("its body has more than 16 MiB and no hash in X-Amz-Content-Sha256")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return body, nil
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
