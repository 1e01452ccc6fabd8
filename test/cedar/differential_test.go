// Package cedar compares the policy engine with the reference implementation of Cedar. Both must decide random requests
// equally by random rules in the form that the engine loads. The test needs node and the npm module
// @cedar-policy/cedar-wasm; if one is not installed, the test is skipped and names it.
//
//	BAILEY_CEDAR_FUZZ=10m BAILEY_CEDAR_SEED=7 go test -v -timeout 20m ./test/cedar
package cedar

import (
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"testing"
	"time"

	"bailey/internal/ktest"
)

const (
	batch   = 40 // cases per message; their types are checked together
	batches = 10 // default number, independent of time, so that each run is the same
)

func TestDifferential(t *testing.T) {
	ktest.Long(t)
	o := newOracle(t)
	c := newCourt(t, o)
	seed, window := settings(t)
	start := time.Now()
	for n := uint64(0); n < batches || time.Since(start) < window; n++ {
		d := dice{rand.New(rand.NewPCG(seed, n))}
		cases := make([]*trial, batch)
		for i := range cases {
			cases[i] = d.trial()
		}
		found, err := c.hear(cases)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if c.known[f.class]++; c.known[f.class] == 1 {
				c.report(t, f)
			}
		}
	}
	t.Logf("seed %d: %s in %v", seed, c.count, time.Since(start).Round(time.Second))
	c.tell(t)
	c.count.enough(t)
}

// settings returns the seed and the minimal duration.
func settings(t *testing.T) (seed uint64, window time.Duration) {
	seed = 1
	var err error
	if s := os.Getenv("BAILEY_CEDAR_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("BAILEY_CEDAR_SEED: %v", err)
		}
	}
	if s := os.Getenv("BAILEY_CEDAR_FUZZ"); s != "" {
		if window, err = time.ParseDuration(s); err != nil {
			t.Fatalf("BAILEY_CEDAR_FUZZ: %v", err)
		}
	}
	return seed, window
}

// tell logs the number of rules in each class that the reference accepts and the engine refuses.
func (c *court) tell(t *testing.T) {
	var classes []string
	for class := range c.stricter {
		classes = append(classes, class)
	}
	sort.Slice(classes, func(i, j int) bool { return c.stricter[classes[i]] > c.stricter[classes[j]] })
	for _, class := range classes[:min(len(classes), 30)] {
		t.Logf("only here refused, %d times: %s", c.stricter[class], class)
	}
}
