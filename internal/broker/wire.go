package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"bailey"
)

// version is that of the protocol.
const version = 1

// Bounds on what crosses. A text has 64 KiB at most, and JSON may write a byte of it as six.
const (
	maxAsk        = 1 << 20 // bytes of a frame
	maxWants      = 16
	maxSignatures = 32
	maxWord       = 256
)

// The kinds of frames.
const (
	askHello  = 'h'
	askScope  = 's'
	askLend   = 'l'
	askReturn = 'r'
	askApply  = 'a'
	askMake   = 'm'
	askKeys   = 'k'
	askSign   = 'g'
	answerOK  = 'o'
	answerErr = 'x'
	aValue    = 'v'
)

// ask is all that a client says; which of it is looked at depends on the kind of the frame.
type ask struct {
	Version    int      `json:"version"`
	Receipt    string   `json:"receipt,omitempty"`
	Capability string   `json:"capability,omitempty"`
	Wants      []want   `json:"wants,omitempty"`
	Text       string   `json:"text,omitempty"`
	Signatures []string `json:"signatures,omitempty"`
	IDs        []string `json:"ids,omitempty"`
	Digest     string   `json:"digest,omitempty"`
	Key        string   `json:"key,omitempty"` // a public half, in hex
}

type want struct {
	Name string `json:"name"`
	Env  string `json:"env"`
	File bool   `json:"file,omitempty"`
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

// lent names what the frames of values that follow hold.
type lent struct {
	Leases []lease `json:"leases"`
}

type lease struct {
	ID    string    `json:"id"`
	Mint  string    `json:"mint,omitempty"` // what the issuer calls it
	Until time.Time `json:"until,omitzero"` // when the value itself is worth nothing any more, where that is known
}

// What is answered about keys that sign for logs; a key is named by its public half, in hex.
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

// Hello is what a broker says of itself.
type Hello struct {
	Version int      `json:"version"`
	Program string   `json:"program"`
	PID     int      `json:"pid"`
	Table   string   `json:"table"`             // digest of what was applied
	Changed bool     `json:"changed,omitempty"` // the file is another by now
	Open    int      `json:"open"`              // loans
	Leases  []string `json:"leases"`            // a line for each
	UID     int      `json:"-"`                 // the kernel's word, not the broker's
}

type refusal struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// decode reads one object strictly. encoding/json would take a key in other letters, and the last of two.
func decode(payload []byte, into any) error {
	if err := plainKeys(payload); err != nil {
		return malformed(err)
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return malformed(nil) // its words may hold a value
	}
	return nil
}

func malformed(err error) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: "a message between gateway and broker does not read", Hint: "use a gateway and a broker of one version", Err: err}
}

// maxDepth is how deep a message nests: an object with a list of objects.
const maxDepth = 3

// plainKeys wants one object whose keys are lower-case letters, which have no other case to be found in, and stand once
// in their object.
func plainKeys(payload []byte) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	var open []map[string]bool // of each level its keys; nil for a list
	key := false               // a key comes next
	for n := 0; ; n++ {
		t, err := d.Token()
		if err == io.EOF && n > 0 && len(open) == 0 {
			return nil
		}
		if err != nil {
			return errors.New("it is no JSON")
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
					return fmt.Errorf("the key %.40q stands there twice, or is none", t)
				}
				open[len(open)-1][t] = true
				key = false
				continue
			}
		}
		if len(open) > maxDepth {
			return errors.New("it is nested too deep")
		}
		key = len(open) > 0 && open[len(open)-1] != nil
	}
}

// readAsk reads what a client says, and bounds it.
func readAsk(payload []byte) (a ask, err error) {
	if err := decode(payload, &a); err != nil {
		return ask{}, err
	}
	long := len(a.Receipt) > maxWord || len(a.Capability) > maxWord || len(a.Digest) > maxWord || len(a.Key) > maxWord
	for _, w := range a.Wants {
		long = long || len(w.Name) > maxWord || len(w.Env) > maxWord
	}
	for _, id := range a.IDs {
		long = long || len(id) > maxWord
	}
	switch {
	case a.Version != version:
		return ask{}, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the gateway speaks version %d of the broker's protocol, this broker speaks %d", a.Version, version),
			Hint: "install both of one version of bailey"}
	case long || len(a.Wants) > maxWants || len(a.IDs) > maxWants || len(a.Signatures) > maxSignatures:
		return ask{}, &bailey.Error{Kind: bailey.Invalid, Message: "a message to the broker is over its bounds",
			Hint: fmt.Sprintf("a call wants at most %d credentials, and an answer carries at most %d signatures", maxWants, maxSignatures)}
	}
	return a, nil
}
