package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bailey"
)

// version is the version of the protocol.
const version = 1

// Limits of a message. A text has at most 64 KiB, and JSON may need six bytes for one of its bytes.
const (
	maxAsk        = 1 << 20 // bytes of a frame
	maxWants      = 16
	maxSignatures = 32
	maxWord       = 256
)

// The kinds of frames.
const (
	askHello   = 'h'
	askScope   = 's'
	askLend    = 'l'
	askReturn  = 'r'
	askApply   = 'a'
	askMake    = 'm'
	askKeys    = 'k'
	askSign    = 'g'
	askCertify = 'c'
	askTrusted = 't'
	askRevoke  = 'e'
	answerOK   = 'o'
	answerErr  = 'x'
	aValue     = 'v'
)

// brokerRequest contains all fields that a client may send. The kind of the frame determines which of them are used.
type brokerRequest struct {
	Version    int      `json:"version"`
	Receipt    string   `json:"receipt,omitempty"`
	Capability string   `json:"capability,omitempty"`
	Wants      []want   `json:"wants,omitempty"`
	Text       string   `json:"text,omitempty"`
	Signatures []string `json:"signatures,omitempty"`
	IDs        []string `json:"ids,omitempty"`
	Digest     string   `json:"digest,omitempty"`
	Key        string   `json:"key,omitempty"` // public half, in hex
	Host       string   `json:"host,omitempty"`
	Options    []string `json:"options,omitempty"` // of the read-only shell
}

type want struct {
	Name string `json:"name"`
	Env  string `json:"env"`
	File bool   `json:"file,omitempty"`

	Limits string `json:"limits,omitempty"` // of this call, as in [bailey.Want]
}

// scope is a [bailey.LeaseScope] with its time in seconds.
type scope struct {
	Name     string `json:"name"`
	Env      string `json:"env"`
	Adapter  string `json:"adapter"`
	Scope    string `json:"scope"`
	TTL      int64  `json:"ttl"`
	Approval bool   `json:"approval,omitempty"`
}

type scopes struct {
	Scopes []scope `json:"scopes"`
}

// revoked is the answer to a revocation.
type revoked struct {
	Loans int `json:"loans"` // that were open
}

// loanAnswer describes the values in the frames that follow.
type loanAnswer struct {
	Leases []lease `json:"leases"`
}

type lease struct {
	ID    string    `json:"id"`
	Mint  string    `json:"mint,omitempty"` // the issuer's name for it
	Until time.Time `json:"until,omitzero"` // end of the value's validity, if known
	Ends  bool      `json:"ends,omitempty"` // the issuer ends the validity when the loan ends
}

// Answers about keys that sign for logs. A key is named by its public half, in hex.
type (
	madeKey struct {
		Key string `json:"key"`
	}
	keptKeys struct {
		Keys []string `json:"keys"`
	}
	signature struct {
		Signature string `json:"signature"` // base64
	}
)

// Answers about certificates for source hosts.
type (
	certified struct {
		Certificate string `json:"certificate"` // one line, as in a file KEY-cert.pub
	}
	trusted struct {
		Keys string `json:"keys"` // lines of authorized_keys
	}
)

// Hello is the broker's description of itself.
type Hello struct {
	Version int      `json:"version"`
	Program string   `json:"program"`
	PID     int      `json:"pid"`
	Table   string   `json:"table"`             // digest of the applied table
	Changed bool     `json:"changed,omitempty"` // the file has changed since
	Open    int      `json:"open"`              // open loans
	Leases  []string `json:"leases"`            // one line each
	Wide    []string `json:"wide,omitempty"`    // what they allow beyond the needs of a call, one line each
	UID     int      `json:"-"`                 // from the kernel, not from the broker
}

type refusal struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// decodeStrict decodes one object strictly. encoding/json alone would accept a key in another case, and use the last of
// two equal keys.
func decodeStrict(payload []byte, into any) error {
	if err := plainKeys(payload); err != nil {
		return malformedError(err)
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return malformedError(nil) // the error text may contain a value
	}
	return nil
}

func malformedError(err error) error {
	return bailey.Invalid.Wrap(err, "cannot parse a message between gateway and broker",
		"use a gateway and a broker of one version")
}

// maxDepth is the nesting depth of a message: an object with a list of objects.
const maxDepth = 3

// plainKeys requires one object whose keys consist of lower-case letters and are unique in their object.
func plainKeys(payload []byte) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	var open []map[string]bool // keys of each level; nil for a list
	key := false               // the next token must be a key
	for n := 0; ; n++ {
		t, err := d.Token()
		if err == io.EOF && n > 0 && len(open) == 0 {
			return nil
		}
		if err != nil {
			return errors.New("it is not JSON")
		}
		if len(open) == 0 && (n > 0 || t != json.Delim('{')) {
			return errors.New("it is not one object")
		}
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
		case string:
			if key {
				if t == "" || strings.Trim(t, "abcdefghijklmnopqrstuvwxyz") != "" || open[len(open)-1][t] {
					return fmt.Errorf("the key %.40q is there twice, or is unknown", t)
				}
				open[len(open)-1][t] = true
				key = false
				continue
			}
		}
		if len(open) > maxDepth {
			return errors.New("it is nested too deeply")
		}
		key = len(open) > 0 && open[len(open)-1] != nil
	}
}

// readAsk decodes a message of a client and checks its limits.
func readAsk(payload []byte) (a brokerRequest, err error) {
	if err := decodeStrict(payload, &a); err != nil {
		return brokerRequest{}, err
	}
	long := len(a.Receipt) > maxWord || len(a.Capability) > maxWord || len(a.Digest) > maxWord || len(a.Key) > maxWord || len(a.Host) > maxWord
	for _, w := range a.Wants {
		long = long || len(w.Name) > maxWord || len(w.Env) > maxWord || len(w.Limits) > maxLimits
	}
	for _, id := range slices.Concat(a.IDs, a.Options) {
		long = long || len(id) > maxWord
	}
	switch {
	case a.Version != version:
		return brokerRequest{}, bailey.Invalid.Errorf("install gateway and broker of one version of bailey",
			"the gateway uses version %d of the broker's protocol, this broker version %d", a.Version, version)
	case long || len(a.Wants) > maxWants || len(a.IDs) > maxWants || len(a.Options) > maxWants || len(a.Signatures) > maxSignatures:
		return brokerRequest{}, bailey.Invalid.New("a message to the broker is too large",
			fmt.Sprintf("a call can use at most %d credentials, and an answer can have at most %d signatures", maxWants,
				maxSignatures))
	}
	return a, nil
}
