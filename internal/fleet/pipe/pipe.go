// Package pipe connects a gateway with the program bailey-link, which holds its connection to a control plane. So a
// gateway links neither gRPC nor HTTP/2, and bytes from the network are parsed in another process.
package pipe

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"bailey"
	"bailey/internal/fleet"
)

// Program is the name of the program.
const Program = "bailey-link"

// Target is a control plane, and how a host shows who it is: a token, or a certificate.
type Target struct {
	URL   string `json:"url"` // https://NAME, or http:// with an address of this machine
	Token string `json:"token,omitempty"`
	CA    string `json:"ca,omitempty"`   // PEM; the CAs of the system if it is empty
	Cert  string `json:"cert,omitempty"` // PEM
	Key   string `json:"key,omitempty"`  // PEM
	// Insecure permits http:// to other machines: a token crosses the network in clear.
	Insecure bool `json:"insecure,omitempty"`
}

// Parse returns the URL, which must not send a token in clear.
func (t Target) Parse() (*url.URL, error) {
	u, err := url.Parse(t.URL)
	if err == nil && (u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "") {
		err = errors.New("it must be https://NAME or https://NAME:PORT")
	}
	if err == nil && u.Scheme != "https" {
		ip := net.ParseIP(u.Hostname())
		if local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(); u.Scheme != "http" || !local && !t.Insecure {
			err = errors.New("the token would cross the network in clear")
		}
	}
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "this is not the URL of a control plane",
			"use https://NAME; http:// only for an address of this machine, or with --insecure-http")
	}
	return u, nil
}

// Messages are a kind, a length of four bytes, and that many bytes.
const (
	frameMessage = 'f'
	faultMessage = '!' // JSON: why the connection ended
)

func writeMessage(w io.Writer, kind byte, data []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(data))), data...))
	return err
}

func readMessage(r io.Reader) (kind byte, data []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > fleet.MaxFrame {
		return 0, nil, errors.New("a message is too long")
	}
	data = make([]byte, n)
	_, err = io.ReadFull(r, data)
	return head[0], data, err
}

// Relay passes frames between in and out and a connection that dial makes to the target in the first message. When the
// connection ends, the last message of out says why.
func Relay(in io.Reader, out io.Writer, dial func(Target) (fleet.Stream, error)) {
	r := bufio.NewReader(in)
	err := relayFrames(r, out, dial)
	if err == nil {
		return
	}
	if text, merr := json.Marshal(fleet.NewFault(err)); merr == nil {
		writeMessage(out, faultMessage, text)
	}
}

func relayFrames(r io.Reader, out io.Writer, dial func(Target) (fleet.Stream, error)) error {
	_, text, err := readMessage(r)
	var t Target
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return bailey.Invalid.Wrap(err, "the target cannot be read", "a gateway starts this program")
	}
	stream, err := dial(t)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- relayUp(r, stream) }()
	go func() { ended <- relayDown(stream, out) }()
	return <-ended
}

// up passes frames to the control plane. If the gateway has ended, there is nobody to tell.
func relayUp(r io.Reader, stream fleet.Stream) error {
	for {
		_, data, err := readMessage(r)
		if err != nil {
			return nil
		}
		f, err := fleet.Decode(data)
		if err != nil {
			return err
		}
		if stream.Send(f) != nil {
			select {} // down knows why
		}
	}
}

func relayDown(stream fleet.Stream, out io.Writer) error {
	for {
		f, err := stream.Recv()
		if err == io.EOF {
			return bailey.Unavailable.New("the control plane ended the connection", "it is tried again")
		}
		if err != nil {
			return err
		}
		data, err := fleet.Encode(f)
		if err != nil {
			return err
		}
		if writeMessage(out, frameMessage, data) != nil {
			return nil
		}
	}
}

// Find returns the path of the program beside the running one.
func Find() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	path := filepath.Join(filepath.Dir(self), Program+filepath.Ext(self))
	if _, err := os.Stat(path); err != nil {
		return "", bailey.Unavailable.Wrap(err, "the program "+Program+", which connects to a control plane, is not installed",
			"install it beside "+self)
	}
	return path, nil
}

// Start starts the program, which connects to a target. It ends when ctx does.
func Start(ctx context.Context, program string, t Target) (fleet.Stream, error) {
	if _, err := t.Parse(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, program)
	c.Env = keepEnv(os.Environ())
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot start "+Program, "install it beside bailey")
	}
	p := &process{in: in, out: bufio.NewReader(out), wait: sync.OnceFunc(func() { c.Wait() })}
	context.AfterFunc(ctx, func() { in.Close(); c.Process.Kill(); p.wait() })
	return p, writeMessage(in, frameMessage, text)
}

// keepEnv keeps the variables that say how to reach the network.
func keepEnv(all []string) (kept []string) {
	for _, v := range all {
		for _, name := range []string{"HTTPS_PROXY=", "https_proxy=", "NO_PROXY=", "no_proxy=", "SSL_CERT_FILE=", "SSL_CERT_DIR=", "SystemRoot="} {
			if len(v) >= len(name) && v[:len(name)] == name {
				kept = append(kept, v)
			}
		}
	}
	return kept
}

// process is the running program, as a stream.
type process struct {
	in   io.Writer
	out  *bufio.Reader
	wait func()
}

func (p *process) Send(f *fleet.Frame) error {
	data, err := fleet.Encode(f)
	if err == nil {
		err = writeMessage(p.in, frameMessage, data)
	}
	return err
}

func (p *process) Recv() (*fleet.Frame, error) {
	kind, data, err := readMessage(p.out)
	if err != nil {
		p.wait()
		return nil, bailey.Unavailable.Wrap(err, Program+" ended", "it is started again")
	}
	if kind == faultMessage {
		var f fleet.Fault
		if err := json.Unmarshal(data, &f); err != nil {
			return nil, err
		}
		return nil, f.Err()
	}
	return fleet.Decode(data)
}
