package pack

import (
	"os"
	"testing"
)

func BenchmarkParse(b *testing.B) {
	data, err := os.ReadFile("../packs/git/pack.yaml")
	if err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		if _, err := parsePack("x", data, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckAndRender(b *testing.B) {
	data, err := os.ReadFile("../packs/git/pack.yaml")
	if err != nil {
		b.Skip(err)
	}
	p, err := parsePack("x", data, true)
	if err != nil {
		b.Fatal(err)
	}
	log := p.Capabilities[1]
	for b.Loop() {
		in, err := log.Check(map[string]any{"repo": ".", "limit": "5", "rev": "main"}, true)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := log.Render(in, map[string]string{"repo": "/x"}); err != nil {
			b.Fatal(err)
		}
	}
}
