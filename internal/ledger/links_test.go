//go:build linux

package ledger

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"bailey/audit"
)

// FuzzLinks checks that begins and lastOf return data that is in the first and last line of a segment, or an error, for
// any content.
func FuzzLinks(f *testing.F) {
	names := rotated(f, place(f), 3)
	for _, name := range names {
		text := []byte(content(name))
		f.Add(text)
		f.Add(text[:len(text)/2])
		f.Add(append(bytes.Clone(text), 0, 0, '\n'))
	}
	f.Add([]byte{})
	f.Add([]byte("\n"))
	f.Add(bytes.Repeat([]byte("x"), audit.MaxLine+10))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := os.OpenFile(filepath.Join(t.TempDir(), "s"), os.O_RDWR|os.O_CREATE, 0o600)
		do(t, err)
		defer file.Close()
		_, err = file.Write(text)
		do(t, err)
		if _, err := file.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		first, _, _ := bytes.Cut(text, []byte("\n"))
		want, werr := audit.ReadStart(append(bytes.Clone(first), '\n'))
		whole := bytes.HasPrefix(text, append(bytes.Clone(first), '\n'))
		got, err := readStartAfter(file, want.After())
		if (err == nil) != (werr == nil && whole) || err == nil && got.Root != want.Root {
			t.Errorf("begins: %+v %v, its first line alone: %v", got, err, werr)
		}
		if end, err := lastOf(file); err == nil && (len(text) == 0 || text[len(text)-1] != '\n' || !bytes.Contains(text, []byte(end.Hash.String()))) {
			t.Errorf("it ends in %v", end)
		}
	})
}
