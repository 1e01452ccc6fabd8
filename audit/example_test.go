package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"bailey/audit"
)

// The ledger of a gateway on the host "castle" that ran one call. The hash of the first line is
//
//	SHA-256( 32 zero bytes || {"seq":1,"time":"2026-11-03T09:00:01Z", … "host":"castle"}} )
//
// and that of the second is
//
//	SHA-256( 2b637349…1e023e7add851 as 32 bytes || {"seq":2, … } )
const ledger = `{"hash":"2b637349740fcb8ac0496e00b33251951a161abd10672915ee01a023e7add851","entry":{"seq":1,"time":"2026-11-03T09:00:01Z","kind":"genesis","data":{"format":1,"origin":"000102030405060708090a0b0c0d0e0f","host":"castle"}}}
{"hash":"e01bdd2a03e261301a6fe1c6fcaf90aec159a19b91ea4f0ba6d10aa22304ae74","entry":{"seq":2,"time":"2026-11-03T09:00:02Z","kind":"intent","data":{"receipt":"r-1","capability":"git.status","agent":"local","host":"castle","session":"s-1","door":"cli","startedAt":"2026-11-03T09:00:02Z"}}}
{"hash":"3bae41f487f85e53b802a549ed26831c87e8909817c12cb0460761f4cc2570e9","entry":{"seq":3,"time":"2026-11-03T09:00:03Z","kind":"outcome","data":{"receipt":"r-1","outcome":"ok","decision":"allow","executed":true,"exitCode":0,"endedAt":"2026-11-03T09:00:03Z"}}}
`

func Example() {
	report, err := audit.Verify(strings.NewReader(ledger))
	fmt.Println(report.OK, report.Entries, report.Origin, err)
	fmt.Println(report.Head)

	forged := strings.Replace(ledger, `"exitCode":0`, `"exitCode":1`, 1)
	report, err = audit.Verify(strings.NewReader(forged))
	fmt.Println(report.OK, report.FirstBad, err)
	// Output:
	// true 3 000102030405060708090a0b0c0d0e0f <nil>
	// 3bae41f487f85e53b802a549ed26831c87e8909817c12cb0460761f4cc2570e9
	// false entry 3 (segment 1, byte 508): chain: the entry was changed or moved: its hash does not match its bytes and the previous entry <nil>
}

func ExampleScan() {
	for e, err := range audit.Scan(strings.NewReader(ledger), audit.Head{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s %q\n", e.Seq, e.Kind, e.Receipt)
	}
	// Output:
	// 1 genesis ""
	// 2 intent "r-1"
	// 3 outcome "r-1"
}

// The bytes of a tree over the three lines above. A leaf is a whole line, including its newline.
func Example_tree() {
	var leaf [3][32]byte
	for i, line := range strings.SplitAfter(ledger, "\n")[:3] {
		leaf[i] = sha256.Sum256([]byte("\x00" + line))
	}
	left := sha256.Sum256(slices.Concat([]byte{1}, leaf[0][:], leaf[1][:]))
	root := sha256.Sum256(slices.Concat([]byte{1}, left[:], leaf[2][:]))

	report, err := audit.Verify(strings.NewReader(ledger))
	fmt.Println(report.Root, report.Root == root, err)

	// The edge of a tree of three leaves is a subtree of two and one of one. The tree can grow from it.
	tree, err := audit.NewTree(3, []audit.Hash{left, leaf[2]})
	fmt.Println(tree.Root() == root, err)
	// Output:
	// c1b9248d3c5729e0eb50d45a42aa69e5ad85450529373224baccc1e86122a16c true <nil>
	// true <nil>
}

// The bytes that a log and a witness sign. The keys are test keys: the seeds are 32 bytes of 1 and of 2.
func Example_checkpoint() {
	const origin = "bailey/castle/000102030405060708090a0b0c0d0e0f"
	logKey := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	witnessKey := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))
	report, _ := audit.Verify(strings.NewReader(ledger))

	text := origin + "\n3\n" + base64.StdEncoding.EncodeToString(report.Root[:]) + "\n"
	public := append([]byte{0x01}, logKey.Public().(ed25519.PublicKey)...)
	id := sha256.Sum256([]byte(origin + "\n" + string(public)))
	signed := text + "\n— " + origin + " " + base64.StdEncoding.EncodeToString(append(id[:4], ed25519.Sign(logKey, []byte(text))...)) + "\n"

	public = append([]byte{0x04}, witnessKey.Public().(ed25519.PublicKey)...)
	id = sha256.Sum256([]byte("witness.example/w\n" + string(public)))
	stamp := binary.BigEndian.AppendUint64(nil, 1793696400)
	stamp = append(stamp, ed25519.Sign(witnessKey, []byte("cosignature/v1\ntime 1793696400\n"+text))...)
	signed += "— witness.example/w " + base64.StdEncoding.EncodeToString(append(id[:4], stamp...)) + "\n"
	fmt.Print(signed)

	key, _ := audit.LogKey(origin, logKey.Public().(ed25519.PublicKey))
	witness, _ := audit.WitnessKey("witness.example/w", witnessKey.Public().(ed25519.PublicKey))
	fmt.Println(key)
	fmt.Println(witness)

	// The package verifies the signatures, and the ledger against the checkpoint.
	trust := audit.Trust{Keys: []audit.Key{key}, Witnesses: []audit.Key{witness}, Quorum: 1}
	check := audit.Check{Trust: trust, Seen: [][]byte{[]byte(signed)}}
	report, err := check.Verify(strings.NewReader(ledger))
	fmt.Println(report.OK, err)
	cut := ledger[:strings.Index(ledger, `{"hash":"3bae`)]
	report, err = check.Verify(strings.NewReader(cut))
	fmt.Println(report.FirstBad, err)
	// Output:
	// bailey/castle/000102030405060708090a0b0c0d0e0f
	// 3
	// wbkkjTxXKeDrUNRaQqpp5a2FRQUpNzIkuszB6GEioWw=
	//
	// — bailey/castle/000102030405060708090a0b0c0d0e0f pG7FEDCc11o/6fNkRtr9Dum2pNqUQ6f8NnqI+qvfOlfGJ1KVi3YCMHrK8QwXuHaFX1KucW/diQrQ+p7yT9XJGiA4WQg=
	// — witness.example/w yxOT3AAAAABq6aKQeIyJw2HlpZBorRTmM9Bw5BvCWDmC4n5Ngl038a93VtSkvgrj/aGnipQ832Vi/7Bj5DTGNwL8kVl4cjRaZ+h1Cw==
	// bailey/castle/000102030405060708090a0b0c0d0e0f+a46ec510+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c
	// witness.example/w+cb1393dc+BIE5dw6ofRdfVqNUZsNMfszLjYqRtO43ol32D1uPybOU
	// true <nil>
	// truncated: 3 entries were signed, but 2 are left: it was cut, or an old copy restored <nil>
}

