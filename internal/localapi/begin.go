package localapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// startPatience limits how long a client waits for a gateway, which may have to verify its ledger first. After
// slowStart the client says why it waits.
const (
	startPatience = 2 * time.Minute
	slowStart     = 2 * time.Second
)

// startOrConnect starts a gateway, or connects to one that another client starts meanwhile. The holder of the start lock must
// also wait for a gateway that is ending, because it holds the home until all its calls have outcomes.
func (c *Client) startOrConnect(ctx context.Context) (*peer.Conn, error) {
	conn, unlock, err := c.waitForTurn(ctx, c.Home.StartLock(), "waiting for the gateway that another client starts")
	if err != nil || conn != nil {
		return conn, err
	}
	defer unlock()
	conn, free, err := c.waitForTurn(ctx, c.Home.Lock(), "waiting for the gateway that is starting or stopping")
	if err != nil || conn != nil {
		return conn, err
	}
	free()
	if err := c.startGateway(ctx); err != nil {
		return nil, err
	}
	return peer.Dial(c.Home.Socket())
}

// waitForTurn waits until a gateway answers or this client holds the lock, whichever comes first.
func (c *Client) waitForTurn(ctx context.Context, lock, why string) (conn *peer.Conn, unlock func(), err error) {
	err = c.pollUntil(ctx, why, func() (bool, error) {
		var err error
		if conn, err = peer.Dial(c.Home.Socket()); err == nil {
			return true, nil
		}
		conn = nil
		if unlock, err = LockFile(lock); errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return true, err
	})
	return conn, unlock, err
}

// pollUntil repeats try every 20 ms until it is done or fails. If that takes longer than slowStart, it says why.
func (c *Client) pollUntil(ctx context.Context, why string, try func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	slow, patience := time.After(slowStart), time.After(startPatience)
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-slow:
			c.reportProgress(why)
		case <-patience:
			return bailey.Unavailable.Errorf("see "+c.Home.LogFile()+"; run bailey gateway stop to end the gateway",
				"the home %s is locked, but no gateway answers within %v", c.Home, startPatience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Client) reportProgress(why string) {
	if c.Progress != nil {
		c.Progress(why)
	}
}

// homeWriteError adds a hint to an error about the home's own files.
func (c *Client) homeWriteError(err error) error {
	var path *os.PathError
	if bailey.HintOf(err) != "" || !errors.As(err, &path) {
		return err
	}
	hint := "set BAILEY_HOME to a directory that you own and can write"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "free some space, or raise the quota, for the home, then call again"
	case errors.Is(err, syscall.EROFS):
		hint = "mount it read-write, or set BAILEY_HOME to a directory that you can write"
	}
	return bailey.Unavailable.Wrapf(err, hint, "cannot write the home %s", c.Home)
}

// Stop ends the home's gateway, whatever its version, and returns when it is gone: its calls have outcomes and its
// ledger is closed. stopped is false if no gateway ran.
func (c *Client) Stop(ctx context.Context) (stopped bool, err error) {
	var ended int
	conn, err := peer.Dial(c.Home.Socket())
	switch {
	case errors.Is(err, bailey.Denied):
		return false, err
	case err == nil:
		defer conn.Close()
		if err := askToStop(conn); err != nil {
			return false, err
		}
		stopped, ended = true, conn.PID
	}
	err = c.pollUntil(ctx, "waiting for the gateway's calls to end", func() (bool, error) {
		free, err := LockFile(c.Home.Lock())
		switch {
		case err == nil:
			free()
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return stopped && c.hasSuccessor(ended), nil
		case !stopped: // the home does not exist or was never written, so no gateway runs
			return true, nil
		}
		return true, c.homeWriteError(err)
	})
	return stopped, err
}

// hasSuccessor reports whether another gateway than the process ended now serves the home. A call of another client may
// have started it: it got the home's lock when the old one was gone.
func (c *Client) hasSuccessor(ended int) bool {
	conn, err := peer.Dial(c.Home.Socket())
	if err != nil {
		return false
	}
	defer conn.Close()
	return conn.PID != ended
}

// askToStop returns nil if the gateway agreed or is gone.
func askToStop(conn *peer.Conn) error {
	if err := conn.WriteJSON(FrameQuery, Query{Protocol: Protocol, Verb: StopVerb, Dir: "/"}); err != nil {
		return nil
	}
	kind, b, err := conn.ReadFrame()
	if err != nil || kind != FrameError {
		return nil
	}
	var f Failure
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	return f.Err()
}

