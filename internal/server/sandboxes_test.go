package server

import (
	"os"
	"testing"

	"bailey/pack"
)

// TestMachinePrograms checks that a capability with isolation microvm counts as present if the settings name an image
// for its pack, whatever programs this machine has.
func TestMachinePrograms(t *testing.T) {
	catalog, err := pack.Load(os.DirFS("../../pack/testdata/published"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := catalog.Lookup("machine.npm-test")
	if err != nil {
		t.Fatal(err)
	}
	image := ""
	s := newShelf(catalog, nil, func(string) bool { return true })
	if s.installedCheck()(m) {
		t.Error("it is present without settings")
	}
	s.image = func(name string) string {
		if name != "machine" {
			t.Errorf("the pack is %q", name)
		}
		return image
	}
	if s.installedCheck()(m) {
		t.Error("it is present without an image")
	}
	image = "node"
	s.installed = func(string) bool { return false }
	if !s.installedCheck()(m) {
		t.Error("it is absent although it has an image")
	}
}
