package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// served returns the armed helper that will serve the next call of a plan.
func served(t testing.TB, j *Jail, digest string) *helper {
	t.Helper()
	for range 6000 {
		if h := j.cages().pickHelper(digest); h != nil {
			<-h.ready
			j.cages().mu.Lock()
			h.taken = false
			j.cages().mu.Unlock()
			return h
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no helper came")
	return nil
}

// TestWarmCage checks that calls served by a helper are like all others: each has its own arguments, environment,
// streams and exit, the same cage as a cold call, and nothing of the previous call.
func TestWarmCage(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "sh", "userns", "netns")
	if !inside.Walks {
		ktest.Missing(t, "warm-helpers", errors.New("none on this architecture"))
	}
	j := plainJail(t, Config{})
	if _, err := j.holder.openCgroups(); err != nil {
		ktest.Missing(t, "cgroup", err)
	}
	call := func(n int) (told, string) {
		job := bailey.Job{Command: "sh", Env: []string{fmt.Sprintf("N=%d", n)}, Args: []string{"-c",
			`read -r line; echo "$1 $N $line"; echo $(echo /tmp/* ~/* /proc/*) $(ulimit -a) $(umask) $(pwd); echo left >/tmp/left; echo left >~/left; echo log >&2; exit $1`,
			"sh", fmt.Sprint(n)}}
		r, err := j.Plan(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		in, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		fmt.Fprintf(feed, "line %d\n", n)
		feed.Close()
		var out, log strings.Builder
		exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdin: io.Reader(in), Stdout: &out, Stderr: &log})
		return told{exit, err, out.String(), log.String()}, r.Cage().PlanDigest
	}
	_, digest := call(0)
	cold, _ := call(0) // the second call of a plan starts a helper
	cold.must(t)
	h := served(t, j, digest)
	_, alike, _ := strings.Cut(cold.out, "\n")
	// In a cold cage, the tool's memory limit is set from outside after its start (stage_linux.go); in a warm one it
	// starts with it.
	alike = regexp.MustCompile(`data\(kbytes\) \d+`).ReplaceAllLiteralString(alike, fmt.Sprintf("data(kbytes) %d", defaultData>>10))
	for n := range 5 {
		r, _ := call(n)
		r.must(t)
		if want := fmt.Sprintf("%d %d line %d\n", n, n, n) + alike; r.out != want || r.log != "log\n" || r.exit.Code != n {
			t.Errorf("call %d: %q, %q, %d; want %q", n, r.out, r.log, r.exit.Code, want)
		}
		if again := served(t, j, digest); again != h || h.calls != n+1 {
			t.Fatalf("call %d went past its helper, which has had %d calls", n, h.calls)
		}
	}
}
