//go:build linux

package bench

import (
	"fmt"
	"slices"
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
	var ways []way
	for _, name := range []string{"bare", "ondemand", "warm", "warm-2workers", "cold", "cold-cage", "wall", "bwrap"} {
		ways = append(ways, way{name: name})
	}
	words := func() (all []string) {
		for _, r := range newJailRows(ways, times) {
			all = append(all, fmt.Sprintf("%s %d %.0f %.0f %.2f %s %s", r.Name, r.N, r.P50, r.P99, *r.PerBare, threeDecimals(r.OfBwrap), r.requirementText()))
		}
		return all
	}
	want := []string{
		"bare 1 500 500 1.00  ", "warm 3 900 1000 1.80 0.100 ≤ 0.10", "warm-2workers 2 990 990 1.98 0.122 1.10 × warm, ≤ 1.10",
		"cold 1 9000 9000 18.00 2.125 2.00 × bwrap, ≤ 1.00",
		"cold-cage 1 4000 4000 8.00 0.875 ", "wall 1 6000 6000 12.00 1.375 1.50 × cold-cage, ≤ 2.00", "bwrap 3 4500 9000 9.00 1.000 ",
	}
	if got := words(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	times["bwrap-dev"] = times["bwrap"]
	delete(times, "bwrap")
	ways = append(ways, way{name: "bwrap-dev"})
	want[len(want)-1] = "bwrap-dev 3 4500 9000 9.00 1.000 "
	if got := words(); !slices.Equal(got, want) {
		t.Errorf("with devices: %q\nwant %q", got, want)
	}
	delete(times, "bwrap-dev")
	want = []string{
		"bare 1 500 500 1.00  ", "warm 3 900 1000 1.80  ≤ 0.10", "warm-2workers 2 990 990 1.98  1.10 × warm, ≤ 1.10", "cold 1 9000 9000 18.00  ≤ 1.00",
		"cold-cage 1 4000 4000 8.00  ", "wall 1 6000 6000 12.00  1.50 × cold-cage, ≤ 2.00",
	}
	if got := words(); !slices.Equal(got, want) {
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
