package battery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Probe tries one thing.
type Probe struct {
	Name  string // class/name
	try   func(*Scene) verdict
	Alone bool   // the cage may end when it stops this probe: it gets its own cage
	here  bool   // examines the first process of the tool, so it runs there
	dies  bool   // being killed counts as held
	Full  string // why it makes sense only in a cage with namespaces; "" if it does in both kinds
}

// Probes returns all probes, in the order in which they run.
func Probes() []Probe {
	return slices.Concat(dataProbes(), writeProbes(), processProbes(), namespaceProbes(), mountProbes(), deviceProbes(),
		kernelProbes(), archProbes(), execProbes(),
		networkProbes(), ipcProbes(), keyringProbes(), resourceProbes(), crossCageProbes())
}

const (
	ran      = "the program ran" // the output of noop
	deadline = 20 * time.Second  // for one probe
	refusal  = 99                // exit code outside a cage
)

// Main is the attacker's main function. Its verbs are: all; one NAME; plant; survive WAY; flip A B; freeze; those that
// these use themselves; and noop, which has no effect.
func Main(args []string) int {
	if len(args) > 0 && args[0] == "noop" {
		fmt.Println(ran)
		return 0
	}
	var s Scene
	err := json.Unmarshal([]byte(os.Getenv(Env)), &s)
	if err == nil {
		err = s.checkInCage()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "battery: not in a cage, so it does not run:", err)
		return refusal
	}
	if s.Kind != "full" { // its directories have other names
		s.Home, s.Tmp = os.Getenv("HOME"), os.Getenv("TMPDIR")
	}
	// SIGUSR1 is sent to many processes; SIGXFSZ is reported by an errno too
	signal.Ignore(syscall.SIGUSR1, syscall.SIGXFSZ)
	switch {
	case len(args) == 1 && args[0] == "all":
		return s.runAll()
	case len(args) == 2 && args[0] == "one":
		return s.runOne(args[1])
	case len(args) == 1 && args[0] == "part":
		return s.useHalfMemory()
	case len(args) == 1 && args[0] == "plant":
		return s.plantData()
	case len(args) == 2 && args[0] == "survive":
		return s.leaveSurvivor(args[1])
	case len(args) == 3 && args[0] == "flip":
		return swapNames(args[1], args[2])
	case len(args) == 1 && args[0] == "freeze":
		return stopAllProcesses()
	case len(args) == 2 && args[0] == "linger":
		stayAlive(args[1])
		return 0
	}
	fmt.Fprintf(os.Stderr, "battery: no such verb: %q\n", args)
	return 2
}

// Shared tells whether a probe is part of a run of many.
func (p Probe) Shared(s *Scene) bool {
	if len(s.Only) > 0 {
		return slices.Contains(s.Only, p.Name)
	}
	return !p.Alone && (p.Full == "" || s.Kind == "full") && !(s.Maskless && strings.Contains(p.Name, "mask"))
}

func (s *Scene) runAll() int {
	for _, p := range Probes() {
		if !p.Shared(s) {
			continue
		}
		v := verdict{}
		if p.here {
			v = p.try(s)
		} else {
			v = s.runInProcess(p)
		}
		v.printResult(p.Name)
	}
	return 0
}

func (s *Scene) runOne(name string) int {
	for _, p := range Probes() {
		if p.Name == name {
			p.try(s).printResult(name)
			return 0
		}
	}
	return 2
}

func (v verdict) printResult(name string) {
	if v == (verdict{}) {
		v.odd = "said nothing"
	}
	json.NewEncoder(os.Stdout).Encode(Result{name, clipText(v.held), clipText(v.open), clipText(v.odd)})
}

// runInProcess runs a probe in its own process and reads its verdict.
func (s *Scene) runInProcess(p Probe) verdict {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var out, log bytes.Buffer
	cmd := exec.CommandContext(ctx, os.Args[0], "one", p.Name)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &log, time.Second
	err := cmd.Run()
	var end *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return oddVerdict("no answer in %v", deadline)
	case errors.As(err, &end) && end.Sys().(syscall.WaitStatus).Signaled() && p.dies:
		return heldVerdict("%v", end)
	case strings.Contains(out.String(), ran):
		return openVerdict("another program ran in the place of the probe")
	}
	var r Result
	if json.Unmarshal(out.Bytes(), &r) != nil || r.Name != p.Name {
		if strings.HasPrefix(p.Name, "exec/") && !strings.Contains(log.String(), "goroutine ") {
			return openVerdict("something ran in the place of the probe: %s", clipText(out.String()))
		}
		return oddVerdict("%v: %s%s", err, clipText(out.String()), clipText(log.String()))
	}
	return verdict{r.Held, r.Open, r.Odd}
}
