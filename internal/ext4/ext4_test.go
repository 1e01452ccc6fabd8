package ext4

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
)

var created = time.Unix(1_700_000_000, 0)

func textFile(text string) *Node {
	return &Node{Mode: Regular | 0o644, MTime: created, Size: int64(len(text)), Open: func() io.Reader { return strings.NewReader(text) }}
}

func directory(children map[string]*Node) *Node {
	return &Node{Mode: Directory | 0o755, MTime: created, Children: children}
}

// writeImage writes a file system and has e2fsck check it.
func writeImage(t testing.TB, root *Node, size int64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(name)
	if err == nil {
		err = errors.Join(Write(f, root, Config{Size: size, Label: "root", Time: created}), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	ktest.Require(t, "e2fsck")
	if out, err := exec.Command("e2fsck", "-f", "-n", name).CombinedOutput(); err != nil {
		t.Fatalf("e2fsck: %v\n%s", err, out)
	}
	return name
}

// askDisk returns what debugfs prints.
func askDisk(t testing.TB, disk, request string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("debugfs", "-R", request, disk)
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return out.String()
}

// TestFileSystem checks every kind of file, as debugfs reads it.
func TestFileSystem(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "debugfs")
	long := strings.Repeat("a long target/", 100)
	twice := textFile("two names\n")
	tool := textFile("tool")
	tool.Mode, tool.UID, tool.GID, tool.Capability = Regular|0o4755, 70_000, 1001, []byte("\x01\x00\x00\x02\x00 \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	many := map[string]*Node{}
	for i := range 3000 {
		many[fmt.Sprintf("%03d-%s", i, strings.Repeat("x", i%200))] = textFile("")
	}
	root := directory(map[string]*Node{
		"etc":  directory(map[string]*Node{"motd": textFile("hello\n"), "again": twice, "other": twice, "empty": textFile("")}),
		"tool": tool, "many": directory(many),
		"short": {Mode: Symlink | 0o777, Target: "etc/motd", MTime: created}, "long": {Mode: Symlink | 0o777, Target: long, MTime: created},
		"null": {Mode: CharDev | 0o666, Major: 1, Minor: 3, MTime: created}, "big": {Mode: BlockDev | 0o600, Major: 259, Minor: 70_000, MTime: created},
		"pipe": {Mode: FIFO | 0o600, MTime: created}, "socket": {Mode: Socket | 0o600, MTime: created},
	})
	disk := writeImage(t, root, 64<<20)
	for request, want := range map[string]string{
		"cat /etc/motd": "hello\n", "cat /etc/other": "two names\n", "stat /etc/other": "Links: 2", "stat /short": `Fast link dest: "etc/motd"`,
		"stat /long": fmt.Sprintf("Size: %d", len(long)), "cat /long": long, "stat /null": "Device major/minor number: 01:03",
		"stat /big": "Device major/minor number: 259:70000", "stat /tool": "User: 70000   Group:  1001", "ea_get -x /tool security.capability": "01 00 00 02",
		"stat /pipe": "Type: FIFO", "stat /socket": "Type: socket", "stat <8>": "Size: 4194304", "ls -l /": "lost+found",
		"stat /etc": "mtime: 0x6553f100", "stat /etc/empty": "Size: 0",
	} {
		if out := askDisk(t, disk, request); !strings.Contains(out, want) {
			t.Errorf("%s: %q does not contain %q", request, out, want)
		}
	}
	if n := strings.Count(askDisk(t, disk, "ls -p /many"), "\n"); n < 3002 {
		t.Errorf("the large directory has %d entries", n)
	}
}

// TestSizes checks file systems from the smallest to one with many groups, and files that need more than one extent.
func TestSizes(t *testing.T) {
	ktest.Long(t)
	zeros := func(size int64) *Node {
		return &Node{Mode: Regular | 0o600, MTime: created, Size: size, Open: func() io.Reader { return io.LimitReader(zeroReader{}, size) }}
	}
	for _, size := range []int64{minSize, minSize + block, 128 << 20, 128<<20 + 12*block, 1 << 30, 20<<30 + block} {
		writeImage(t, directory(map[string]*Node{"a": zeros(1 << 20), "b": zeros(4097)}), size)
	}
	writeImage(t, directory(map[string]*Node{"four": zeros(512 << 20), "five": zeros(513 << 20)}), 2<<30)
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestFull checks that content that does not fit, in blocks or in files, is an error.
func TestFull(t *testing.T) {
	many := map[string]*Node{}
	for i := range 20_000 {
		many[fmt.Sprint(i)] = textFile("x")
	}
	for name, root := range map[string]*Node{
		"blocks": directory(map[string]*Node{"a": textFile(strings.Repeat("x", 9<<20))}), "files": directory(many),
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		if err == nil {
			err = Write(f, root, Config{Size: minSize, Time: created})
			f.Close()
		}
		if !errors.Is(err, ErrFull) {
			t.Error(name, err)
		}
	}
}

// TestRefused checks that names and trees that ext4 cannot have are errors.
func TestRefused(t *testing.T) {
	deep := directory(nil)
	for range maxDepth + 1 {
		deep = directory(map[string]*Node{"d": deep})
	}
	two := directory(nil)
	short := textFile("text")
	short.Size++
	for name, root := range map[string]*Node{
		"slash": directory(map[string]*Node{"a/b": textFile("")}), "up": directory(map[string]*Node{"..": textFile("")}),
		"nul": directory(map[string]*Node{"a\x00": textFile("")}), "long": directory(map[string]*Node{strings.Repeat("x", 256): textFile("")}),
		"deep": deep, "two names": directory(map[string]*Node{"a": two, "b": two}), "file": textFile("x"),
		"target": directory(map[string]*Node{"a": {Mode: Symlink, Target: strings.Repeat("x", 4096)}}),
		"type":   directory(map[string]*Node{"a": {Mode: 0o644}}), "short": directory(map[string]*Node{"a": short}),
		"capability": directory(map[string]*Node{"a": {Mode: Regular, Capability: make([]byte, 40)}}),
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		if err == nil {
			err = Write(f, root, Config{Size: minSize, Time: created})
			f.Close()
		}
		if err == nil || errors.Is(err, ErrFull) {
			t.Error(name, err)
		}
	}
}

// TestRandomTrees writes random trees twice, which gives the same bytes, and reads every file back with debugfs.
func TestRandomTrees(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "debugfs")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		files := map[string]string{}
		root := randomTree(random, "/", 3, files)
		disk, again := writeImage(t, root, 64<<20), writeImage(t, root, 64<<20)
		if digest(t, disk) != digest(t, again) {
			t.Error("the same tree gives two images")
		}
		into := t.TempDir()
		askDisk(t, disk, "rdump / "+into)
		for name, text := range files {
			if got, err := os.ReadFile(into + name); err != nil || string(got) != text {
				t.Errorf("%s has %d bytes, %v, want %d", name, len(got), err, len(text))
			}
		}
	}
}

func digest(t *testing.T, name string) [32]byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(text)
}

func randomTree(r *rand.Rand, at string, depth int, files map[string]string) *Node {
	dir := directory(map[string]*Node{})
	for range r.IntN(40) {
		name := fmt.Sprintf("%x", r.Uint64N(1<<40))
		if depth > 0 && r.IntN(8) == 0 {
			dir.Children[name] = randomTree(r, path.Join(at, name), depth-1, files)
			continue
		}
		text := string(slices.Repeat([]byte(name), r.IntN(1<<r.IntN(14))))
		dir.Children[name], files[path.Join(at, name)] = textFile(text), text
	}
	return dir
}
