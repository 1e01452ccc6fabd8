package broker

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"

	"bailey"
)

// MakeKey makes the broker create a key that signs for a log, and returns its public half. The private half never
// leaves the broker.
func (c Client) MakeKey(ctx context.Context) (ed25519.PublicKey, error) {
	var got madeKey
	if err := c.requestOnce(ctx, askMake, brokerRequest{Version: version}, &got); err != nil {
		return nil, err
	}
	public, ok := parsePublic(got.Key)
	if !ok {
		return nil, malformedError(nil)
	}
	return public, nil
}

// HasKey returns NotFound if the broker has no such key for this uid.
func (c Client) HasKey(ctx context.Context, public ed25519.PublicKey) error {
	name := hex.EncodeToString(public)
	var got keptKeys
	if err := c.requestOnce(ctx, askKeys, brokerRequest{Version: version, Key: name}, &got); err != nil {
		return err
	}
	if len(got.Keys) == 1 && got.Keys[0] == name {
		return nil
	}
	return noKey(name, nil)
}

// Keys returns the public halves of this uid's keys.
func (c Client) Keys(ctx context.Context) (list []ed25519.PublicKey, err error) {
	var got keptKeys
	if err := c.requestOnce(ctx, askKeys, brokerRequest{Version: version}, &got); err != nil {
		return nil, err
	}
	for _, k := range got.Keys {
		public, ok := parsePublic(k)
		if !ok {
			return nil, malformedError(nil)
		}
		list = append(list, public)
	}
	return list, nil
}

// SignLog returns the key's signature over a log's text: a checkpoint, or the statement that the key is the log's
// first. It verifies the signature first.
func (c Client) SignLog(ctx context.Context, public ed25519.PublicKey, text []byte) ([]byte, error) {
	var got signature
	if err := c.requestOnce(ctx, askSign,
		brokerRequest{Version: version, Key: hex.EncodeToString(public), Text: string(text)}, &got); err != nil {
		return nil, err
	}
	sig, err := base64.StdEncoding.DecodeString(got.Signature)
	if err != nil {
		return nil, malformedError(nil)
	}
	if !ed25519.Verify(public, text, sig) {
		return nil, bailey.Conflict.New("the broker's signature does not hold",
			"somebody exchanged its key, or the broker: look at it")
	}
	return sig, nil
}

// requestOnce exchanges one message over a separate connection.
func (c Client) requestOnce(ctx context.Context, kind byte, a brokerRequest, into any) error {
	conn, done, err := c.dialBroker(ctx, nil)
	if err != nil {
		return err
	}
	defer done()
	return roundTrip(conn, kind, a, into)
}
