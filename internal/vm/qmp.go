//go:build linux

package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/strictjson"
)

const (
	maxMessage = 64 << 10 // bytes of one message of QEMU; the longest that is used here has under 2 KiB
	maxEvents  = 1000     // that QEMU may send before an answer
	maxNesting = 16
)

// A monitor is a connection to QEMU's monitor (the QEMU Machine Protocol, docs/interop/qmp-spec.txt of QEMU). A guest
// may have taken over QEMU, so every message is bounded and checked, and every answer has a deadline. One goroutine may use it.
type monitor struct {
	conn *net.UnixConn
	r    *bufio.Reader
	wait time.Duration
	last int   // number of the last command
	bad  error // after an error of the connection, later answers could belong to earlier commands
}

// errAnswer is QEMU's refusal of a command. The connection still works.
type errAnswer struct{ class, text string }

func (e errAnswer) Error() string { return "QEMU refused it: " + e.text }

// dialMonitor connects and negotiates. QEMU accepts one connection at a time.
func dialMonitor(ctx context.Context, path string, wait time.Duration) (*monitor, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := dialSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, r: bufio.NewReaderSize(conn, maxMessage), wait: wait}
	stop := m.setDeadline(ctx)
	msg, err := readMessage(m.r)
	stop()
	if err == nil && msg.greeting == nil {
		err = errors.New("QEMU did not greet")
	}
	if err == nil {
		err = m.executeCommand(ctx, "qmp_capabilities", nil, nil)
	}
	if err != nil {
		conn.Close()
		return nil, wrapStep(err, "cannot use QEMU's monitor")
	}
	return m, nil
}

// setDeadline bounds the following reads and writes in time. stop must be called after them.
func (m *monitor) setDeadline(ctx context.Context) (stop func() bool) {
	m.conn.SetDeadline(time.Now().Add(m.wait))
	return context.AfterFunc(ctx, func() { m.conn.SetDeadline(time.Unix(1, 0)) })
}

// executeCommand runs a command and decodes its result into result, unless that is nil.
func (m *monitor) executeCommand(ctx context.Context, command string, arguments, result any) error {
	return m.executeWith(ctx, nil, command, arguments, result)
}

// executeWith also passes a file.
func (m *monitor) executeWith(ctx context.Context, file *os.File, command string, arguments, result any) error {
	if m.bad != nil {
		return m.bad
	}
	answer, err := m.exchangeLines(ctx, file, command, arguments)
	if _, refused := errors.AsType[errAnswer](err); err != nil && !refused {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			err = bailey.Unavailable.Errorf("see whether the machine is overloaded; if not, destroy the sandbox",
				"QEMU did not answer for %s", m.wait)
		}
		m.bad = wrapStep(err, "QEMU's monitor failed")
	}
	if err != nil {
		return wrapStep(err, "%s", command)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("%s: QEMU answered with something else: %w", command, err)
	}
	return nil
}

func (m *monitor) exchangeLines(ctx context.Context, file *os.File, command string, arguments any) (json.RawMessage, error) {
	m.last++
	id := strconv.Itoa(m.last)
	text, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        string `json:"id"`
	}{command, arguments, id})
	if err != nil {
		return nil, err
	}
	defer m.setDeadline(ctx)()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if n, _, err := m.conn.WriteMsgUnix(append(text, '\n'), rights, nil); err != nil || n != len(text)+1 {
		return nil, errors.Join(err, io.ErrShortWrite)
	}
	return readAnswer(m.r, id)
}

// readAnswer skips events until the answer to the command with the id.
func readAnswer(r *bufio.Reader, id string) (json.RawMessage, error) {
	for range maxEvents {
		msg, err := readMessage(r)
		switch {
		case err != nil:
			return nil, err
		case msg.event != "":
			continue
		case msg.greeting != nil || msg.id != id:
			return nil, errors.New("QEMU sent an answer to another command")
		case msg.refusal != nil:
			return nil, *msg.refusal
		}
		return msg.answer, nil
	}
	return nil, fmt.Errorf("QEMU sent %d events and no answer", maxEvents)
}

// A message has exactly one of greeting, event, answer and refusal.
type message struct {
	greeting json.RawMessage
	event    string
	answer   json.RawMessage
	refusal  *errAnswer
	id       string
}

func readMessage(r *bufio.Reader) (message, error) {
	text, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return message{}, fmt.Errorf("QEMU sent a message of more than %d bytes", r.Size())
	}
	if err != nil {
		return message{}, err
	}
	return parseMessage(append([]byte(nil), text...))
}

// parseMessage refuses what the protocol does not define, except for unknown members, which it permits.
func parseMessage(text []byte) (msg message, err error) {
	if err := strictjson.Check(text, maxNesting); err != nil {
		return msg, wrapStep(err, "QEMU sent a message that is not valid")
	}
	list, ok := strictjson.Members(text)
	if !ok {
		return msg, errors.New("QEMU sent a message that is not an object")
	}
	kinds := 0
	for _, member := range list {
		var err error
		switch member.Name {
		case "QMP":
			kinds++
			msg.greeting = member.Value
		case "return":
			kinds++
			msg.answer = member.Value
		case "event":
			kinds++
			if err = json.Unmarshal(member.Value, &msg.event); err == nil && msg.event == "" {
				err = errors.New("an event has no name")
			}
		case "error":
			kinds++
			var e struct{ Class, Desc string }
			err = json.Unmarshal(member.Value, &e)
			msg.refusal = &errAnswer{printableText(e.Class, 100), printableText(e.Desc, 500)}
		case "id":
			err = json.Unmarshal(member.Value, &msg.id)
		}
		if err != nil {
			return message{}, wrapStep(err, "QEMU sent a message that is not valid")
		}
	}
	if kinds != 1 {
		return message{}, fmt.Errorf("QEMU sent a message of %d kinds", kinds)
	}
	return msg, nil
}
