package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ext4"
	"bailey/internal/ktest"
)

func newMaker(t testing.TB) *Maker {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "bailey-guest")
	if err := os.WriteFile(agent, []byte("the agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Maker{Store: openStore(t, filepath.Join(t.TempDir(), "images")), Agent: func(string) (string, error) { return agent, nil }}
}

// testKernel is a file that stands for a kernel.
func testKernel(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "vmlinuz")
	if err := os.WriteFile(name, []byte("the kernel"), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// rawDisk writes a disk with an ext4 root at an offset, behind head.
func rawDisk(t testing.TB, head []byte, at int64, files map[string]FileText) string {
	t.Helper()
	tree := newTree(1 << 30)
	if err := tree.addOwnFiles(Build{Files: files}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "disk.raw")
	f, err := os.Create(name)
	if err == nil {
		err = ext4.Write(io.NewOffsetWriter(f, at), tree.root, ext4.Config{Size: 16 << 20, Time: time.Unix(1, 0)})
	}
	if err == nil {
		_, err = f.WriteAt(head, 0)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

func qemuImg(t testing.TB, args ...string) {
	t.Helper()
	ktest.Require(t, "qemu-img")
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %q: %v\n%s", args, err, out)
	}
}

// partitionTable is an MBR with a small partition of another type and one of Linux.
func partitionTable() []byte {
	head := make([]byte, sector)
	copy(head[446:], "\x00\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x10\x00\x00\x00")
	copy(head[446+16:], "\x00\x00\x00\x00\x83\x00\x00\x00\x00\x08\x00\x00\x00\x80\x00\x00")
	head[510], head[511] = 0x55, 0xaa
	return head
}

// TestImportDisks imports a disk in each format. All give the same content.
func TestImportDisks(t *testing.T) {
	ktest.Long(t)
	m, kernel := newMaker(t), testKernel(t)
	whole := rawDisk(t, nil, 0, map[string]FileText{"etc/motd": {Text: "hello"}})
	parts := rawDisk(t, partitionTable(), 1<<20, map[string]FileText{"etc/motd": {Text: "hello"}})
	stream := filepath.Join(filepath.Dir(whole), "stream.vmdk")
	qemuImg(t, "convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=streamOptimized", whole, stream)
	for _, format := range []string{"qcow2", "vmdk"} {
		qemuImg(t, "convert", "-f", "raw", "-O", format, whole, filepath.Join(filepath.Dir(whole), "disk."+format))
	}
	for name, want := range map[string]string{"disk.raw": "/dev/vda ", "disk.qcow2": "/dev/vda ", "disk.vmdk": "/dev/vda ", "stream.vmdk": "/dev/vda ", parts: "/dev/vda2 "} {
		file := name
		if !filepath.IsAbs(name) {
			file = filepath.Join(filepath.Dir(whole), name)
		}
		image := strings.ReplaceAll(filepath.Base(name), ".", "-")
		if filepath.IsAbs(name) {
			image = "parts"
		}
		i, err := m.Import(t.Context(), Import{Name: image, File: file, Kernel: kernel, Arch: "amd64"})
		if err != nil {
			t.Fatal(name, err)
		}
		if !strings.Contains(i.Append, "bailey.root="+want) || i.DiskBytes < 16<<20 || len(i.Layers) != 1 {
			t.Errorf("%s: %+v", name, i)
		}
		back := filepath.Join(t.TempDir(), "back")
		qemuImg(t, "convert", "-f", "qcow2", "-O", "raw", i.Layers[0].Path, back)
		a, err1 := os.ReadFile(back)
		b, err2 := os.ReadFile(map[bool]string{true: parts, false: whole}[filepath.IsAbs(name)])
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: the disk has another content: %v, %v", name, err1, err2)
		}
		if _, err := m.Store.Get(i.Name); err != nil {
			t.Error(err)
		}
	}
}

// TestHostileDisks checks that disks that name other files of the host are refused, in every format, and under every wrong name.
func TestHostileDisks(t *testing.T) {
	m, dir := newMaker(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	secret := at("secret.raw")
	if err := os.WriteFile(secret, bytes.Repeat([]byte("secret! "), 1<<14), 0o600); err != nil {
		t.Fatal(err)
	}
	qemuImg(t, "create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", at("backing.qcow2"))
	qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "data_file="+secret+".data,data_file_raw=on", at("external.qcow2"), "1M")
	qemuImg(t, "create", "-q", "-f", "vmdk", "-o", "subformat=monolithicFlat", at("flat.vmdk"), "1M")
	qemuImg(t, "create", "-q", "-f", "vmdk", at("base.vmdk"), "1M")
	qemuImg(t, "create", "-q", "-f", "vmdk", "-b", at("base.vmdk"), "-F", "vmdk", at("child.vmdk"))
	good, err := os.ReadFile(at("base.vmdk"))
	if err != nil {
		t.Fatal(err)
	}
	flat := fmt.Sprintf("# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW 256 FLAT \"%s\" 0\n", secret)
	for name, text := range map[string][]byte{
		"text.vmdk": []byte(flat + strings.Repeat("\n", 600)), "zero.vmdk": zeroCapacity(good), "more.vmdk": bytes.Replace(good, []byte("RW 2048 SPARSE"), []byte("RW 2048 FLAT  "), 1),
		"empty.raw": nil, "short.qcow2": []byte("QFI\xfb"), "noise.qcow2": bytes.Repeat([]byte{7}, 4096), "no-table.raw": make([]byte, 1<<20),
	} {
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ format, reason string }{
		"backing.qcow2": {"", "based on another file"}, "external.qcow2": {"", "data is in another file"}, "flat.vmdk": {"", "too short"},
		"child.vmdk": {"", "based on another file"}, "text.vmdk": {"", "in other files"}, "zero.vmdk": {"", "0 sectors"}, "more.vmdk": {"", "other extents"},
		"empty.raw": {"", "too short"}, "short.qcow2": {"", "too short"}, "noise.qcow2": {"", "begins like raw"}, "no-table.raw": {"", "no partition table"},
		"backing.qcow2 as raw": {"raw", "begins like qcow2"}, "text.vmdk as raw": {"raw", "begins like vmdk"}, "child.vmdk as qcow2": {"qcow2", "begins like vmdk"},
		"backing.qcow2 as oci": {"oci", "not a tar archive"}, "base.vmdk as vhdx": {"vhdx", "does not follow from its name"},
	} {
		file, _, _ := strings.Cut(name, " as ")
		_, err := m.Import(t.Context(), Import{Name: "x", File: at(file), Format: c.format, Kernel: testKernel(t), Arch: "amd64"})
		if !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
	expectNames(t, m.Store.dir, storeLock)
	// Even if the check were wrong, the program would not follow the name.
	out := at("out.raw")
	if err := convertDisk(t.Context(), formatQCOW2, at("backing.qcow2"), formatRaw, out, 1<<20); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(out); err != nil || bytes.Contains(text, []byte("secret")) {
		t.Errorf("the file below was read: %v", err)
	}
}

func zeroCapacity(vmdk []byte) []byte {
	b := bytes.Clone(vmdk)
	clear(b[12:20]) // then QEMU takes the description for one that names other files
	return b
}

// FuzzHeader checks that no header and no partition table makes the checks panic or read outside.
func FuzzHeader(f *testing.F) {
	f.Add(partitionTable(), uint8(0))
	f.Add([]byte("QFI\xfb\x00\x00\x00\x03"), uint8(1))
	f.Add([]byte("KDMV\x01\x00\x00\x00"), uint8(2))
	gpt := append(partitionTable(), []byte("EFI PART")...)
	f.Add(append(gpt, make([]byte, 4096)...), uint8(0))
	f.Fuzz(func(t *testing.T, disk []byte, format uint8) {
		formats := []string{formatRaw, formatQCOW2, formatVMDK}
		at := bytes.NewReader(disk)
		if size, err := checkHeader(at, int64(len(disk)), formats[int(format)%3]); err == nil && (size <= 0 || size > maxDisk) {
			t.Error(size)
		}
		if p, err := findRoot(at, int64(len(disk))); err == nil && (p.start < 0 || p.size <= 0 || p.start+p.size > int64(len(disk))) {
			t.Errorf("%+v", p)
		}
	})
}

// A layout is an OCI image layout that is being made.
type layout map[string][]byte

func (l layout) add(blob []byte, mediaType string) descriptor {
	sum := sha256.Sum256(blob)
	digest := hex.EncodeToString(sum[:])
	l["blobs/sha256/"+digest] = blob
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: int64(len(blob))}
}

func (l layout) addJSON(v any) descriptor {
	text, _ := json.Marshal(v)
	return l.add(text, "application/json")
}

// write returns the file of an archive.
func (l layout) write(t testing.TB) string {
	t.Helper()
	var entries []tar.Header
	for name, text := range l {
		entries = append(entries, regular(name, string(text)))
	}
	name := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(name, makeArchive(t, entries...), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func squeeze(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// testLayout has one image, whose layers are given.
func testLayout(t testing.TB, layers ...[]byte) (l layout, index map[string]any) {
	t.Helper()
	l = layout{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	m := map[string]any{"schemaVersion": 2, "config": l.addJSON(map[string]string{"architecture": "amd64", "os": "linux"}), "annotations": map[string]string{"a": "b"}}
	var list []descriptor
	for _, layer := range layers {
		list = append(list, l.add(layer, "application/vnd.oci.image.layer.v1.tar+gzip"))
	}
	m["layers"] = list
	index = map[string]any{"schemaVersion": 2, "manifests": []descriptor{l.addJSON(m)}}
	l["index.json"], _ = json.Marshal(index)
	return l, index
}

// TestImportContainer imports an OCI archive with two layers, one of them compressed. Equal archives give equal images.
func TestImportContainer(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "qemu-img", "debugfs")
	m := newMaker(t)
	l, _ := testLayout(t, makeArchive(t, regular("etc/os-release", "ID=test\nVERSION_ID=\"7\"\n"), regular("etc/old", "old"), regular("sbin/init", "x")),
		squeeze(t, makeArchive(t, regular("etc/.wh.old", ""), regular("etc/new", "new"), regular("sbin/.wh.init", ""))))
	var digests []string
	for _, name := range []string{"one", "two"} {
		i, err := m.Import(t.Context(), Import{Name: name, File: l.write(t), Kernel: testKernel(t), Arch: "amd64", DiskBytes: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if i.OS != "test" || i.Release != "7" || strings.Contains(i.Append, "bailey.init") {
			t.Errorf("%+v", i)
		}
		digests = append(digests, i.Digest)
		raw := filepath.Join(t.TempDir(), "raw")
		qemuImg(t, "convert", "-f", "qcow2", "-O", "raw", i.Layers[0].Path, raw)
		if out, err := exec.Command("debugfs", "-R", "ls -p /etc", raw).Output(); err != nil || !strings.Contains(string(out), "/new/") || strings.Contains(string(out), "/old/") {
			t.Errorf("%v: %s", err, out)
		}
	}
	if digests[0] != digests[1] {
		t.Error("equal archives give two images")
	}
}

// TestHostileContainers checks that archives with wrong digests, paths that lead out, bombs and loops are refused, and leave nothing.
func TestHostileContainers(t *testing.T) {
	m := newMaker(t)
	deep, index := testLayout(t, makeArchive(t, regular("a", "a")))
	for range maxIndexes + 2 {
		index = map[string]any{"manifests": []descriptor{deep.addJSON(index)}}
	}
	deep["index.json"], _ = json.Marshal(index)
	wrong, _ := testLayout(t, makeArchive(t, regular("a", "a")))
	for name, blob := range wrong {
		if strings.HasPrefix(name, "blobs/") && len(blob) >= 1024 { // the layer
			wrong[name] = append(bytes.Clone(blob), 0)
		}
	}
	cut := squeeze(t, makeArchive(t, regular("a", strings.Repeat("a", 10_000))))
	missing, _ := testLayout(t)
	missing["index.json"] = []byte(`{"manifests":[{"digest":"sha256:` + strings.Repeat("0", 64) + `","size":1}]}`)
	path, _ := testLayout(t)
	path["index.json"] = []byte(`{"manifests":[{"digest":"sha256:../../etc/passwd","size":1}]}`)
	twice, _ := testLayout(t)
	twice["index.json"] = []byte(`{"manifests":[],"manifests":[]}`)
	for name, l := range map[string]layout{
		"no index": {"x": []byte("x")}, "deep": deep, "wrong digest": wrong, "missing": missing, "path": path, "twice": twice,
		"up": layers(t, makeArchive(t, regular("../x", "x"))), "bomb": layers(t, squeeze(t, makeArchive(t, regular("zeros", strings.Repeat("\x00", 100<<20))))),
		"cut": layers(t, cut[:len(cut)-6]), "zstd": layers(t, []byte("\x28\xb5\x2f\xfd0000")), "no archive": layers(t, bytes.Repeat([]byte("x"), 2048)),
		"link": layers(t, makeArchive(t, linkTo(tar.TypeLink, "x", "/etc/passwd"))),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.Import(t.Context(), Import{Name: "x", File: l.write(t), Kernel: testKernel(t), Arch: "amd64", DiskBytes: 64 << 20})
			if !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
				t.Error(err)
			}
			expectNames(t, m.Store.dir, storeLock)
		})
	}
	other, _ := testLayout(t, makeArchive(t, regular("a", "a")))
	if _, err := m.Import(t.Context(), Import{Name: "x", File: other.write(t), Kernel: testKernel(t), Arch: "arm64"}); !errors.Is(err, bailey.Invalid) {
		t.Error("an image for another architecture:", err)
	}
	if _, err := m.Import(t.Context(), Import{Name: "x", File: other.write(t), Arch: "amd64", DiskBytes: 64 << 20}); !errors.Is(err, bailey.NotFound) {
		t.Error("no kernel:", err)
	}
}

func layers(t testing.TB, list ...[]byte) layout {
	l, _ := testLayout(t, list...)
	return l
}
