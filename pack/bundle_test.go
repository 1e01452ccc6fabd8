package pack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/mod/sumdb/note"

	"bailey"
)

const vectors = "testdata/bundle/"

func vector(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(vectors + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func vectorKey(t testing.TB, name string) Key {
	t.Helper()
	k, err := ParseKey(string(vector(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestBundleVectors checks that bundles are written with exactly these bytes, and that reading them gives the original
// files.
func TestBundleVectors(t *testing.T) {
	made, err := MakeBundle(os.DirFS(vectors + "demo"))
	if err != nil || !bytes.Equal(made, vector(t, "unsigned.baileypack")) {
		t.Fatalf("%v\n%q", err, made)
	}
	signed, err := Sign(made, string(vector(t, "author.key")))
	if err != nil || !bytes.Equal(signed, vector(t, "demo-1.0.0.baileypack")) {
		t.Fatalf("%v\n%q", err, signed)
	}
	v, err := Verify(signed, []Key{vectorKey(t, "stranger.pub"), vectorKey(t, "author.pub")})
	if err != nil || v.Name != "demo" || v.Version != "1.0.0" || v.Key != vectorKey(t, "author.pub").ID() || v.Dev || len(v.Files) != 2 {
		t.Fatal(v, err)
	}
	if u, err := ReadBundle(made); err != nil || u.Digest != v.Digest || v.Digest != strings.TrimSpace(string(vector(t, "digest"))) {
		t.Error("a signature changes the digest", u, err)
	}
	p, err := v.Pack("demo/pack.yaml")
	if err != nil || p.Name != "demo" || p.Capabilities[0].Dev || p.Capabilities[0].Builtin {
		t.Error(p, err)
	}
	if p, err = v.Bundle.Dev().Pack("demo/pack.yaml"); err != nil || !p.Capabilities[0].Dev {
		t.Error("nothing says that nobody signed it", err)
	}
	if _, err := Sign(signed, string(vector(t, "author.key"))); bailey.KindOf(err) != bailey.Conflict {
		t.Error(err)
	}
}

// forged returns a bundle with any index and a valid signature by the author.
func forged(t testing.TB, index, body string) []byte {
	t.Helper()
	s, err := note.NewSigner(strings.TrimSpace(string(vector(t, "author.key"))))
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Sign(&note.Note{Text: index}, s)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(string(n) + "\n" + body)
}

func line(path, body string) string {
	return fmt.Sprintf("0644 %d %s %s\n", len(body), sumOf([]byte(body)), path)
}

// TestTamperedBundles checks that none of these bundles loads, even with a valid signature, and that the error names
// the cause and the place.
func TestTamperedBundles(t *testing.T) {
	good := string(vector(t, "demo-1.0.0.baileypack"))
	b, err := ReadBundle([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	yaml, readme := string(b.Files[1].bytes), string(b.Files[0].bytes)
	head := bundleFormat + "\ndemo 1.0.0\n"
	swap := func(old, now string) []byte {
		if strings.Count(good, old) != 1 {
			t.Fatalf("%q stands %d times", old, strings.Count(good, old))
		}
		return []byte(strings.Replace(good, old, now, 1))
	}
	sign := func(index, body string) []byte { return forged(t, index, body) }
	manifest := func(path string) []byte { return sign(head+line(path, "x")+line("pack.yaml", yaml), "x"+yaml) }
	many := ""
	for i := range maxFiles {
		many += line(fmt.Sprintf("a%02d", i), "")
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"a byte of a file":          {swap("Counts.", "counts."), "README.md does not match the index"},
		"a byte of the manifest":    {swap("command: wc", "command: sh"), "pack.yaml does not match the index"},
		"a file, its hash too":      {swap(line("README.md", readme), line("README.md", strings.ToUpper(readme))), "or not of this index"},
		"the version":               {swap("demo 1.0.0\n", "demo 9.0.0\n"), "or not of this index"},
		"the name":                  {swap("demo 1.0.0\n", "other 1.0.0\n"), "or not of this index"},
		"a file's name":             {swap(" README.md\n", " README.mD\n"), "or not of this index"},
		"a file less":               {swap(line("README.md", readme), ""), "or not of this index"},
		"a file more":               {swap(line("pack.yaml", yaml), line("a", "")+line("pack.yaml", yaml)), "or not of this index"},
		"the order of lines":        {swap(line("README.md", readme)+line("pack.yaml", yaml), line("pack.yaml", yaml)+line("README.md", readme)), "README.md is twice in the index, or out of order"},
		"the order of bytes":        {swap(readme+yaml, yaml+readme), "README.md does not match"},
		"cut off":                   {[]byte(good[:len(good)-1]), "the bundle is truncated: pack.yaml has"},
		"cut in the index":          {[]byte(good[:60]), "does not end"},
		"nothing":                   {nil, "does not end"},
		"followed by other bytes":   {[]byte(good + "x"), "1 bytes follow the last file, pack.yaml"},
		"bytes before it":           {[]byte("\n" + good), "the first line is not"},
		"two bundles":               {[]byte(good + good), "bytes follow the last file"},
		"no signature":              {vector(t, "unsigned.baileypack"), "is not signed"},
		"another's signature":       {vector(t, "by-stranger.baileypack"), "claims to be by stranger: no trusted key has that name"},
		"another's under this name": {vector(t, "by-namesake.baileypack"), "claims to be by author: it is not by"},
		"of another bundle":         {[]byte(strings.Replace(good, signatureOf(t, good), signatureOf(t, string(vector(t, "demo-0.9.0.baileypack"))), 1)), "or not of this index"},
		"two signatures":            {swap(signatureOf(t, good), signatureOf(t, good)+signatureOf(t, good)), "must be one signature or an empty line"},
		"a signature spelt anew":    {swap("=\n\n", "\n\n"), "cannot parse the signature's line"},
		"spaces before a signature": {swap("— author ", "— author  "), "cannot parse the signature's line"},

		"an empty signature": {swap(signatureOf(t, good), "— author\n"), "cannot parse the signature's line"},
		"a short signature":  {swap(signatureOf(t, good), "— author AAAA\n"), "cannot parse the signature's line"},

		// All following bundles are signed with a trusted key.
		"a path twice":           {sign(head+line("pack.yaml", yaml)+line("pack.yaml", yaml), yaml+yaml), "pack.yaml is twice in the index"},
		"out of order":           {sign(head+line("pack.yaml", yaml)+line("README.md", readme), yaml+readme), "README.md is twice in the index, or out of order"},
		"case twins":             {sign(head+line("README.MD", "x")+line("README.md", "y")+line("pack.yaml", yaml), "xy"+yaml), "README.MD and README.md differ only in case"},
		"case twins of folders":  {sign(head+line("A/x", "x")+line("a/y", "y")+line("pack.yaml", yaml), "xy"+yaml), "A and a differ only in case"},
		"below a file":           {sign(head+line("a", "x")+line("a/b", "y")+line("pack.yaml", yaml), "xy"+yaml), "a is a file, and a/b is below it"},
		"no manifest":            {sign(head+line("README.md", readme), readme), "it has no pack.yaml"},
		"a manifest elsewhere":   {sign(head+line("sub/pack.yaml", yaml), yaml), "it has no pack.yaml"},
		"no files":               {sign(head, ""), "a bundle must have from 1 to 64 files, not 0"},
		"many files":             {sign(head+many+line("pack.yaml", yaml), yaml), "a bundle must have from 1 to 64 files, not 65"},
		"upwards":                {manifest("../x"), "\"../x\" cannot be the name of a file"},
		"upwards within":         {manifest("a/../../x"), "cannot be the name of a file"},
		"absolute":               {manifest("/etc/x"), "cannot be the name of a file"},
		"a drive":                {manifest("C:x"), "cannot be the name of a file"},
		"a backslash":            {manifest(`a\x`), "cannot be the name of a file"},
		"an option":              {manifest("-x"), "cannot be the name of a file"},
		"hidden":                 {manifest(".x"), "cannot be the name of a file"},
		"an empty part":          {manifest("a//x"), "cannot be the name of a file"},
		"a folder":               {manifest("a/"), "cannot be the name of a file"},
		"not ASCII":              {manifest("ä"), "cannot be the name of a file"},
		"a name with a space":    {manifest("a x"), "cannot be the name of a file"},
		"a long name":            {manifest(strings.Repeat("a/", 100) + "x"), "cannot be the name of a file"},
		"a mode":                 {sign(strings.Replace(head+line("pack.yaml", yaml), "0644", "0755", 1), yaml), "pack.yaml has the mode 0755"},
		"setuid":                 {sign(strings.Replace(head+line("pack.yaml", yaml), "0644", "4755", 1), yaml), "pack.yaml has the mode 4755"},
		"a link":                 {sign(head+strings.Replace(line("a", "/etc/passwd"), "0644", "120777", 1)+line("pack.yaml", yaml), "/etc/passwd"+yaml), "a has the mode 120777, but a bundle must have only regular files of mode 0644"},
		"a size bomb":            {sign(head+"0644 99999999999 "+sumOf(nil)+" a\n"+line("pack.yaml", yaml), yaml), "a has the size 99999999999"},
		"a size overflow":        {sign(head+"0644 99999999999999999999999 "+sumOf(nil)+" a\n"+line("pack.yaml", yaml), yaml), "a has the size"},
		"a negative size":        {sign(head+"0644 -1 "+sumOf(nil)+" a\n"+line("pack.yaml", yaml), yaml), "a has the size -1"},
		"a size spelt anew":      {sign(strings.Replace(head+line("pack.yaml", yaml), "0644 ", "0644 0", 1), yaml), "not in canonical form"},
		"a hash in capitals":     {sign(head+strings.ToUpper(strings.TrimSuffix(line("", yaml), " \n"))+" pack.yaml\n", yaml), "pack.yaml has no SHA-256"},
		"a hash cut":             {sign(head+"0644 0 abcd a\n"+line("pack.yaml", yaml), yaml), "a has no SHA-256"},
		"large files together":   {sign(head+large(9)+line("pack.yaml", yaml), yaml), "bytes in total"},
		"an index that is long":  {sign(head+strings.Repeat("x", maxIndex)+"\n", ""), "does not end within"},
		"another format":         {sign(strings.Replace(head, "v1", "v2", 1)+line("pack.yaml", yaml), yaml), "the first line is not bailey.pack/v1"},
		"a checkpoint":           {sign("bailey.pack/v1\n7\nAAAA\n", ""), "cannot have the name \"7\""},
		"a version unordered":    {sign(bundleFormat+"\ndemo 1\n"+line("pack.yaml", yaml), yaml), "a bundle cannot have the version \"1\""},
		"a version with a build": {sign(bundleFormat+"\ndemo 1.0.0+x\n"+line("pack.yaml", yaml), yaml), "a bundle cannot have the version"},
		"a name upwards":         {sign(bundleFormat+"\n../demo 1.0.0\n"+line("pack.yaml", yaml), yaml), "cannot have the name"},

		"a zip":             {zipped(t), "this is a zip archive, not a bundle"},
		"an empty zip":      {[]byte("PK\x05\x06" + strings.Repeat("\x00", 18)), "this is a zip archive"},
		"a zip behind it":   {append([]byte(good), zipped(t)...), "bytes follow the last file, pack.yaml"},
		"a tar":             {tarred(t), "this is a tar archive, not a bundle"},
		"a gzip of it":      {gzipped(t, good), "this is a gzip file, not a bundle"},
		"more than a whole": {bytes.Repeat([]byte("x"), MaxBundle+1), "a bundle can have at most"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := Verify(c.data, []Key{vectorKey(t, "author.pub")})
			if v != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want %q", v, err, c.want)
			}
		})
	}
}

// large returns index lines of n files of maximal size.
func large(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "0644 %d %s big%d\n", maxBundleFile, sumOf(nil), i)
	}
	return b.String()
}

func signatureOf(t testing.TB, bundle string) string {
	b, err := ReadBundle([]byte(bundle))
	if err != nil {
		t.Fatal(err)
	}
	return b.signature
}

func zipped(t *testing.T) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for range 2 { // the same entry twice
		w, err := z.Create("../pack.yaml")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, "name: demo\n")
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tarred(t *testing.T) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "pack.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t *testing.T, s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	fmt.Fprint(w, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBundleNamesItsPack checks that a bundle is refused if its index and its pack.yaml differ in name or version.
func TestBundleNamesItsPack(t *testing.T) {
	yaml := string(vector(t, "demo/pack.yaml"))
	for index, want := range map[string]string{
		bundleFormat + "\nother 1.0.0\n": "the index has other 1.0.0, but pack.yaml has demo 1.0.0",
		bundleFormat + "\ndemo 2.0.0\n":  "the index has demo 2.0.0, but pack.yaml has demo 1.0.0",
	} {
		v, err := Verify(forged(t, index+line("pack.yaml", yaml), yaml), []Key{vectorKey(t, "author.pub")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Pack("x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}

func TestMakeBundleRefuses(t *testing.T) {
	yaml := &fstest.MapFile{Data: vector(t, "demo/pack.yaml")}
	for want, fsys := range map[string]fs.FS{
		"has no pack.yaml":                        fstest.MapFS{"README.md": yaml},
		"link is not a regular file":              fstest.MapFS{"pack.yaml": yaml, "link": {Mode: fs.ModeSymlink}},
		"pipe is not a regular file":              fstest.MapFS{"pack.yaml": yaml, "pipe": {Mode: fs.ModeNamedPipe}},
		".git is not a valid name":                fstest.MapFS{"pack.yaml": yaml, ".git/config": yaml},
		"big is larger than":                      fstest.MapFS{"pack.yaml": yaml, "big": {Data: make([]byte, maxBundleFile+1)}},
		"differ only in case":                     fstest.MapFS{"pack.yaml": yaml, "a": yaml, "A": yaml},
		"a bundle can have at most 8388608 bytes": fstest.MapFS{"pack.yaml": yaml, "a": huge(), "b": huge(), "c": huge(), "d": huge(), "e": huge(), "f": huge(), "g": huge(), "h": huge()},
		"a bundle cannot have the version \"1\"":  fstest.MapFS{"pack.yaml": {Data: bytes.Replace(yaml.Data, []byte("1.0.0"), []byte("'1'"), 1)}},
		"pack.yaml:2:":                            fstest.MapFS{"pack.yaml": {Data: bytes.Replace(yaml.Data, []byte("version"), []byte("vershun"), 1)}},
	} {
		if _, err := MakeBundle(fsys); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func huge() *fstest.MapFile { return &fstest.MapFile{Data: make([]byte, maxBundleFile)} }

func TestKeys(t *testing.T) {
	private, public, err := GenerateKey("acme.dev")
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseKey(public + "\n")
	if err != nil || k.Name != "acme.dev" || !strings.HasPrefix(k.ID(), "acme.dev+") || k.Text != public {
		t.Error(k, err)
	}
	signed, err := Sign(vector(t, "unsigned.baileypack"), private)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(signed, []Key{k}); err != nil || v.Key != k.ID() {
		t.Error(v, err)
	}
	if _, err := Verify(signed, []Key{{}}); bailey.KindOf(err) != bailey.Denied {
		t.Error("the zero key verifies", err)
	}
	for _, name := range []string{"", "A", "a/b", "../a", ".a", "a+b", "a b", strings.Repeat("a", 65)} {
		if _, _, err := GenerateKey(name); err == nil {
			t.Errorf("a key has the name %q", name)
		}
	}
	for _, text := range []string{"", private, public[1:], public + "\n\n", public + " ", strings.Replace(public, "+", "+0", 1), public[:20] + "\n" + public[20:], strings.ToUpper(public)} {
		if _, err := ParseKey(text); bailey.KindOf(err) != bailey.Invalid || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Sign(vector(t, "unsigned.baileypack"), public); bailey.KindOf(err) != bailey.Invalid {
		t.Error(err)
	}
}

func TestCompareVersions(t *testing.T) {
	order := []string{"0.9.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-rc.1", "1.0.0", "1.0.9", "1.0.10", "1.2.0", "10.0.0"}
	if !slices.IsSortedFunc(order, CompareVersions) || CompareVersions("1.0.9", "1.0.10") >= 0 || CompareVersions("1.0.0", "1.0.0") != 0 {
		t.Error("versions are out of order")
	}
}

// FuzzBundle checks that a bundle that was read is written back with the same bytes, so a bundle has only one encoding.
func FuzzBundle(f *testing.F) {
	for _, name := range []string{"demo-1.0.0.baileypack", "unsigned.baileypack", "by-stranger.baileypack"} {
		f.Add(vector(f, name))
	}
	key := vectorKey(f, "author.pub")
	good := vector(f, "demo-1.0.0.baileypack")
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := ReadBundle(data)
		v, refused := Verify(data, []Key{key})
		if refused == nil && !bytes.Equal(data, good) {
			t.Fatalf("signed by nobody: %q", data)
		}
		if err != nil {
			if v != nil {
				t.Fatal("verified, and cannot be read")
			}
			return
		}
		again := b.index + "\n" + b.signature + "\n"
		for _, file := range b.Files {
			again += string(file.Bytes())
		}
		if again != string(data) {
			t.Fatalf("%q is read as %q", data, again)
		}
		b.Dev().Pack("x")
	})
}
