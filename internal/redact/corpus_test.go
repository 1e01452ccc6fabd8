package redact

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	update = flag.Bool("update", false, "write the figures of the corpus anew")
	show   = flag.Bool("show", false, "print each record that was missed or touched")
)

type record struct {
	Text, Kind, Source string
	Secrets            []string
}

// corpus reads one of the two files of a directory of testdata: corpus has given records, own has records written for
// this package.
func corpus(t testing.TB, dir, name string) []record {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []record
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil || len(all) < 100 {
		t.Fatalf("%s: %d records, %v", name, len(all), err)
	}
	return all
}

func ruled(t testing.TB) *Rules {
	t.Helper()
	r, err := Compile(Config{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// covered reports whether a find covers every byte of every secret of the record.
func (r record) covered(found []Finding) bool {
	hidden := make([]bool, len(r.Text))
	for _, f := range found {
		for i := f.Start; i < f.End; i++ {
			hidden[i] = true
		}
	}
	for _, s := range r.Secrets {
		at := strings.Index(r.Text, s)
		if at < 0 || slices.Contains(hidden[at:at+len(s)], false) {
			return false
		}
	}
	return true
}

// TestCorpus measures all corpora and compares the result with testdata/figures.txt: no group may get worse. Of the
// given records, at least 97 % of the positive ones must be covered, and at most 0.5 % of the negative ones may have a
// find.
func TestCorpus(t *testing.T) {
	rules := ruled(t)
	good, all := map[string]int{}, map[string]int{}
	count := func(group string, ok bool) {
		for _, g := range []string{group, strings.Fields(group)[0] + " all"} {
			all[g]++
			if ok {
				good[g]++
			}
		}
	}
	for _, dir := range []string{"corpus", "own"} {
		of := map[string]string{"own": "own-"}[dir] // prefix of the group names
		for _, r := range corpus(t, dir, "positives.jsonl") {
			_, found := rules.NewTable().Find(r.Text)
			ok := r.covered(found)
			if !ok && *show {
				t.Logf("missed %s: %.400q secrets %.100q found %v", r.Kind, r.Text, r.Secrets, found)
			}
			group := r.Source
			if of != "" {
				group = r.Kind
			}
			count(of+"covered "+group, ok)
			if ok && of == "" { // category of the find that hides the first secret
				at := strings.Index(r.Text, r.Secrets[0])
				i := slices.IndexFunc(found, func(f Finding) bool { return f.End > at })
				all["as "+found[i].Category]++
				good["as "+found[i].Category]++
			}
		}
		for _, r := range corpus(t, dir, "negatives.jsonl") {
			_, found := rules.NewTable().Find(r.Text)
			if len(found) > 0 && *show {
				t.Logf("touched %s: %.300q found %v", r.Kind, r.Text, found)
			}
			kind, _, _ := strings.Cut(r.Kind, ":")
			count(of+"untouched "+kind, len(found) == 0)
		}
	}
	compare(t, good, all)
	if c := good["covered all"] * 1000 / all["covered all"]; c < 970 {
		t.Errorf("%d of a thousand positive records are covered, want 970", c)
	}
	if u := good["untouched all"] * 1000 / all["untouched all"]; u < 995 {
		t.Errorf("%d of a thousand negative records are untouched, want 995", u)
	}
}

// compare logs the figures and compares them with the recorded ones.
func compare(t *testing.T, good, all map[string]int) {
	t.Helper()
	var now strings.Builder
	for _, g := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&now, "%d/%d %s\n", good[g], all[g], g)
	}
	t.Logf("\n%s", now.String())
	name := filepath.Join("testdata", "figures.txt")
	if *update {
		if err := os.WriteFile(name, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(strings.TrimSpace(string(recorded)), "\n") {
		var was, of int
		if _, err := fmt.Sscanf(l, "%d/%d ", &was, &of); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		_, group, _ := strings.Cut(l, " ")
		if good[group] < was || all[group] < of {
			t.Errorf("%s: %d of %d, was %d of %d", group, good[group], all[group], was, of)
		}
	}
}
