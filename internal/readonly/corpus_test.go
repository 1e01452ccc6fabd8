package readonly

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"bailey/internal/ktest"
)

// corpusLine is one line of a corpus file.
type corpusLine struct{ Cmd, Class, Tier string }

func readCorpus(t testing.TB, name string) (lines []corpusLine) {
	t.Helper()
	dir := os.Getenv("BAILEY_CORPUS")
	if dir == "" {
		ktest.Missing(t, "corpus", errors.New("BAILEY_CORPUS names no directory of lines"))
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var l corpusLine
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// TestCorpusAttacks checks that every attack is refused. The lines are kept outside of the repository (BAILEY_CORPUS: a
// directory).
func TestCorpusAttacks(t *testing.T) {
	lines := readCorpus(t, "attacks.jsonl")
	for _, l := range lines {
		switch v := Check(l.Cmd, Options{}); {
		case v.Accepted():
			t.Errorf("%s: %q is accepted as %q", l.Class, l.Cmd, v.Text)
		case v.Hint == "":
			t.Errorf("%s: %q is refused without a hint: %s", l.Class, l.Cmd, v.Reason)
		}
	}
	t.Log(len(lines), "attacks")
}

// TestCorpusBenign checks that at most 1 % of the first tier and 5 % of the wider tier are refused.
func TestCorpusBenign(t *testing.T) {
	all, refused := map[string]int{}, map[string]int{}
	for _, l := range readCorpus(t, "benign.jsonl") {
		all[l.Tier]++
		v := Check(l.Cmd, Options{})
		if !v.Accepted() {
			refused[l.Tier]++
			t.Logf("%q is refused: %s", l.Cmd, v.Reason)
			continue
		}
		if again := Check(v.Text, Options{}); again.Text != v.Text {
			t.Errorf("%q: %q is checked again as %q %s", l.Cmd, v.Text, again.Text, again.Reason)
		}
	}
	for tier, limit := range map[string]float64{"seed": 0.01, "wider": 0.05} {
		t.Logf("tier %s: %d of %d lines are refused", tier, refused[tier], all[tier])
		if share := float64(refused[tier]) / float64(all[tier]); !(share <= limit) {
			t.Errorf("tier %s: %.1f %% of the lines are refused", tier, 100*share)
		}
	}
}

// TestCorpusUnclear lists the decision about each line that is a matter of policy.
func TestCorpusUnclear(t *testing.T) {
	for _, l := range readCorpus(t, "unclear.jsonl") {
		if v := Check(l.Cmd, Options{}); v.Accepted() {
			t.Logf("accepted %q as %q", l.Cmd, v.Text)
		} else {
			t.Logf("refused  %q: %s", l.Cmd, v.Reason)
		}
	}
}

// BenchmarkCorpus measures the benign lines of the corpus; the figure is the time of all lines divided by their number.
func BenchmarkCorpus(b *testing.B) {
	lines := readCorpus(b, "benign.jsonl")
	for i := 0; b.Loop(); i++ {
		Check(lines[i%len(lines)].Cmd, Options{})
	}
}
