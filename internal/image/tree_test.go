package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ext4"
)

// makeArchive returns an archive. Texts are content of regular files.
func makeArchive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text = h.Linkname
			h.Linkname, h.Size = "", int64(len(text))
		}
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func regular(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: text, Mode: 0o644, ModTime: time.Unix(1, 0)}
}

func linkTo(kind byte, name, target string) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}
}

func folder(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func section(b []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))
}

// listTree returns the paths of a tree, with the content of files and the targets of links.
func listTree(n *ext4.Node, at string) (list []string) {
	for name, child := range n.Children {
		path := at + name
		switch child.Mode & ext4.TypeMask {
		case ext4.Directory:
			list = append(list, append([]string{path + "/"}, listTree(child, path+"/")...)...)
		case ext4.Regular:
			text, _ := io.ReadAll(child.Open())
			list = append(list, path+"="+string(text))
		case ext4.Symlink:
			list = append(list, path+"->"+child.Target)
		default:
			list = append(list, path+"?")
		}
	}
	slices.Sort(list)
	return list
}

// TestLayers applies layers: links are followed inside the tree, whiteouts remove files of lower layers only.
func TestLayers(t *testing.T) {
	tree := newTree(1 << 30)
	for _, layer := range [][]tar.Header{
		{folder("usr/lib/"), linkTo(tar.TypeSymlink, "lib", "usr/lib"), regular("./lib/a", "a"), regular("/etc/old", "old"), regular("etc/kept", "kept"),
			linkTo(tar.TypeLink, "etc/again", "etc/kept"), regular("var/x/1", "1"), regular("var/x/2", "2"), linkTo(tar.TypeSymlink, "abs", "/usr"),
			linkTo(tar.TypeSymlink, "out", "../../../etc")},
		{regular("lib/b", "b"), regular("etc/.wh.old", ""), regular("etc/.wh.none", ""), regular("var/x/3", "3"), regular("var/x/4", "4"), regular("var/x/.wh..wh..opq", ""),
			regular("abs/lib/c", "c"), regular("out/in", "in"), {Typeflag: tar.TypeChar, Name: "dev/null", Devmajor: 1, Devminor: 3}},
		{regular("etc/kept", "new"), folder("usr/lib"), regular("var/x/.wh.3", ""), regular("var/x/3", "three"), regular("usr/.wh.none", "")},
	} {
		if err := tree.addArchive(section(makeArchive(t, layer...)), true); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"abs->/usr", "dev/", "dev/null?", "etc/", "etc/again=kept", "etc/in=in", "etc/kept=new", "lib->usr/lib", "out->../../../etc",
		"usr/", "usr/lib/", "usr/lib/a=a", "usr/lib/b=b", "usr/lib/c=c", "var/", "var/x/", "var/x/3=three", "var/x/4=4"}
	if got := listTree(tree.root, ""); !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if text := tree.readText("/abs/lib/a", 10); text != "a" {
		t.Errorf("%q", text)
	}
}

// TestHostileArchives checks that archives that reach for the host are refused as a whole, or stay inside the tree.
func TestHostileArchives(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, entries := range map[string][]tar.Header{
		"up":               {regular("../x", "x")},
		"up in the middle": {regular("a/../../x", "x")},
		"hard link":        {linkTo(tar.TypeLink, "x", outside)},
		"hard link up":     {linkTo(tar.TypeLink, "x", "../../etc/passwd")},
		"hard link behind a link": {linkTo(tar.TypeSymlink, "d", filepath.Dir(outside)),
			linkTo(tar.TypeLink, "x", "d/outside")},
		"hard link to a directory": {folder("d"), linkTo(tar.TypeLink, "d/x", "d")},
		"loop":                     {linkTo(tar.TypeSymlink, "a", "b"), linkTo(tar.TypeSymlink, "b", "a"), regular("a/x", "x")},
		"file as directory":        {regular("a", "x"), regular("a/b", "x")},
		"root as file":             {regular(".", "x")},
		"long":                     {regular(strings.Repeat("x", 256), "x")},
		"device":                   {{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 1 << 20}},
		"type":                     {{Typeflag: tar.TypeCont, Name: "x"}},
		"size":                     {regular("x", strings.Repeat("x", 1<<17))},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(1 << 16)
			if err := tree.addArchive(section(makeArchive(t, entries...)), true); !errors.Is(err, bailey.Invalid) {
				t.Errorf("%v, %q", err, listTree(tree.root, ""))
			}
		})
	}
	tree := newTree(1 << 20)
	err := tree.addArchive(section(makeArchive(t, linkTo(tar.TypeSymlink, "d", filepath.Dir(outside)), regular("d/outside", "changed"))), true)
	if text, failed := os.ReadFile(outside); err != nil || failed != nil || string(text) != "secret" {
		t.Errorf("%v: %q, %v", err, text, failed)
	}
	if got := tree.readText("/d/outside", 100); got != "changed" {
		t.Errorf("in the tree: %q", got)
	}
}

// FuzzArchive checks that no archive makes a tree that a file system refuses for another reason than its size, or in which a
// name leads out of it.
func FuzzArchive(f *testing.F) {
	f.Add(makeArchive(f, folder("a"), regular("a/b", "text"), linkTo(tar.TypeLink, "c", "a/b"), linkTo(tar.TypeSymlink, "d", "../a"), regular("d/e", "e")))
	f.Add(makeArchive(f, folder("a"), regular("a/.wh..wh..opq", ""), regular(".wh.a", ""), tar.Header{Typeflag: tar.TypeFifo, Name: "p"}))
	f.Add(makeArchive(f, regular("../../x", "x")))
	f.Fuzz(func(t *testing.T, archive []byte) {
		tree := newTree(1 << 20)
		if tree.addArchive(section(archive), true) != nil {
			return
		}
		for _, name := range listTree(tree.root, "/") {
			if strings.Contains(name, "/../") {
				t.Errorf("%q", name)
			}
		}
		err := ext4.Write(discardAt{}, tree.root, ext4.Config{Size: 16 << 20, Time: time.Unix(1, 0)})
		if err != nil && !errors.Is(err, ext4.ErrFull) && !strings.Contains(err.Error(), "nested") && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

type discardAt struct{}

func (discardAt) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
