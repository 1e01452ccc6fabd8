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

// logText is what a log's key signs here, and nothing else: a checkpoint (c2sp.org/tlog-checkpoint) of three lines, or
// the log's word that this key is its first, which says no size and has no root. That a key follows another it never signs.
type logText struct {
	origin string
	size   uint64
	root   string // base64; "" for the word of a first key
}

// Bounds as package audit has them.
const (
	maxOrigin = 512
	maxTree   = 1 << 61
)

// firstKey begins the word of a first key, as audit.KeyChange writes it. No checkpoint reads so: its second line is a number.
const firstKey = "bailey.audit/key/v1\nnone\n"

// readLogText reads what public is asked to sign. There is one encoding: what was read, written again, is the same text.
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

// firstKeyText has the key as a verifier key of Ed25519, type 1 (c2sp.org/signed-note).
func firstKeyText(name string, public ed25519.PublicKey) string {
	material := append([]byte{1}, public...)
	id := sha256.Sum256(append([]byte(name+"\n"), material...))
	return fmt.Sprintf("%s%s+%x+%s\n", firstKey, name, id[:4], base64.StdEncoding.EncodeToString(material))
}

func validOrigin(name string) bool {
	return name != "" && len(name) <= maxOrigin && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '+' || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

// validRoot wants 32 bytes in their one encoding.
func validRoot(root string) bool {
	b, err := base64.StdEncoding.DecodeString(root)
	return err == nil && len(b) == sha256.Size && base64.StdEncoding.EncodeToString(b) == root
}

// parsePublic reads a public half as messages and the journal name it: 64 digits, in lower case.
func parsePublic(text string) (ed25519.PublicKey, bool) {
	b, err := hex.DecodeString(text)
	return b, err == nil && len(b) == ed25519.PublicKeySize && hex.EncodeToString(b) == text
}
