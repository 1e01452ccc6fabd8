package broker

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// logText is the only kind of text that a log's key signs here: a checkpoint (c2sp.org/tlog-checkpoint) of three lines,
// or the statement that this key is the log's first, which has no size and no root. The broker never signs that a key
// follows another.
type logText struct {
	origin string
	size   uint64
	root   string // base64; "" for the statement of a first key
}

// Limits as in package audit.
const (
	maxOrigin = 512
	maxTree   = 1 << 61
)

// firstKey begins the statement of a first key, as audit.KeyChange writes it. No checkpoint begins like this, because
// its second line is a number.
const firstKey = "bailey.audit/key/v1\nnone\n"

// readLogText parses a text that the key public should sign. There is one encoding: the parsed text, written again,
// must be the same.
func readLogText(text string, public ed25519.PublicKey) (logText, bool) {
	if rest, ok := strings.CutPrefix(text, firstKey); ok {
		name, _, _ := strings.Cut(rest, "+")
		return logText{origin: name}, validOrigin(name) && text == firstKeyText(name, public)
	}
	line := strings.Split(text, "\n")
	if len(line) != 4 || !validOrigin(line[0]) {
		return logText{}, false
	}
	size, err := strconv.ParseUint(line[1], 10, 64)
	if err != nil || size > maxTree || !validRoot(line[2]) {
		return logText{}, false
	}
	c := logText{line[0], size, line[2]}
	return c, text == fmt.Sprintf("%s\n%d\n%s\n", c.origin, c.size, c.root)
}

// firstKeyText contains the key as an Ed25519 verifier key, type 1 (c2sp.org/signed-note).
func firstKeyText(name string, public ed25519.PublicKey) string {
	material := append([]byte{1}, public...)
	id := sha256.Sum256(append([]byte(name+"\n"), material...))
	return fmt.Sprintf("%s%s+%x+%s\n", firstKey, name, id[:4], base64.StdEncoding.EncodeToString(material))
}

func validOrigin(name string) bool {
	return name != "" && len(name) <= maxOrigin && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r == '+' || unicode.IsSpace(r) || unicode.IsControl(r)
		})
}

// validRoot requires 32 bytes in their only encoding.
func validRoot(root string) bool {
	b, err := base64.StdEncoding.DecodeString(root)
	return err == nil && len(b) == sha256.Size && base64.StdEncoding.EncodeToString(b) == root
}

// parsePublic parses a public half as in messages and the journal: 64 hexadecimal digits, in lower case.
func parsePublic(text string) (ed25519.PublicKey, bool) {
	b, err := hex.DecodeString(text)
	return b, err == nil && len(b) == ed25519.PublicKeySize && hex.EncodeToString(b) == text
}
