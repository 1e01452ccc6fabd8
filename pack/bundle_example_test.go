package pack_test

import (
	"bytes"
	"fmt"
	"os"

	"bailey/pack"
)

// ExampleVerify verifies a signed bundle, and the same bundle with one word changed.
func ExampleVerify() {
	bundle, _ := os.ReadFile("testdata/bundle/demo-1.0.0.baileypack")
	public, _ := os.ReadFile("testdata/bundle/author.pub")
	key, _ := pack.ParseKey(string(public))

	v, err := pack.Verify(bundle, []pack.Key{key})
	fmt.Println(v.Name, v.Version, v.Signer, err)
	for _, f := range v.Files {
		fmt.Println(f.Path, f.Size)
	}
	_, err = pack.Verify(bytes.Replace(bundle, []byte("Counts"), []byte("Deletes"), 1)[:len(bundle)], []pack.Key{key})
	fmt.Println(err)
	// Output:
	// demo 1.0.0 author <nil>
	// README.md 16
	// pack.yaml 453
	// README.md does not match the index: its bytes were changed
}
