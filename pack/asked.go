package pack

import (
	"slices"
	"strings"
)

// filler contains words that carry no meaning in a search.
const filler = " a about all am an and any anything are as at be been by can could did do does for from get give had has have how i in into is it its " +
	"let lets ll me much many my need now of on one or our out please re s so some t tell that the their them there these they this to up us use used using want was " +
	"we were what when where which who whose why will with would you your "

// thesaurus has one group of synonyms per line, with the names of products and their abbreviations.
const thesaurus = `
download fetch get pull bring copy
upload push publish
create make new add
show view display print inspect describe details
change differ diff modify edit
delete remove
author wrote
last latest newest recent lately
happen event
permission role allowed may can access
compile build check
page url website
log output wrote
code source
format fmt
crash error mistake fail
disk storage space
search find grep
deploy rollout release
setting config configuration
variable env environment
machine vm instance server host
time clock date
amazon aws
azure az microsoft
gcp gcloud google
kubernetes k8s kubectl
argo argocd
golang go
rust cargo crate
python pip venv
javascript node npm
dependency package module
`

// searchWord is a word of a search.
type searchWord struct {
	text, stem string
	alike      []string // stems of its synonyms
}

func newWanted(text string) searchWord {
	w := searchWord{text: text, stem: wordStem(text)}
	for line := range strings.Lines(thesaurus) {
		var stems []string
		for _, one := range strings.Fields(line) {
			stems = append(stems, wordStem(one))
		}
		if slices.Contains(stems, w.stem) {
			w.alike = append(w.alike, stems...)
		}
	}
	return w
}

// wordStem returns the common part of the forms of an English word, for example of change, changes, changed and changing,
// or run and running. It is compared only with other stems and need not be a word.
func wordStem(word string) string {
	const least = 3 // minimum number of remaining letters
	for _, ending := range []string{"ies", "ing", "ed", "es", "s", "e"} {
		rest, ok := strings.CutSuffix(word, ending)
		if !ok || len(rest) < least || ending == "s" && strings.HasSuffix(rest, "s") {
			continue
		}
		if word = rest; ending == "ies" {
			word += "y"
		}
		break
	}
	if n := len(word); n > least && word[n-1] == word[n-2] {
		word = word[:n-1]
	}
	return word
}
