package control

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"bailey/internal/fleet"
	"bailey/internal/store"
)

// FuzzHostReports: whatever a host says about its resources, about a call and about its sandboxes, the server stores states
// that it knows, and text that each database holds.
func FuzzHostReports(f *testing.F) {
	for _, seed := range []string{`{}`, `null`, `[]`, `{"status":"ok","structured":{"id":"sb-aaaaaaaaaaaaaaaaaaaaaaaaaa","state":"running"}}`,
		`{"status":"ok","stdout":"[{\"id\":\"x\",\"cpus\":-1}]"}`, `{"status":"","error":"denied","message":"\u0000"}`,
		`{"calls":["sandbox.create"],"capacity":{"memory":-1},"images":["debian"]}`, `{"receipt":"\u0000r","status":"ok"}`} {
		f.Add([]byte(seed))
	}
	states := []string{store.OperationDone, store.OperationFailed, store.OperationUnknown}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || !utf8.Valid(body) { // the frame was refused
			return
		}
		o := store.Operation{}
		r, err := readCallResult(&o, fleet.Result{Body: body})
		if err != nil || !slices.Contains(states, o.State) || o.Fault != "" && !json.Valid([]byte(o.Fault)) {
			t.Errorf("%+v, %v", o, err)
		}
		for _, text := range []string{o.Receipt, o.Fault, string(o.Result)} {
			if !utf8.ValidString(text) || slices.Contains([]byte(text), 0) {
				t.Errorf("%q cannot be stored", text)
			}
		}
		var all []machine
		if readStructured(r, &all) == nil {
			for _, m := range all {
				if b := m.describes(store.SandboxBox{}); !slices.Contains(machineStates, b.State) || b.CPUs < 1 || b.MemoryMB < 1 ||
					slices.Contains([]byte(b.Name+b.Network), 0) {
					t.Errorf("%+v", b)
				}
			}
		}
		NewSandbox{Image: "debian"}.fitsOn(body)
	})
}
