package pack

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const maxShown = 60 // bytes of an untrusted value that an error repeats

// safeText makes untrusted text safe for an error: one line, control characters escaped, shortened.
func safeText(v string) string {
	q := strconv.QuoteToGraphic(clipText(v))
	return q[1 : len(q)-1]
}

// clipText cuts v to maxShown bytes at a character boundary.
func clipText(v string) string {
	if len(v) <= maxShown {
		return v
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(v[cut]) {
		cut--
	}
	return v[:cut] + "…"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// didYouMean returns "; did you mean …?" if a known word is similar to the unknown one.
func didYouMean(word string, known []string) string {
	best := closestWord(word, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// closestWord returns the known word with the smallest edit distance. The limit is two, or a third of a long word, or one
// for a word of two letters.
func closestWord(word string, known []string) string {
	best, least := "", max(min(2, len(word)-1), min(len(word), maxShown)/3)+1
	for _, k := range known {
		if d := editDistance(clipText(word), k); d < least {
			best, least = k, d
		}
	}
	return best
}

// editDistance returns the Levenshtein distance of bytes, in lower case.
func editDistance(a, b string) int {
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
