package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
)

func (a *commands) benchVerifyVerb() *cobra.Command {
	var entries int
	var part string
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare the verification of a ledger with hashing its bytes",
		Args: cobra.MaximumNArgs(1),
		Long: `Write a ledger with the given number of entries to TMPDIR and read it, each time in a separate
process: sha256, the hash of its bytes alone; chain, frames, numbers and hashes checked; tree, also the root
over the lines.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if part != "" && len(args) == 1 {
				return a.benchPart(part, args[0])
			}
			if entries < 1 || len(args) > 0 {
				return bailey.Invalid.New("--entries must be at least 1, and there are no arguments", "use: bailey bench verify --entries 1000000")
			}
			rows, err := benchVerify(cmd.Context(), entries)
			if err != nil {
				return err
			}
			return a.printRows(rows)
		},
	}
	cmd.Flags().IntVar(&entries, "entries", 1_000_000, "number of entries")
	cmd.Flags().StringVar(&part, "part", "", "the row to measure in this process")
	cmd.Flags().MarkHidden("part")
	return cmd
}

func benchVerify(ctx context.Context, entries int) (rows []Row, err error) {
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return rows, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "00000001.jsonl")
	size, err := benchFile(name, entries)
	if err != nil {
		return rows, err
	}
	self, err := os.Executable()
	if err != nil {
		return rows, err
	}
	for _, part := range []string{"sha256", "chain", "tree"} {
		var rss float64
		cmd := exec.CommandContext(ctx, self, "verify", "--part", part, name)
		out, err := cmd.Output()
		if err == nil {
			_, err = fmt.Sscan(string(out), &rss)
		}
		if err != nil {
			return rows, fmt.Errorf("measuring %s: %w", part, err)
		}
		cpu, mb := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), float64(size)/1e6
		rows = append(rows, Row{Name: part, N: entries, Rate: mb / cpu,
			Facts: map[string]float64{"mb": mb, "cpu_s": cpu, "rss_mb": rss}})
		last := &rows[len(rows)-1]
		*last = last.comparedTo("sha256", last.Rate, rows[0].Rate, 0)
	}
	return rows, nil
}

// benchFile writes a ledger of receipts of average size, and returns its size in bytes.
func benchFile(name string, entries int) (int64, error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	text := strings.Repeat("x", benchLine-benchFrame-40)
	var head audit.Head
	var line []byte
	var size int64
	for n := range entries {
		kind, data := audit.KindIntent, fmt.Sprintf(`{"receipt":"r-%d","text":"%s"}`, n/2, text)
		switch {
		case n == 0:
			kind, data = audit.KindGenesis, `{"format":1,"origin":"000102030405060708090a0b0c0d0e0f","host":"bench"}`
		case n%2 == 0:
			kind = audit.KindOutcome
		}
		body, err := audit.NewBody(kind, []byte(data))
		if err != nil {
			return 0, err
		}
		var hash audit.Hash
		if line, hash, err = body.Append(line[:0], head, time.Now()); err != nil {
			return 0, err
		}
		head = audit.Head{Seq: head.Seq + 1, Hash: hash}
		size += int64(len(line))
		if _, err := w.Write(line); err != nil {
			return 0, err
		}
	}
	return size, w.Flush()
}

// benchPart runs one part and prints the peak memory of this process in MB.
func (a *commands) benchPart(part, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	switch part {
	case "sha256":
		_, err = io.CopyBuffer(struct{ io.Writer }{sha256.New()}, struct{ io.Reader }{f}, make([]byte, 2*audit.MaxLine))
	case "chain":
		_, err = audit.Follow(f, audit.Head{}, nil)
	case "tree":
		_, err = audit.Follow(f, audit.Head{}, new(audit.Tree))
	default:
		err = bailey.Invalid.New("no part "+part, "")
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stdout, peakMemory()/1e6)
	return err
}

// peakMemory returns the peak resident memory of this process in bytes. If the kernel does not report it, it is the
// memory that the Go runtime obtained.
func peakMemory() float64 {
	status, _ := os.ReadFile("/proc/self/status") // exists on Linux only
	if _, after, ok := bytes.Cut(status, []byte("VmHWM:")); ok {
		if kb, err := strconv.Atoi(string(bytes.Fields(after)[0])); err == nil {
			return float64(kb) * 1024
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys)
}
