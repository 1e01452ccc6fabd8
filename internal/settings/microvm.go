package settings

import (
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// MicroVM says from which images the machines of calls with isolation microvm are. The tool of a call comes from the
// image.
type MicroVM struct {
	Image    string            `json:"image,omitempty"`    // for all packs that Images does not name; "": none
	Images   map[string]string `json:"images,omitempty"`   // by pack
	MemoryMB int               `json:"memoryMB,omitempty"` // of each machine; 0: 512
}

// Limits of the setting microvm.
const (
	maxImages    = 64
	maxImageName = 64
	maxMachineMB = 1 << 20
)

// ImageFor returns the image for the calls of a pack, or "".
func (m MicroVM) ImageFor(pack string) string {
	if name := m.Images[pack]; name != "" {
		return name
	}
	return m.Image
}

func (r reader) readMicroVM(n ast.Node) (m MicroVM) {
	r.readKeys(n, "part of microvm", strictyaml.Fields{
		"image":    storeIn(&m.Image, r.readImageName),
		"images":   storeIn(&m.Images, r.readImages),
		"memoryMB": r.countField("memoryMB", maxMachineMB, &m.MemoryMB),
	})
	return m
}

// readImageName reads the name of an image. The host of sandboxes knows which exist.
func (r reader) readImageName(n ast.Node) string {
	name := r.readWord(n, maxImageName)
	if strings.ContainsFunc(name, func(c rune) bool { return c == '/' || unicode.IsSpace(c) }) {
		r.AddFault(n, "an image has a name, not a path; bailey image list shows the images")
	}
	return name
}

func (r reader) readImages(n ast.Node) map[string]string {
	images := map[string]string{}
	pairs, ok := strictyaml.PairsOf(n)
	if !ok {
		r.AddFault(n, "images must name an image for each pack, for example {web: node}")
		return nil
	}
	for _, pair := range pairs {
		pack, _ := strictyaml.TextOf(pair.Key)
		if len(images) == maxImages || images[pack] != "" {
			r.AddFault(pair.Key, "images must name each pack once, at most %d", maxImages)
		}
		images[pack] = r.readImageName(pair.Value)
	}
	return images
}
