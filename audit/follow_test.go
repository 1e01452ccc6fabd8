package audit

import (
	"bytes"
	"errors"
	"testing"

	"bailey/internal/ktest"
)

// TestFollow checks that Follow returns the same head and root as a verification, and notices every byte that changed.
func TestFollow(t *testing.T) {
	ktest.Long(t)
	b := day(t, 1)
	var head Head
	var tree Tree
	for _, s := range b.segments {
		var err error
		head, err = Follow(bytes.NewReader(s), head, &tree)
		do(t, err)
	}
	if head != b.head || tree != b.tree {
		t.Errorf("it came to %v, not %v", head, b.head)
	}
	for _, name := range []string{"number-repeated.jsonl", "number-skipped.jsonl", "lines-swapped.jsonl", "torn-half.jsonl", "frame-crlf.jsonl"} {
		var why *Bad
		if _, err := Follow(bytes.NewReader(read(t, name)), Head{}, nil); !errors.As(err, &why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := b.segments[0]
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			var why *Bad
			if _, err := Follow(bytes.NewReader(bad), Head{}, nil); !errors.As(err, &why) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
}
