package pack

import (
	"math"
	"slices"
	"sort"
	"strings"
	"unicode"

	"bailey/internal/strictyaml"
)

// Match is a search result. A higher score is better; only the order has a meaning.
type Match struct {
	Capability *Capability
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
)

// Search returns the capabilities that match the question, best first and then by id, at most limit of them, or all if
// limit is not positive. Every word counts at its best place: the id, the description, the input names, the description
// of the pack or the docs. It may match exactly, in another form, as a prefix, as a synonym or with a misspelling. A
// word counts for more if it is rare or if its part of the manifest has few words. A capability that has all the words
// scores higher.
func (c *Catalog) Search(question string, limit int) []Match {
	asked := askedWords(question)
	all := c.All()
	worth := make([][]float64, len(all)) // by capability, then by word
	having := make([]int, len(asked))
	fields, known := make([][]searchField, len(all)), make([]bool, len(asked))
	about := map[string]searchField{}
	for _, p := range c.packs {
		about[p.Name] = newField(inPack, splitWords(p.Description))
	}
	for i, m := range all {
		fields[i] = append(m.searchFields(), about[m.Pack])
		for k, word := range asked {
			known[k] = known[k] || slices.ContainsFunc(fields[i], func(f searchField) bool {
				return slices.Contains(f.words, word.text) || slices.Contains(f.stems, word.stem)
			})
		}
	}
	for i := range all {
		worth[i] = make([]float64, len(asked))
		for k, word := range asked {
			if worth[i][k] = bestIn(fields[i], word, !known[k]); worth[i][k] > 0 {
				having[k]++
			}
		}
	}
	var found []Match
	for i, m := range all {
		if s := searchScore(worth[i], having, len(all)); s > 0 {
			found = append(found, Match{m, s})
		}
	}
	sort.SliceStable(found, func(i, k int) bool { return found[i].Score > found[k].Score }) // All is sorted by id
	if limit > 0 {
		found = found[:min(limit, len(found))]
	}
	return found
}

// searchScore adds the worth of the words, each weighted by its rarity (inverse document frequency of BM25), and reduces the
// sum for missing words.
func searchScore(worth []float64, having []int, total int) float64 {
	sum, hits := 0.0, 0
	for k, w := range worth {
		if w > 0 {
			n := float64(having[k])
			sum += w * math.Log(1+(float64(total)-n+0.5)/(n+0.5))
			hits++
		}
	}
	if hits == 0 {
		return 0
	}
	return sum * float64(hits) / float64(len(worth))
}

// searchField contains the words of one part of a manifest and the worth of each word.
type searchField struct {
	words, stems []string
	worth        float64
}

// usual is the number of words in a part at which each one has the full weight. In a longer part each word counts for
// less.
const usual = 12

func newField(worth float64, words []string) searchField {
	f := searchField{words: words, worth: worth * usual / (0.9*usual + 0.1*max(float64(len(words)), usual/2))}
	for _, w := range words {
		f.stems = append(f.stems, wordStem(w))
	}
	return f
}

func (m *Capability) searchFields() []searchField {
	_, action, _ := strings.Cut(string(m.ID), ".")
	id := splitWords(string(m.ID) + " " + m.Pack)
	id = append(id, strings.Join(splitWords(action), "")) // branch-list also matches branchlist
	docs := splitWords(m.Docs)
	for _, name := range m.schema.names {
		docs = append(docs, splitWords(m.schema.props[name].Description)...)
	}
	return []searchField{
		newField(inID, id),
		newField(inDescription, splitWords(m.Description+" "+strings.Join(m.ArgvPattern(), " "))),
		newField(inInputs, splitWords(strings.Join(m.InputNames(), " "))),
		newField(inDocs, docs),
	}
}

// InputNames returns the names of the inputs, sorted.
func (m *Capability) InputNames() []string { return slices.Clone(m.schema.names) }

// bestIn returns the worth of a word for a capability. A word is treated as a misspelling only if no capability
// contains it.
func bestIn(fields []searchField, word searchWord, misspelt bool) float64 {
	best := 0.0
	for _, f := range fields {
		for i, w := range f.words {
			like := wordSimilarity(word.text, w, misspelt)
			switch {
			case word.stem == f.stems[i]:
				like = max(like, otherForm)
			case slices.Contains(word.alike, f.stems[i]):
				like = max(like, otherWord)
			}
			best = max(best, f.worth*like)
		}
	}
	return best
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
		if len(asked) < maxAsked && !strings.Contains(filler, " "+w+" ") &&
			!slices.ContainsFunc(asked, func(a searchWord) bool { return a.text == w }) {
			asked = append(asked, newWanted(w))
		}
	}
	return asked
}

// splitWords splits text into lower-case words of letters and digits. For example, "maxCount" is two words. The length of
// each is limited.
func splitWords(text string) []string {
	var list []string
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			list = append(list, strictyaml.Clip(b.String()))
			b.Reset()
		}
	}
	lower := false
	for _, r := range text {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r)
		if !letter || lower && unicode.IsUpper(r) {
			flush()
		}
		if letter {
			b.WriteRune(unicode.ToLower(r))
		}
		lower = unicode.IsLower(r)
	}
	flush()
	return list
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