// receipt is the portable receipt of the call in the ledger above, under a checkpoint that the log signed.
const receipt = `bailey.audit/receipt/v1
entry 2
b7f049e44cea25a46bbfa1f09ea3f0107d8e658df5b1e0d5251ab274bd53c075
ab9b138bc4b3ddcc738c1a20a675ef694d42068495bae4bb52ba802048d74d6a
{"hash":"e01bdd2a03e261301a6fe1c6fcaf90aec159a19b91ea4f0ba6d10aa22304ae74","entry":{"seq":2,"time":"2026-11-03T09:00:02Z","kind":"intent","data":{"receipt":"r-1","capability":"git.status","agent":"local","host":"castle","session":"s-1","door":"cli","startedAt":"2026-11-03T09:00:02Z"}}}
entry 3
98ec2b58da1a7199c309507596db7594b0212ea65328d0aeeb0c891c810c7247
{"hash":"3bae41f487f85e53b802a549ed26831c87e8909817c12cb0460761f4cc2570e9","entry":{"seq":3,"time":"2026-11-03T09:00:03Z","kind":"outcome","data":{"receipt":"r-1","outcome":"ok","decision":"allow","executed":true,"exitCode":0,"endedAt":"2026-11-03T09:00:03Z"}}}

bailey/castle/000102030405060708090a0b0c0d0e0f
3
wbkkjTxXKeDrUNRaQqpp5a2FRQUpNzIkuszB6GEioWw=

— bailey/castle/000102030405060708090a0b0c0d0e0f pG7FEDCc11o/6fNkRtr9Dum2pNqUQ6f8NnqI+qvfOlfGJ1KVi3YCMHrK8QwXuHaFX1KucW/diQrQ+p7yT9XJGiA4WQg=
`

// A receipt that can be verified without its ledger.
func ExampleVerifyReceipt() {
	key, _ := audit.ParseKey("bailey/castle/000102030405060708090a0b0c0d0e0f+a46ec510+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c")
	trust := audit.Trust{Keys: []audit.Key{key}}
	shown, err := audit.VerifyReceipt([]byte(receipt), trust)
	fmt.Println(shown.Origin, shown.Intent.Seq, shown.Outcome.Seq, shown.Outcome.Receipt, err)

	_, err = audit.VerifyReceipt([]byte(strings.Replace(receipt, `"exitCode":0`, `"exitCode":1`, 1)), trust)
	fmt.Println(err)
	// Output:
	// bailey/castle/000102030405060708090a0b0c0d0e0f 2 3 r-1 <nil>
	// entry 3 of the ledger: the entry's hash does not match the previous entry
}

// The bytes of a commitment to the body "hello", with a salt of 32 zeros. A real salt must be random.
func ExampleCommit() {
	h := sha256.Sum256([]byte("bailey.audit/body/v1\x00" + strings.Repeat("\x00", 32) + "\x00\x00\x00\x00\x00\x00\x00\x05" + "hello"))
	c := audit.Commit(audit.Salt{}, []byte("hello"))
	fmt.Println(c.Digest, c.Digest == h, c.Check(audit.Salt{}, []byte("hello")))
	fmt.Println(c.Check(audit.Salt{}, []byte("hullo")))
	// Output:
	// f5201fea438b92ea806d22adfce71dc3d886651395f55c0f802f5a4af9c8d0ba true <nil>
	// these 5 bytes with this salt do not match the committed body of 5 bytes
}
