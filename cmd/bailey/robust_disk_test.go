package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"bailey/internal/ktest"
)

// mounted runs a shell script in its own mount namespace, where it can mount file systems. In the script, bailey is the
// program, and "refused CODE WORD..." is a call that must fail with that code and print these words.
func (y *yard) mounted(script string) string {
	y.t.Helper()
	ktest.Require(y.t, "unshare", "sh", "mount")
	flags := []string{"-m"}
	if os.Geteuid() != 0 {
		flags = []string{"-m", "--map-current-user", "--keep-caps"}
	}
	if out, err := y.command("unshare", append(flags, "mount", "-t", "tmpfs", "none", "/mnt")...).CombinedOutput(); err != nil {
		ktest.Missing(y.t, "mount", fmt.Errorf("%v: %s", err, out))
	}
	prelude := `set -e
trap 'bailey gateway stop >/dev/null 2>&1 || true' EXIT
refused() {
	want=$1; shift # a code, or several that the case accepts
	got=0; out=$(bailey run system.echo -i message=x 2>&1) || got=$?
	case " $want " in *" $got "*) ;; *) echo "exit code $got, want $want: $out"; exit 1;; esac
	for word; do case $out in *"$word"*) ;; *) echo "not said: $word: $out"; exit 1;; esac; done
}
fill() { dd if=/dev/zero of="$BAILEY_HOME/fill" bs=64k >/dev/null 2>&1 || true; }
mkdir -p "$BAILEY_HOME"
mount -t tmpfs -o size=80m,mode=0700 home "$BAILEY_HOME"
`
	cmd := y.command("unshare", append(flags, "sh", "-c", prelude+script)...)
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(y.program)+":"+os.Getenv("PATH"))
	cmd.Dir = y.repo
	out, err := cmd.CombinedOutput()
	if err != nil {
		y.t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// TestFullDisk checks that calls are refused if the disk is full, and continue with the same gateway when there is
// space again. If a gateway has no space to start, it must say so.
func TestFullDisk(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	newYard(t).mounted(`
bailey run system.echo -i message=before
fill
for n in 1 2 3 4 5 6 7 8 9; do bailey run system.echo -i message=$n >/dev/null 2>&1 || break; done # what was reserved
refused 1 "could not be recorded" "no space left" "free some space"
bailey audit verify
rm "$BAILEY_HOME/fill"
bailey run system.echo -i message=after
bailey gateway stop
fill
refused "1 127" "no space left" "free some space"
rm "$BAILEY_HOME/fill"
bailey run system.echo -i message=again
bailey audit verify --json | grep '"open":0'
`)
}

// TestFullDiskFromTheStart uses a home that never had space for a ledger.
func TestFullDiskFromTheStart(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	newYard(t).mounted(`
fill
refused 127 "no space left" "free some space"
rm "$BAILEY_HOME/fill"
bailey run system.echo -i message=again
bailey audit verify
`)
}

// TestReadOnlyHome checks that no call runs if nothing can be recorded. The existing ledger can still be verified.
func TestReadOnlyHome(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	newYard(t).mounted(`
protect() { for i in $(seq 100); do mount -o remount,ro "$BAILEY_HOME" 2>/dev/null && return; sleep 0.1; done; return 1; } # a gateway that ended may be a moment in ending
protect
refused 127 "read-only" "BAILEY_HOME"
mount -o remount,rw "$BAILEY_HOME"
bailey run system.echo -i message=before
bailey gateway stop
protect
refused 127 "read-only" "BAILEY_HOME"
bailey audit verify
bailey gateway stop
`)
}

// TestFrailHome checks that there is a warning if the home is in memory.
func TestFrailHome(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	newYard(t).mounted(`
bailey run system.echo -i message=x
grep "receipts may be lost if the machine crashes.*tmpfs keeps the ledger in memory" "$BAILEY_HOME/gateway.log"
`)
}
