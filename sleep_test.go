package bailey_test

import (
	"go/ast"
	"go/token"
	"strconv"
	"testing"
	"time"
)

// maxSleep bounds a fixed sleep in a test. A test that waits for an event must poll until a deadline that is long
// enough for a busy machine. It must not sleep and then assume that the event has happened.
const maxSleep = 50 * time.Millisecond

// sleeps lists the functions that may sleep for longer, or for a time that is not constant, each with its reason.
var sleeps = map[string]string{
	"cmd/bailey/jail_test.go presses":                                   "a key is pressed again at this interval until it shows",
	"cmd/bailey/tui_test.go answer":                                     "waits out the time in which a dialog takes no key; a longer sleep does no harm",
	"cmd/bailey/tui_test.go TestScreen":                                 "as above",
	"cmd/bailey/tui_test.go TestScreenDenies":                           "as above",
	"internal/control/process/fleet_test.go pump":                       "data of a slow network comes at this pace",
	"internal/approve/approve_test.go note":                             "runs in a bubble",
	"internal/egress/life_test.go TestAttackIdle":                       "data comes at this pace; inTime tries again with more time",
	"internal/egress/life_test.go TestLongUpload":                       "as above",
	"internal/gateway/redactverb_test.go TestSlowReader":                "a reader that is slower than the time after which output counts as unread",
	"internal/jail/arm_test.go TestStockAtTheEnd":                       "the jail is closed at several moments, at most 19 ms after its begin",
	"internal/jail/inside/child_torture_linux_test.go TestChildTorture": "the length of the load, and the pause of those who disturb it",
	"internal/jail/probe_test.go still":                                 "a process that lives lets the file grow meanwhile; a longer sleep does no harm",
	"internal/jail/refuse_test.go TestArmedKnowsItsMounts":              "for whoever else could take the event of a mount; a longer sleep does no harm",
	"internal/jail/warm_death_test.go TestKilledBeforeTheMailIsRead":    "the call has been handed to the helper by then, which nothing outside can see",
	"internal/jail/warm_host_test.go Write":                             "a writer that takes its time",
	"internal/ledger/recover_test.go TestVerifyWaitsForTheLine":         "a writer that is late, by an eighth of what verify allows",
	"internal/mcp/wire_test.go TestAnswersAfterTheInputEnded":           "a call that takes a while: the input ends meanwhile; a longer sleep does no harm",
	"internal/mcp/tasks_test.go TestTaskOfASlowCall":                    "runs in a bubble",
	"internal/mcp/tasks_test.go TestTaskCancel":                         "runs in a bubble",
	"internal/mcp/tasks_test.go TestTasksAreBoundedInBytes":             "runs in a bubble",
	"test/day/kill_test.go killedAnywhere":                              "a gateway is killed at several moments of a call, at most 30 ms after its begin",
	"test/load/clients_test.go TestSixClients":                          "the length of the load, and between two looks for what a client has still to do",
	"test/load/clients_test.go typescript":                              "keeps the fastest client from leaving the others no time",
	"test/load/load_test.go TestLoad":                                   "the length of the load",
	"test/load/load_test.go killed":                                     "a client is killed at a moment by chance, at most 100 ms after its begin",
	"test/load/storm_test.go quiet":                                     "the group and directory of a call are removed after its process; TestStorm looks again until they are",
}

// TestNoFixedSleeps checks each call of time.Sleep in tests. It skips functions that use testing/synctest, because no
// real time passes in a bubble.
func TestNoFixedSleeps(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || calls(f, "synctest", "Test") > 0 {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !isCall(call, "time", "Sleep") || len(call.Args) != 1 {
					return true
				}
				if d, known := duration(call.Args[0]); known && d <= maxSleep {
					return true
				}
				where := s.dir + "/" + s.name + " " + f.Name.Name
				if used[where] = true; sleeps[where] == "" {
					t.Errorf("%s sleeps for a fixed time: wait for what must happen, or give the reason in sleep_test.go", where)
				}
				return true
			})
		}
	}
	for where := range sleeps {
		if !used[where] {
			t.Errorf("%s is listed and does not sleep", where)
		}
	}
}

func calls(f *ast.FuncDecl, pkg, name string) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok && isCall(call, pkg, name) {
			n++
		}
		return true
	})
	return n
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// duration evaluates an expression of constants of package time and integers. known is false if e is any other
// expression.
func duration(e ast.Expr) (d time.Duration, known bool) {
	units := map[string]time.Duration{"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
		"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return duration(e.X)
	case *ast.BasicLit:
		n, err := strconv.ParseInt(e.Value, 0, 64)
		return time.Duration(n), err == nil
	case *ast.SelectorExpr:
		d, known = units[e.Sel.Name]
		x, ok := e.X.(*ast.Ident)
		return d, known && ok && x.Name == "time"
	case *ast.BinaryExpr:
		x, okX := duration(e.X)
		y, okY := duration(e.Y)
		if !okX || !okY {
			return 0, false
		}
		switch e.Op {
		case token.MUL:
			return x * y, true
		case token.ADD:
			return x + y, true
		case token.SUB:
			return x - y, true
		case token.QUO:
			return x / max(y, 1), true
		}
	}
	return 0, false
}
