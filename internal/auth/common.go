package auth

import (
	"crypto/sha256"
	_ "embed"
	"sort"
	"strings"
	"unicode/utf8"

	"bailey"
)

// commonPasswords has the 10,000 most frequent passwords of 8 characters or more, in lower case, from the list of zxcvbn
// (MIT licence), as the sorted first 5 bytes of their SHA-256: the words themselves are of no use here.
//
//go:embed common.bin
var commonPasswords string

const commonWidth = 5

// isCommon reports whether a password is one of the first that an attacker tries. One of 10^8 others is taken for one.
func isCommon(password string) bool {
	sum := sha256.Sum256([]byte(strings.ToLower(password)))
	want := string(sum[:commonWidth])
	n := len(commonPasswords) / commonWidth
	at := func(i int) string { return commonPasswords[i*commonWidth : (i+1)*commonWidth] }
	i := sort.Search(n, func(i int) bool { return at(i) >= want })
	return i < n && at(i) == want
}

// checkGuessable refuses a password that is common, or has little beyond the words that everybody knows of the account:
// the product's name, and words (a name, an address, an organisation).
func checkGuessable(password string, words []string) error {
	const hint = "use a sentence, or let a password manager make one"
	if isCommon(password) {
		return bailey.Invalid.New("this password is one of the most frequent ones, which attackers try first", hint)
	}
	rest := strings.ToLower(password)
	for _, text := range append([]string{"bailey"}, words...) {
		local, _, _ := strings.Cut(strings.ToLower(text), "@")
		for word := range strings.FieldsSeq(local) {
			if utf8.RuneCountInString(word) >= 4 {
				rest = strings.ReplaceAll(rest, word, "")
			}
		}
	}
	if utf8.RuneCountInString(rest) < 6 && rest != strings.ToLower(password) {
		return bailey.Invalid.New("this password is little more than a name that belongs to the account", hint)
	}
	return nil
}
