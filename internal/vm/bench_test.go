//go:build linux

package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// BenchmarkClone clones a template to the first answer of its guest, in turns with the smallest commands that resume it:
// QEMU with the same arguments and no overlay, limits, directory or check. It reports medians, and the memory of a clone.
func BenchmarkClone(b *testing.B) {
	ktest.Long(b)
	h, s := testHost(b, Config{}), testSpec(b)
	s.MemoryMB = 128
	m := startGuest(b, h, s)
	dir, tm := b.TempDir(), templateOf(b, h, m)
	if err := m.Destroy(b.Context()); err != nil {
		b.Fatal(err)
	}
	var clones, bare, private []time.Duration
	for b.Loop() {
		bare = append(bare, bareResume(b, h, tm))
		begin := time.Now()
		c, err := h.Clone(b.Context(), tm, filepath.Join(dir, "clone"))
		if err != nil {
			b.Fatal(err)
		}
		clones = append(clones, time.Since(begin))
		private = append(private, time.Duration(privateMemory(b, c.PID())))
		if err := c.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for name, list := range map[string][]time.Duration{"clone": clones, "bare": bare} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(list[0].Microseconds())/1000, name+"-least-ms")
	}
	slices.Sort(private)
	b.ReportMetric(float64(private[len(private)/2])/1024, "MiB-private")
}

// privateMemory returns the KiB of memory that only this process has.
func privateMemory(b *testing.B, pid int) (kib int) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var n int
		if _, err := fmt.Sscanf(line, "Private_Dirty: %d kB", &n); err == nil {
			kib += n
		}
		if _, err := fmt.Sscanf(line, "Private_Clean: %d kB", &n); err == nil {
			kib += n
		}
	}
	return kib
}

// bareResume starts QEMU, loads the state, asks the guest and ends QEMU.
func bareResume(b *testing.B, h *Host, tm *Template) time.Duration {
	b.Helper()
	begin := time.Now()
	var pairs [2][2]*os.File
	for i := range pairs {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@bailey-bare-%d-%d", os.Getpid(), i), Net: "unix"})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		if pairs[i][0], err = l.File(); err != nil {
			b.Fatal(err)
		}
		defer pairs[i][0].Close()
	}
	memory, err := reopenFile(tm.memory, os.O_RDWR)
	if err != nil {
		b.Fatal(err)
	}
	defer memory.Close()
	state, err := reopenFile(tm.state, os.O_RDONLY)
	if err != nil {
		b.Fatal(err)
	}
	defer state.Close()
	l := line{Spec: tm.spec, Name: "bare", Monitor: 3, Guest: 4, Memory: 5, State: 6}
	cmd := exec.Command(programNames("amd64"), l.allArguments()...)
	cmd.ExtraFiles = []*os.File{pairs[0][0], pairs[1][0], memory, state}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	c, err := net.Dial("unix", fmt.Sprintf("@bailey-bare-%d-0", os.Getpid()))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	answers := json.NewDecoder(c)
	for _, text := range []string{`{"execute":"qmp_capabilities"}`,
		`{"execute":"migrate-set-capabilities","arguments":{"capabilities":[{"capability":"x-ignore-shared","state":true}]}}`,
		`{"execute":"migrate-incoming","arguments":{"uri":"fd:6"}}`, `{"execute":"query-status"}`, `{"execute":"cont"}`} {
		for {
			var answer struct {
				Return struct{ Status string }
				QMP    any
			}
			fmt.Fprintln(c, text)
			if err := answers.Decode(&answer); err != nil {
				b.Fatal(err)
			}
			if answer.QMP != nil {
				answers.Decode(&answer)
			}
			if answer.Return.Status != "inmigrate" {
				break
			}
		}
	}
	g, err := net.Dial("unix", fmt.Sprintf("@bailey-bare-%d-1", os.Getpid()))
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	defer context.AfterFunc(b.Context(), func() { g.Close() })()
	fmt.Fprintln(g, "ping x")
	if _, err := g.Read(make([]byte, 100)); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}
