package hostapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/peer"
)

// SocketVariable names the socket of a host that runs as root for several users. If it is not set, each home has a host
// of its own, which is started on demand.
const SocketVariable = "BAILEY_HOST_SOCKET"

// program is the name of the host's program.
const program = "bailey-host"

// startTime limits how long a client waits for a host, which first adopts the sandboxes of the former one.
const startTime = 2 * time.Minute

// idleTime is how long a host that was started on demand runs without sandboxes and connections.
const idleTime = 10 * time.Minute

// ImagesName is the name of the directory of images, beside that of the host.
const ImagesName = "images"

// ImagesOf returns the directory of images of a home.
func ImagesOf(h localapi.Home) string { return h.Path(ImagesName) }

// Dir is the directory of a host: sandboxes, templates, host.sock, and host.log.
type Dir string

// DirOf returns the directory of the host of a home.
func DirOf(h localapi.Home) Dir { return Dir(h.Path("host")) }

// Socket returns the path of the socket on which the host listens.
func (d Dir) Socket() string { return filepath.Join(string(d), "host.sock") }

// Lock returns the path of the file that the running host locks.
func (d Dir) Lock() string { return filepath.Join(string(d), "host.lock") }

// StartLock returns the path of the file that a client locks while it starts a host.
func (d Dir) StartLock() string { return filepath.Join(string(d), "start.lock") }

// Log returns the path of the host's log for operators.
func (d Dir) Log() string { return filepath.Join(string(d), "host.log") }

// Here returns the client for this process: of the host that $BAILEY_HOST_SOCKET names, or of the home's. It connects
// to nothing. The home's host is the program bailey-host beside the running program.
func Here(h localapi.Home) (*Client, error) {
	if socket := os.Getenv(SocketVariable); socket != "" {
		if !filepath.IsAbs(socket) {
			return nil, bailey.Invalid.Errorf("set it to an absolute path", "%s is %q, a relative path", SocketVariable, socket)
		}
		return &Client{Socket: socket, Root: true}, nil
	}
	d := DirOf(h)
	return &Client{Socket: d.Socket(), Start: d.StartHost}, nil
}

// StartHost starts a host for the directory, unless another client starts one meanwhile, and waits until it listens.
func (d Dir) StartHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, bailey.Unavailable.Errorf("see "+d.Log(),
		"no host of sandboxes answers in %s within %v", d, startTime))
	defer cancel()
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return bailey.Unavailable.Wrapf(err, "set BAILEY_HOME to a directory that you can write", "cannot create %s", d)
	}
	if err := peer.Owned(string(d)); err != nil {
		return err
	}
	turn, err := d.waitForTurn(ctx, d.StartLock())
	if err != nil || turn == nil {
		return err
	}
	defer turn()
	free, err := d.waitForTurn(ctx, d.Lock()) // a host that is ending holds it
	if err != nil || free == nil {
		return err
	}
	free()
	return d.runProgram(ctx)
}

// waitForTurn waits until a host answers, and then returns no function, or until this process has the lock.
func (d Dir) waitForTurn(ctx context.Context, lock string) (free func(), err error) {
	for {
		if conn, err := peer.Dial(d.Socket()); err == nil {
			conn.Close()
			return nil, nil
		}
		free, err = localapi.LockFile(lock)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return free, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// WaitForEnd waits until no host owns the directory.
func (d Dir) WaitForEnd(ctx context.Context) error {
	for {
		free, err := localapi.LockFile(d.Lock())
		switch {
		case err == nil:
			free()
			return nil
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// runProgram starts the program and waits until it is ready.
func (d Dir) runProgram(ctx context.Context) error {
	path, err := findProgram()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	process, err := localapi.SpawnDaemon(localapi.Daemon{Dir: string(d), Log: d.Log(), Program: path,
		Argv: []string{program, "serve", "--dir", string(d), "--idle", idleTime.String()}, Ready: w})
	w.Close()
	if err != nil {
		return bailey.Unavailable.Wrap(err, "cannot start "+path, "see whether "+string(d)+" can be written")
	}
	go process.Wait() // the host outlives this process, but must not be a zombie meanwhile
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(r, 64<<10)).ReadString('\x00')
		said <- strings.TrimRight(line, "\x00\n")
	}()
	select {
	case line := <-said:
		return d.explainStart(line)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d Dir) explainStart(line string) error {
	if line == "ready" {
		return nil
	}
	var f localapi.Failure
	if json.Unmarshal([]byte(line), &f) == nil && f.Message != "" {
		return f.Err()
	}
	return bailey.Unavailable.New("the host of sandboxes ended while it started", "see "+d.Log())
}

// findProgram returns the path of bailey-host beside the running program.
func findProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	path := filepath.Join(filepath.Dir(self), program)
	if _, err := os.Stat(path); err != nil {
		return "", bailey.Unavailable.Wrap(err, "the program "+program+", which runs sandboxes, is not installed",
			"install it beside "+self)
	}
	return path, nil
}
