package strictyaml

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const maxShown = 80 // bytes of an untrusted value that a fault repeats

// Clip shortens a value for a message, at a character boundary.
func Clip(v string) string {
	if len(v) <= maxShown {
		return v
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(v[cut]) {
		cut--
	}
	return v[:cut] + "…"
}

// DidYouMean returns "; did you mean …?" if a known word is similar to the unknown one.
func DidYouMean(word string, known []string) string {
	if best := ClosestWord(word, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// ClosestWord returns the known word with the smallest edit distance. The limit is two, or a third of a long word, or one
// for a word of two letters.
func ClosestWord(word string, known []string) string {
	best, least := "", max(min(2, len(word)-1), min(len(word), maxShown)/3)+1
	for _, k := range known {
		if d := EditDistance(Clip(word), k); d < least {
			best, least = k, d
		}
	}
	return best
}

// EditDistance returns the Levenshtein distance of bytes, in lower case.
func EditDistance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
