//go:build linux || darwin

package index

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/receipts"
)

// foreignEnv names a file. If it is set, TestForeignWriter runs a statement on that file.
const foreignEnv = "LEDGER_FOREIGN_INDEX"

// foreign runs a statement on the index file in another process.
func foreign(x *Index, text string) error {
	cmd := exec.Command(os.Args[0], "-test.run=^TestForeignWriter$", "-test.count=1")
	cmd.Env = append(os.Environ(), foreignEnv+"="+x.path+"\n"+text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestForeignWriter is that other process.
func TestForeignWriter(t *testing.T) {
	path, text, ok := strings.Cut(os.Getenv(foreignEnv), "\n")
	if !ok {
		return // it was not started for that
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10)")
	do(t, err)
	defer db.Close()
	_, err = db.Exec(text)
	do(t, err)
}

// harms returns ways to change an index that is in use.
func harms() map[string]func(t *testing.T, x *Index) {
	return map[string]func(t *testing.T, x *Index){
		"SQLite, the locks lost": func(t *testing.T, x *Index) {
			f, err := os.Open(x.path)
			do(t, err)
			do(t, f.Close()) // this drops all locks of this process on the file (fcntl(2))
			do(t, foreign(x, "DELETE FROM receipt WHERE seq < 100"))
		},
		"bytes of the file, the time put back": func(t *testing.T, x *Index) {
			st, err := os.Stat(x.path)
			do(t, err)
			f, err := os.OpenFile(x.path, os.O_RDWR, 0)
			do(t, err)
			_, err = f.WriteAt([]byte("x"), st.Size()-1)
			do(t, err)
			do(t, f.Close())
			do(t, os.Chtimes(x.path, st.ModTime(), st.ModTime()))
		},
		"bytes behind the log beside it": func(t *testing.T, x *Index) {
			f, err := os.OpenFile(x.path+"-wal", os.O_APPEND|os.O_WRONLY, 0)
			do(t, err)
			_, err = f.WriteString("more")
			do(t, err)
			do(t, f.Close())
		},
		"no log beside it": func(t *testing.T, x *Index) { do(t, os.Remove(x.path+"-wal")) },
		"another file": func(t *testing.T, x *Index) {
			data, err := os.ReadFile(x.path)
			do(t, err)
			do(t, os.WriteFile(x.path+".new", data, 0o600))
			do(t, os.Rename(x.path+".new", x.path))
		},
	}
}

// TestIndexIsHeld checks that no other SQLite process can read or write an index that is in use.
func TestIndexIsHeld(t *testing.T) {
	l := open(t, ledger.Config{Dir: place(t)})
	varied(t, l, 60, 1)
	x := indexed(t, l, &said{})
	_, err := x.Find(context.Background(), receipts.Filter{})
	do(t, err)
	for _, text := range []string{"DELETE FROM receipt", "SELECT count(*) FROM receipt"} {
		if err := foreign(x, text); err == nil || !strings.Contains(err.Error(), "locked") {
			t.Errorf("%s: %v, want that it is locked", text, err)
		}
	}
	likeTheScan(t, x, 50)
}

// TestIndexWrittenWhileInUse checks that if the file is written despite the locks, the next answer is right, and the
// operator's log says why the index was rebuilt.
func TestIndexWrittenWhileInUse(t *testing.T) {
	ktest.Long(t)
	for name, harm := range harms() {
		t.Run(name, func(t *testing.T) {
			l := open(t, ledger.Config{Dir: place(t)})
			varied(t, l, 100, 4)
			var log said
			x := indexed(t, l, &log)
			_, err := x.Find(context.Background(), receipts.Filter{})
			do(t, err)
			time.Sleep(20 * time.Millisecond) // longer than a clock tick of the file systems used here
			harm(t, x)
			likeTheScan(t, x, 30)
			if !strings.Contains(log.String(), "another program has written it") {
				t.Errorf("said %q", &log)
			}
		})
	}
}

// TestForeignIndexIsNotSealed checks that an index that was written by another process is not sealed and not used after
// the next start.
func TestForeignIndexIsNotSealed(t *testing.T) {
	ktest.Long(t)
	for name, harm := range harms() {
		t.Run(name, func(t *testing.T) {
			l := open(t, ledger.Config{Dir: place(t)})
			varied(t, l, 100, 4)
			var log said
			x := indexed(t, l, &log)
			_, err := x.Find(context.Background(), receipts.Filter{})
			do(t, err)
			time.Sleep(20 * time.Millisecond)
			harm(t, x)
			do(t, x.Close())
			for _, suffix := range []string{sealSuffix, ""} {
				if _, err := os.Lstat(x.path + suffix); err == nil {
					t.Errorf("index.db%s stands there", suffix)
				}
			}
			if !strings.Contains(log.String(), "another program has written it") {
				t.Errorf("said %q", &log)
			}
			likeTheScan(t, x, 30)
		})
	}
}

// TestIndexWrittenDuringAnAnswer checks that an answer is discarded if the file was written meanwhile.
func TestIndexWrittenDuringAnAnswer(t *testing.T) {
	l := open(t, ledger.Config{Dir: place(t)})
	varied(t, l, 100, 4)
	x := indexed(t, l, &said{})
	_, err := x.Find(context.Background(), receipts.Filter{})
	do(t, err)
	time.Sleep(20 * time.Millisecond)
	err = x.useIndex(context.Background(), func() error {
		return os.Chmod(x.path, 0o600)
	})
	if err != errForeign {
		t.Errorf("%v", err)
	}
}

// TestPipeForASeal checks that a pipe in place of the index's seal does not block.
func TestPipeForASeal(t *testing.T) {
	l := open(t, ledger.Config{Dir: place(t)})
	varied(t, l, 10, 1)
	x := indexed(t, l, &said{})
	_, err := x.Find(t.Context(), receipts.Filter{})
	do(t, err)
	do(t, x.Close())
	do(t, os.Remove(x.path+sealSuffix))
	do(t, syscall.Mkfifo(x.path+sealSuffix, 0o600))
	likeTheScan(t, x, 30)
	do(t, x.Close())
}

// TestPipesBesideTheIndex checks that a pipe in place of SQLite's files beside the index does not block either.
func TestPipesBesideTheIndex(t *testing.T) {
	for _, suffix := range []string{"-journal", "-wal", "-shm"} {
		l := open(t, ledger.Config{Dir: place(t)})
		varied(t, l, 10, 1)
		x := indexed(t, l, &said{})
		_, err := x.Find(t.Context(), receipts.Filter{})
		do(t, err)
		do(t, x.Close())
		do(t, syscall.Mkfifo(x.path+suffix, 0o600))
		likeTheScan(t, x, 30)
		do(t, x.Close())
	}
}
