package image

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
)

var update = flag.Bool("update", false, "write the expected command lines")

// TestRecipes compares the command lines of all systems with the expected ones. Those of Debian are also run, by
// TestDebianBoots.
func TestRecipes(t *testing.T) {
	got := map[string][][]string{}
	for name, r := range map[string]Recipe{
		"debian":               {OS: "debian", Arch: "amd64"},
		"debian with packages": {OS: "debian", Release: "trixie", Arch: "arm64", Mirror: "http://mirror.example/debian", Packages: []string{"nginx=1.22.1-9", "git"}},
		"debian with sources":  {OS: "debian", Arch: "amd64", Sources: []string{"deb http://mirror.example/debian bookworm main", "deb http://mirror.example/x ./"}},
		"ubuntu":               {OS: "ubuntu", Arch: "amd64"},
		"alpine":               {OS: "alpine", Arch: "arm64", Packages: []string{"git"}},
	} {
		if err := r.Check(); err != nil {
			t.Fatal(name, err)
		}
		got[name] = r.Commands("OUT")
	}
	text, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "recipes.json")
	if *update {
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != string(text)+"\n" {
		t.Errorf("%v: the command lines differ from %s. Run go test -update and look at the difference:\n%s", err, file, text)
	}
}

// TestRecipeDigest checks that recipes that make other roots have other digests, and equal ones the same.
func TestRecipeDigest(t *testing.T) {
	seen := map[string]int{}
	for i, r := range []Recipe{{OS: "debian", Arch: "amd64"}, {OS: "debian", Arch: "arm64"}, {OS: "debian", Arch: "amd64", Release: "trixie"},
		{OS: "debian", Arch: "amd64", Packages: []string{"git"}}, {OS: "debian", Arch: "amd64", Packages: []string{"git=1"}},
		{OS: "debian", Arch: "amd64", Mirror: "http://mirror.example/debian"}, {OS: "ubuntu", Arch: "amd64"}, {OS: "alpine", Arch: "amd64"}} {
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[r.Digest()]; ok {
			t.Errorf("recipes %d and %d have one digest", other, i)
		}
		seen[r.Digest()] = i
	}
	a, b := Recipe{OS: "debian", Arch: "amd64", Packages: []string{"a", "b"}}, Recipe{OS: "debian", Arch: "amd64", Packages: []string{"b", "a", "b"}}
	if err := errors.Join(a.Check(), b.Check()); err != nil || a.Digest() != b.Digest() {
		t.Error(err, "the order of packages changes the digest")
	}
}

// hostileTexts could become options, files or commands of the programs that make images.
var hostileTexts = []string{"--customize-hook=touch /tmp/x", "-oDir=/", "../etc/passwd", "/etc/passwd", "a,b", "a b", "a;b", "$(x)", "a\nb", "-", "deb [trusted=yes] http://x ./",
	"?name(a)", "a/b", "a\x00", strings.Repeat("a", 600)}

// TestHostileRecipes checks that no text of a recipe can be an option or a path.
func TestHostileRecipes(t *testing.T) {
	for _, text := range hostileTexts {
		for name, r := range map[string]Recipe{
			"system": {OS: text, Arch: "amd64"}, "architecture": {OS: "debian", Arch: text}, "release": {OS: "debian", Arch: "amd64", Release: text},
			"mirror": {OS: "debian", Arch: "amd64", Mirror: text}, "package": {OS: "debian", Arch: "amd64", Packages: []string{"git", text}},
			"source": {OS: "debian", Arch: "amd64", Sources: []string{text}},
		} {
			if err := r.Check(); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
				t.Errorf("%s %.80q: %v", name, text, err)
			}
		}
	}
}

// TestOrderModules checks that modules follow those on which they depend, and that hostile lines are left out.
func TestOrderModules(t *testing.T) {
	text := "k/virtio_mmio.ko.xz: k/virtio.ko.xz k/virtio_ring.ko.xz\nk/virtio.ko.xz: k/virtio_ring.ko.xz\nk/virtio_ring.ko.xz:\n" +
		"k/virtio-rng.ko: k/loop.ko\nk/loop.ko: k/virtio-rng.ko\n../../etc/ext4.ko:\nno colon\n"
	got := orderModules(text, []string{"ext4", "virtio_mmio", "virtio_rng", "none"})
	if want := []string{"k/virtio_ring.ko.xz", "k/virtio.ko.xz", "k/virtio_mmio.ko.xz", "k/loop.ko", "k/virtio-rng.ko"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestVersions orders names of kernels.
func TestVersions(t *testing.T) {
	names := []string{"vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-56-amd64", "vmlinuz-5.10.0-100-amd64", "vmlinuz-6.12", "vmlinuz-6.1.0-056-amd64"}
	slices.SortFunc(names, compareVersions)
	if want := "vmlinuz-5.10.0-100-amd64 vmlinuz-6.1.0-9-amd64 vmlinuz-6.1.0-56-amd64 vmlinuz-6.1.0-056-amd64 vmlinuz-6.12"; strings.Join(names, " ") != want {
		t.Errorf("%q", names)
	}
}
