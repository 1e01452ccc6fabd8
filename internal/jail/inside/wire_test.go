package inside

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

var steps = []Step{
	{Op: Private, N: []uint64{}, S: []string{}},
	{Op: Bind, N: []uint64{1, 1 << 63, 14}, S: []string{"/a b", ""}},
	{Op: Exec, N: []uint64{2}, S: []string{"/x", "x", strings.Repeat("y", 70000)}},
}

func TestRoundTrip(t *testing.T) {
	for _, s := range [][]Step{{}, steps[:1], steps} {
		got, ok := Decode(Encode(nil, s))
		if !ok || !reflect.DeepEqual(got, s) {
			t.Errorf("%v became %v, %v", s, got, ok)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	whole := Encode(nil, steps[:2])
	for n := range whole {
		if _, ok := Decode(whole[:n]); ok {
			t.Errorf("%d of %d bytes were taken for a plan", n, len(whole))
		}
	}
	for name, b := range map[string][]byte{
		"a byte too many": append(bytes.Clone(whole), 0),
		"endless steps":   {255, 255, 255, 255},
		"endless numbers": {1, 0, 0, 0, 1, 255, 255, 255, 255, 0, 0, 0, 0},
		"endless words":   {1, 0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255},
		"endless word":    {1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255},
	} {
		if _, ok := Decode(b); ok {
			t.Error(name + " was taken for a plan")
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(nil, steps[:2]))
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := Decode(b); ok && !bytes.Equal(Encode(nil, s), b) {
			t.Errorf("%x decodes to %v, which encodes otherwise", b, s)
		}
	})
}
