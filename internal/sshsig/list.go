package sshsig

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	"bailey"
)

// Limits of a list of keys: maxList and maxName are in bytes, maxKeys is a number of keys.
const (
	maxList = 1 << 20
	maxKeys = 4096
	maxName = 128
)

// ParseKeys reads a list of trusted keys, one per line: a name, the type, the key in base64, and an optional comment,
// which is ignored. Empty lines and lines that begin with # are skipped. The format is that of an allowed_signers file
// (ssh-keygen(1)) without options and patterns: a word that would restrict or extend a key is refused and not ignored.
// A name may have several keys, but a key must have only one name.
func ParseKeys(list []byte) ([]Key, error) {
	if len(list) > maxList {
		return nil, bailey.Invalid.Errorf("",
			"the list of keys has %d bytes, at most %d are read", len(list), maxList)
	}
	var keys []Key
	seen := map[string]int{}
	n := 0
	for line := range bytes.SplitSeq(list, []byte("\n")) {
		n++
		text := string(line)
		if trimmed := strings.Trim(text, " \t"); trimmed == "" || trimmed[0] == '#' {
			continue
		}
		key, wrong := parseKey(text)
		if first, twice := seen[string(key.blob)]; wrong == "" && twice {
			wrong = fmt.Sprintf("the key is that of line %d", first)
		}
		if wrong == "" && len(keys) == maxKeys {
			wrong = fmt.Sprintf("a list holds at most %d keys", maxKeys)
		}
		if wrong != "" {
			return nil, bailey.Invalid.Errorf("write a line as NAME TYPE KEY, with the last two from the .pub file",
				"line %d of the list of keys: %s", n, wrong)
		}
		seen[string(key.blob)] = n
		keys = append(keys, key)
	}
	return keys, nil
}

// parseKey reads one line. If the line is not accepted, the second result is the reason.
func parseKey(line string) (Key, string) {
	for _, c := range []byte(line) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return Key{}, "a control character stands in it"
		}
	}
	words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
	if len(words) < 3 {
		return Key{}, "it wants a name, a type and a key"
	}
	if !isName(words[0]) {
		return Key{}, fmt.Sprintf("%.40q is no name: letters, digits and . _ @ + - are, no pattern is", words[0])
	}
	if !isKind(words[1]) {
		return Key{}, fmt.Sprintf("%.60q is none of the types %s; options are not known here", words[1],
			strings.Join(keyTypes(), ", "))
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(words[2])
	if err != nil {
		return Key{}, "the key is not base64"
	}
	return newKey(words[0], words[1], blob)
}

func isName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("._@+-", c) < 0 {
			return false
		}
	}
	return len(s) <= maxName && s[0] != '-'
}
