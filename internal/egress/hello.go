package egress

import (
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/crypto/cryptobyte"
)

// hello is the part of a ClientHello (RFC 8446, section 4.1.2) that identifies the server.
type hello struct {
	name   string // from the server_name extension (RFC 6066), unchanged
	named  bool
	hidden bool // has encrypted_client_hello, of any version
}

// errNotTLS means that the bytes do not begin a TLS handshake. errHello means that a ClientHello is inconsistent.
var (
	errNotTLS = errors.New("it is not TLS")
	errHello  = errors.New("its ClientHello is malformed")
)

// maxHello limits a ClientHello, maxHelloRaw a ClientHello with its records, in bytes. Records of one byte are legal,
// but not a reason to keep more. Post-quantum key shares take about 2 KiB.
const (
	maxHello    = 16 << 10
	maxHelloRaw = 64 << 10
)

const (
	recordHandshake = 22
	messageHello    = 1
	maxRecord       = 1 << 14
	extServerName   = 0
	extECH          = 0xfe0d
	extESNI         = 0xffce // predecessor of ECH
	maxExtensions   = 256
)

// readHello reads the records of one ClientHello and no byte beyond them. raw has all bytes that were read, even if
// readHello fails.
func readHello(r io.Reader) (h hello, raw []byte, err error) {
	var message []byte
	for {
		first := len(raw) == 0
		part, err := readRecord(r, &raw)
		if err != nil {
			if first && len(raw) > 0 && raw[0] != recordHandshake {
				err = errNotTLS
			}
			return h, raw, err
		}
		message = append(message, part...)
		switch whole, err := wholeHello(message); {
		case err != nil:
			return h, raw, err
		case whole:
			h, err = parseHello(message[4:])
			return h, raw, err
		case len(raw) > maxHelloRaw:
			return h, raw, errHello
		}
	}
}

// readRecord appends one plaintext record of a handshake to raw and returns its content (RFC 8446, section 5.1). The
// version field is 3.1 or 3.3 and has no meaning. The first byte is read by itself, because a client that does not
// speak TLS may never send five.
func readRecord(r io.Reader, raw *[]byte) ([]byte, error) {
	at := len(*raw)
	for _, n := range []int{1, 4} {
		if err := readMore(r, raw, n); err != nil {
			return nil, err
		}
		if (*raw)[at] != recordHandshake {
			return nil, errHello
		}
	}
	head := (*raw)[at:]
	size := int(binary.BigEndian.Uint16(head[3:]))
	if head[1] != 3 || head[2] > 4 || size == 0 || size > maxRecord {
		return nil, errHello
	}
	err := readMore(r, raw, size)
	return (*raw)[min(at+5, len(*raw)):], err
}

// readMore reads n more bytes, or as many as arrive before an error.
func readMore(r io.Reader, raw *[]byte, n int) error {
	at := len(*raw)
	*raw = append(*raw, make([]byte, n)...)
	k, err := io.ReadFull(r, (*raw)[at:])
	*raw = (*raw)[:at+k]
	return err
}

// wholeHello reports whether a handshake message is complete. Its records must contain nothing else, because a client
// waits after its ClientHello.
func wholeHello(message []byte) (bool, error) {
	if message[0] != messageHello {
		return false, errHello
	}
	if len(message) < 4 {
		return false, nil
	}
	size := 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
	if size > maxHello || len(message) > size {
		return false, errHello
	}
	return len(message) == size, nil
}

// parseHello parses the body of a ClientHello. It is stricter than servers: every length must be exact, and no
// extension may occur twice.
func parseHello(body []byte) (h hello, err error) {
	b := cryptobyte.String(body)
	var session, ciphers, compression, list cryptobyte.String
	if !b.Skip(2+32) || // version, random
		!b.ReadUint8LengthPrefixed(&session) || len(session) > 32 ||
		!b.ReadUint16LengthPrefixed(&ciphers) || len(ciphers) < 2 || len(ciphers)%2 != 0 ||
		!b.ReadUint8LengthPrefixed(&compression) || len(compression) < 1 { // at least the null method
		return h, errHello
	}
	if b.Empty() {
		return h, nil // a hello of 1999, without extensions: no host name
	}
	if !b.ReadUint16LengthPrefixed(&list) || !b.Empty() {
		return h, errHello
	}
	seen := map[uint16]bool{}
	for !list.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !list.ReadUint16(&kind) || !list.ReadUint16LengthPrefixed(&data) || seen[kind] || len(seen) >= maxExtensions {
			return h, errHello
		}
		seen[kind] = true
		switch kind {
		case extECH, extESNI:
			h.hidden = true
		case extServerName:
			if h.name, err = serverName(data); err != nil {
				return h, err
			}
			h.named = true
		}
	}
	return h, nil
}

// serverName returns the name in a server_name extension. There must be exactly one, of the only defined type.
func serverName(data cryptobyte.String) (string, error) {
	var list, name cryptobyte.String
	var kind uint8
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || !list.ReadUint8(&kind) || kind != 0 ||
		!list.ReadUint16LengthPrefixed(&name) || !list.Empty() || name.Empty() {
		return "", errHello
	}
	return string(name), nil
}
