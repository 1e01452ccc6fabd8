package settings

import (
	"strings"
	"testing"

	"bailey"
)

// TestMicroVMSetting reads the images of calls with isolation microvm, and refuses what is no name of an image.
func TestMicroVMSetting(t *testing.T) {
	c, err := ParseSettings([]byte("microvm:\n  image: debian\n  images: {web: node, shop: php}\n  memoryMB: 1024\n"))
	if err != nil || c.MicroVM.ImageFor("web") != "node" || c.MicroVM.ImageFor("other") != "debian" || c.MicroVM.MemoryMB != 1024 {
		t.Errorf("%+v, %v", c.MicroVM, err)
	}
	if c, err = ParseSettings([]byte("microvm: {images: {web: node}}\n")); err != nil || c.MicroVM.ImageFor("other") != "" {
		t.Errorf("%+v, %v", c.MicroVM, err)
	}
	for text, want := range map[string]string{
		"microvm: {image: /var/x}": "not a path", "microvm: {image: [a]}": "one line", "microvm: {images: [a]}": "for each pack",
		"microvm: {memoryMB: 0}": "memoryMB", "microvm: {img: a}": "img", "microvm: {images: {web: a, web: b}}": "each pack once",
	} {
		if _, err := ParseSettings([]byte(text + "\n")); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
