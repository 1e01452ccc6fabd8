//go:build linux

package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestJailRatios checks that each row is compared with the row that its requirement names. If that row is missing,
// there must be no ratio.
func TestJailRatios(t *testing.T) {
	took := func(us ...int) (all []time.Duration) {
		for _, n := range us {
			all = append(all, time.Duration(n)*time.Microsecond)
		}
		return all
	}
	times := map[string][]time.Duration{
		"bwrap": took(4500, 1, 9000), "bare": took(500), "cold": took(9000), "cold-cage": took(4000), "wall": took(6000), "warm": took(1000, 900, 800), "warm-2workers": took(990, 990),
	}
	words := func() (all []string) {
		for _, r := range newJailRows(times) {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %d %.0f %.0f %.3f %s %s", r.Name, r.N, r.P50, r.P99, r.Ratio, r.Of, r.limitText())))
		}
		return all
	}
	ofBare := []string{
		"bare 1 500 500 1.000 bare", "warm 3 900 1000 1.800 bare", "warm-2workers 2 990 990 1.980 bare", "cold 1 9000 9000 18.000 bare",
		"cold-cage 1 4000 4000 8.000 bare", "wall 1 6000 6000 12.000 bare", "bwrap 3 4500 9000 9.000 bare",
	}
	ofBwrap := []string{
		"warm 3 900 1000 0.100 bwrap - bare ≤ 0.1", "warm-2workers 2 990 990 0.122 bwrap - bare",
		"cold 1 9000 9000 2.125 bwrap - bare", "cold-cage 1 4000 4000 0.875 bwrap - bare",
		"wall 1 6000 6000 1.375 bwrap - bare", "bwrap 3 4500 9000 1.000 bwrap - bare",
	}
	limits := []string{"warm-2workers 2 990 990 1.100 warm ≤ 1.1", "cold 1 9000 9000 2.000 bwrap ≤ 1", "wall 1 6000 6000 1.500 cold-cage ≤ 2"}
	sorted := func(lists ...[]string) []string { return slices.Sorted(slices.Values(slices.Concat(lists...))) }
	if got, want := sorted(words()), sorted(ofBare, ofBwrap, limits); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	times["bwrap-dev"] = times["bwrap"]
	delete(times, "bwrap")
	want := sorted(ofBare, ofBwrap, limits)
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "bwrap", "bwrap-dev")
	}
	if got := sorted(words()); !slices.Equal(got, sorted(want)) {
		t.Errorf("with devices: %q\nwant %q", got, want)
	}
	delete(times, "bwrap-dev")
	limits[1] = "cold 1 9000 9000 0.000  ≤ 1"
	if got, want := sorted(words()), sorted(ofBare[:6], []string{"warm 3 900 1000 0.000  ≤ 0.1"}, limits); !slices.Equal(got, want) {
		t.Errorf("without bwrap: %q\nwant %q", got, want)
	}
}

// TestBallast checks that the heap has the requested size and stays reachable.
func TestBallast(t *testing.T) {
	wall := allocateHeap(1 << 20)
	if n := len(wall) * 72; n > 1<<20 || n < 1<<20-72 {
		t.Errorf("%d bytes", n)
	}
	for i, b := range wall {
		if b.on != wall[i/2] && i > 0 {
			t.Fatalf("brick %d leads nowhere", i)
		}
	}
}

// TestTable checks that the table has the columns that have a value, and no row that was not measured.
func TestTable(t *testing.T) {
	var out strings.Builder
	writeTable(&out, []Row{{Name: "bare", N: 3, P50: 1234.5, P99: 99.5}, {Name: "bwrap", Note: "not found"},
		{Name: "warm", N: 3, P50: 1500, P99: 2000, Ratio: 0.0049, Of: "bare", Required: 0.005, Facts: map[string]float64{"files": 2}}})
	want := "        n  p50 µs  p99 µs    ratio    of  required       facts\n" +
		"  bare  3    1234   99.50                                     \n" +
		"  warm  3    1500    2000  0.00490  bare   ≤ 0.005  files 2.00\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
