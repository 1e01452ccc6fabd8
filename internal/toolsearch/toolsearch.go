// Package toolsearch finds capabilities by the words of a question.
package toolsearch

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"bailey/pack"

	"bailey/internal/strictyaml"
)

// Match is a search result. A higher score is better; only the order has a meaning.
type Match struct {
	Capability *pack.Capability
	Score      float64
}

// Weight of a word by the place where it occurs.
const (
	inID          = 4.0
	inDescription = 3.0
	inInputs      = 2.0
	inDocs        = 1.0 // also in the description of an input
	inPack        = 1.0 // in the description of the pack
)

// Factors for another form of the word, and for a synonym.
const (
	otherForm = 0.8
	otherWord = 0.5
)

// Limits of a question. The rest is ignored.
const (
	maxAsked    = 16 // words
	maxQuestion = 4 << 10
	maxWord     = 64 // bytes
)

// Search returns the capabilities that match the question, best first and then by id, at most limit of them, or all if
// limit is not positive. Every word counts at its best place: the id, the description, the input names, the description
// of the pack or the docs. It may match exactly, in another form, as a prefix, as a synonym or with a misspelling. A
// word counts for more if it is rare or if its part of the manifest has few words. A capability that has all the words
// scores higher. Of equal scores, the capability that changes less comes first.
func Search(c *pack.Catalog, question string, limit int) []Match {
	return newIndex(c).findMatches(question, limit)
}

func (x index) findMatches(question string, limit int) []Match {
	asked, hits := askedWords(question), make([]int, len(x.all))
	found := make([]Match, len(x.all))
	for i, m := range x.all {
		found[i].Capability = m
	}
	for _, word := range asked {
		worth, having := x.weighWord(word)
		// inverse document frequency of BM25
		rarity := math.Log(1 + (float64(len(worth))-having+0.5)/(having+0.5))
		for i, w := range worth {
			if w > 0 {
				found[i].Score += w * rarity
				hits[i]++
			}
		}
	}
	for i, n := range hits {
		found[i].Score *= float64(n) / float64(max(len(asked), 1))
	}
	found = slices.DeleteFunc(found, func(m Match) bool { return m.Score == 0 })
	slices.SortStableFunc(found, func(a, b Match) int { // All is sorted by id
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Capability.SideEffect.Rank(), b.Capability.SideEffect.Rank()))
	})
	if limit > 0 {
		found = found[:min(limit, len(found))]
	}
	return found
}

// index contains the words of all capabilities.
type index struct {
	all    []*pack.Capability
	fields [][]field         // by capability
	stems  map[string]string // by word
}

// field contains the words of one part of a manifest and the worth of each word.
type field struct {
	words []string
	worth float64
}

func newIndex(c *pack.Catalog) index {
	x := index{all: c.All(), stems: map[string]string{}}
	about := map[string]field{}
	for _, p := range c.Packs() {
		about[p.Name] = x.newField(inPack, p.Description)
	}
	for _, m := range x.all {
		_, action, _ := strings.Cut(string(m.ID), ".")
		joined := strings.Join(splitWords(action), "") // branch-list also matches branchlist
		x.fields = append(x.fields, []field{
			x.newField(inID, string(m.ID)+" "+m.Pack+" "+joined),
			x.newField(inDescription, m.Description+" "+strings.Join(m.ArgvPattern(), " ")),
			x.newField(inInputs, strings.Join(m.InputNames(), " ")),
			x.newField(inDocs, m.Docs+" "+m.InputText()),
			about[m.Pack],
		})
	}
	return x
}

// usual is the number of words in a part at which each one has the full weight. In a longer part each word counts for
// less.
const usual = 12

func (x index) newField(worth float64, text string) field {
	words := splitWords(text)
	for _, w := range words {
		x.stems[w] = wordStem(w)
	}
	return field{words, worth * usual / (0.9*usual + 0.1*max(float64(len(words)), usual/2))}
}

// weighWord returns the worth of a word for each capability, and the number of those that have it. A word is treated as
// a misspelling only if no capability contains it.
func (x index) weighWord(word searchWord) (worth []float64, having float64) {
	_, known := x.stems[word.text]
	for _, stem := range x.stems {
		known = known || stem == word.stem
	}
	like := map[string]float64{} // by word
	for w, stem := range x.stems {
		switch like[w] = wordSimilarity(word.text, w, !known); {
		case stem == word.stem:
			like[w] = max(like[w], otherForm)
		case slices.Contains(word.alike, stem):
			like[w] = max(like[w], otherWord)
		}
	}
	worth = make([]float64, len(x.fields))
	for i, fields := range x.fields {
		for _, f := range fields {
			for _, w := range f.words {
				worth[i] = max(worth[i], f.worth*like[w])
			}
		}
		if worth[i] > 0 {
			having++
		}
	}
	return worth, having
}

// wordSimilarity returns 1 for the same word and 0 for a different one. Prefixes count from two letters, endings such as a
// plural from three, and misspellings from four.
func wordSimilarity(asked, word string, misspelt bool) float64 {
	short, long := len(asked), len(word)
	switch {
	case asked == word:
		return 1
	case short >= 2 && strings.HasPrefix(word, asked):
		return 0.5 + 0.4*float64(short)/float64(long)
	case long >= 3 && short-long <= 3 && strings.HasPrefix(asked, word):
		return 0.7
	case misspelt && short >= 4 && long >= 4 && strictyaml.EditDistance(asked, word) <= short/3:
		return 0.4
	}
	return 0
}

// askedWords returns the words of the question without filler and duplicates.
func askedWords(question string) []searchWord {
	var asked []searchWord
	for _, w := range splitWords(question[:min(len(question), maxQuestion)]) {
		w = strings.ToValidUTF8(w[:min(len(w), maxWord)], "")
		if len(asked) < maxAsked && !strings.Contains(filler, " "+w+" ") &&
			!slices.ContainsFunc(asked, func(a searchWord) bool { return a.text == w }) {
			asked = append(asked, newWanted(w))
		}
	}
	return asked
}

// camelCase matches the end of one word and the beginning of the next one.
var camelCase = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(\p{Ll})(\p{Lu})`) })

// splitWords splits text into lower-case words of letters and digits. For example, "maxCount" is two words.
func splitWords(text string) []string {
	text = strings.ToLower(camelCase().ReplaceAllString(text, "$1 $2"))
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

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
