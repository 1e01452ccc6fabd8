package audit_test

import (
	"fmt"
	"strings"

	"bailey/audit"
)

// The ledger of a gateway on the host "castle" that ran one call. Of the first line, the hash is
//
//	SHA-256( 32 zero bytes || {"seq":1,"time":"2026-11-03T09:00:01Z", … "host":"castle"}} )
//
// and of the second
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
	// false entry 3 (segment 1, byte 508): chain: the hash over the entry before and this one is not the one written <nil>
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
