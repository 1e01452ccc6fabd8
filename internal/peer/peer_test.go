package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
)

func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFramesCross(t *testing.T) {
	path := filepath.Join(home(t), "s.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket mode %v, %v", info.Mode(), err)
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for {
			kind, b, err := c.ReadFrame()
			if err != nil {
				return
			}
			c.WriteFrame(kind, b)
		}
	}()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.PID != os.Getpid() {
		t.Errorf("the far end is pid %d, want %d", c.PID, os.Getpid())
	}
	for _, payload := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("y"), 1<<20)} {
		if err := c.WriteFrame('q', payload); err != nil {
			t.Fatal(err)
		}
		kind, got, err := c.ReadFrame()
		if err != nil || kind != 'q' || !bytes.Equal(got, payload) {
			t.Fatalf("%d bytes came back as %d of kind %q, %v", len(payload), len(got), kind, err)
		}
	}
	if err := c.WriteFrame('q', make([]byte, MaxFrame+1)); !errors.Is(err, bailey.Invalid) {
		t.Errorf("an oversized frame: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := home(t)
	if _, err := Listen(filepath.Join(dir, "s.sock")); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(dir, "s.sock")); !errors.Is(err, bailey.Conflict) {
		t.Errorf("a second listener: %v", err)
	}
	open := home(t)
	os.Chmod(open, 0o755)
	if _, err := Listen(filepath.Join(open, "s.sock")); !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" {
		t.Errorf("a directory open to others: %v", err)
	}
	link := filepath.Join(home(t), "link")
	os.Symlink(dir, link)
	if _, err := Listen(filepath.Join(link, "s.sock")); !errors.Is(err, bailey.Denied) {
		t.Errorf("a directory behind a link: %v", err)
	}
}

func TestListenReplacesADeadSocket(t *testing.T) {
	path := filepath.Join(home(t), "s.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if l, err = Listen(path); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(home(t), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(filepath.Join(dir, "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(filepath.Join(dir, "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{'r', 0, 0, 0, 2, 'h', 'i'})
	f.Add([]byte{'r', 255, 255, 255, 255})
	f.Add([]byte{'r', 0, 0, 0, 9, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		_, payload, err := readFrame(r, MaxFrame)
		if err != nil {
			return
		}
		if n := binary.BigEndian.Uint32(b[1:]); int(n) != len(payload) {
			t.Fatalf("%d bytes promised, %d given", n, len(payload))
		}
		if rest, _ := io.ReadAll(r); len(rest) != len(b)-5-len(payload) {
			t.Fatal("bytes beyond the frame were taken")
		}
	})
}