func (c *Client) startGateway(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	process, err := c.Start(c.Home, w)
	w.Close()
	if err != nil {
		return err
	}
	go process.Wait() // the gateway outlives this process, but must not be a zombie meanwhile
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(r, 64<<10)).ReadString('\x00')
		said <- strings.TrimRight(line, "\x00\n")
	}()
	slow, patience := time.After(slowStart), time.After(startPatience)
	for {
		select {
		case line := <-said:
			return c.startAnswer(line)
		case <-slow:
			c.reportProgress("starting the gateway; it verifies its ledger first")
		case <-patience:
			return bailey.Unavailable.Errorf("try again; it may still verify a long ledger: see "+c.Home.LogFile(),
				"no answer from the gateway within %v", startPatience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Client) startAnswer(line string) error {
	if line == "ready" {
		return nil
	}
	var f Failure
	if json.Unmarshal([]byte(line), &f) == nil && f.Message != "" {
		return f.Err()
	}
	return bailey.Unavailable.New("the gateway ended while starting", "see "+c.Home.LogFile())
}

// ReadyVariable names the descriptor on which a starting client waits for the gateway.
const ReadyVariable = "BAILEY_READY_FD"

// Spawn starts program as the home's gateway.
func Spawn(h Home, program string, ready *os.File) (*os.Process, error) {
	return SpawnDaemon(Daemon{Dir: string(h), Log: h.LogFile(), Program: program, Argv: []string{"bailey", "gateway"},
		Env: []string{"BAILEY_HOME=" + string(h)}, Declared: h.hookVariables(), Ready: ready})
}

// A Daemon is a process that a client starts and does not wait for.
type Daemon struct {
	Dir      string // working directory
	Log      string // file of both outputs
	Program  string
	Argv     []string
	Env      []string // added to the part of the client's environment that a gateway gets
	Declared []string // names of more variables of the client that it gets
	Ready    *os.File // the descriptor that [ReadyVariable] names
}

// SpawnDaemon starts a daemon in a session of its own, so that it survives the client and gets no signals from the client's
// terminal.
func SpawnDaemon(d Daemon) (*os.Process, error) {
	log, err := os.OpenFile(d.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	attr := &os.ProcAttr{Dir: d.Dir, Files: []*os.File{null, log, log}}
	number, err := detachProcess(attr, d.Ready)
	if err != nil {
		return nil, err
	}
	attr.Env = append(gatewayEnv(os.Environ(), d.Declared), append(d.Env, ReadyVariable+"="+number)...)
	return os.StartProcess(d.Program, d.Argv, attr)
}

// gatewayEnv returns the part of a client's environment that a gateway started by it gets. The client of the first call
// may hold secrets there, which would stay in the gateway's /proc/PID/environ while it runs. `bailey gateway` keeps its
// whole environment, because a user chose it. declared are the names of variables that hooks get.
func gatewayEnv(all, declared []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		name = foldVariable(name)
		return isClientOnly(name) || !isInherited(name) && !slices.Contains(declared, name)
	})
}

// hookVariables returns the names of the variables that the hooks of the home declare. The gateway passes only those on
// that an operator applied, so it does no harm if the file has others.
func (h Home) hookVariables() (names []string) {
	name := filepath.Join(string(h), "hooks.json")
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.OpenFile(name, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	var file struct {
		Hooks map[string][]struct{ Env []string }
	}
	if err != nil || json.Unmarshal(text, &file) != nil {
		return nil
	}
	for _, list := range file.Hooks {
		for _, hook := range list {
			for _, name := range hook.Env {
				if !bailey.Loads(name) {
					names = append(names, foldVariable(name))
				}
			}
		}
	}
	return names
}

// managerVariables name the directories of version managers: see package toolchain.
var managerVariables = []string{"PYENV_ROOT", "NVM_DIR", "FNM_DIR", "RUSTUP_HOME", "CARGO_HOME", "ASDF_DATA_DIR",
	"MISE_DATA_DIR", "UV_PYTHON_INSTALL_DIR"}

// isInherited reports whether the gateway reads a variable: it names programs, homes, scratch space or sockets that cages
// hide, or the format of times and text.
func isInherited(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "GOCOVERDIR",
		"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY": // gpg asks for a passphrase there
		return true
	}
	return strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "BAILEY_") ||
		slices.Contains(peer.SocketVariables(), name) || slices.Contains(managerVariables, name) || inheritsHere(name)
}

// isClientOnly reports whether a variable must not pass from the client of the first call into the gateway, which serves all
// clients.
func isClientOnly(name string) bool {
	return slices.Contains([]string{"BAILEY_HOME", "BAILEY_OPERATOR", SessionVariable, TokenVariable, TraceVariable,
		ReadyVariable}, name)
}

// TraceVariable names the file for the spans of calls. Only a gateway in the foreground uses it, because the client of
// the first call must not choose the file.
const TraceVariable = "BAILEY_TRACE"
