package guestwire

import (
	"encoding/binary"
	"io"
	"sync"
)

// Channel is a direction and purpose of data on a stream.
type Channel byte

const (
	Stdin    Channel = iota // from the host: standard input, or the content of a file
	Stdout                  // from the agent: standard output, a terminal, the content of a file or a list
	Stderr                  // from the agent
	channels                // how many there are
)

// An Inbox holds the received bytes of a channel until they are read, at most Window.
type Inbox struct {
	mu      sync.Mutex
	changed sync.Cond
	buf     []byte
	allowed int // how much the peer may still send
	owed    int // consumed bytes for which the peer has not got credit
	ended   error
}

// NewInbox returns an empty inbox. The peer may send Window bytes.
func NewInbox() *Inbox {
	i := &Inbox{allowed: Window}
	i.changed.L = &i.mu
	return i
}

// Push stores a copy of b, or the end of the channel if b is empty. It never blocks. If the peer sent more than it may,
// or after the end, the error is ErrProtocol.
func (i *Inbox) Push(b []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	defer i.changed.Broadcast()
	switch {
	case i.ended == io.EOF:
		return Violation("data follows the end of a channel")
	case i.ended != nil:
		return nil // nobody reads any more
	case len(b) == 0:
		i.ended = io.EOF
	case len(b) > i.allowed:
		return Violation("%d bytes were sent with an allowance of %d", len(b), i.allowed)
	}
	i.allowed -= len(b)
	i.buf = append(i.buf, b...)
	return nil
}

// Close ends the inbox. If err is io.EOF, the bytes that are there can still be read; otherwise they are dropped.
func (i *Inbox) Close(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended == nil || err != io.EOF {
		i.ended = err
	}
	if err != io.EOF {
		i.buf = nil
	}
	i.changed.Broadcast()
}

// Take waits for bytes and appends them all to p. credit is how much the peer must now be allowed to send, or 0.
func (i *Inbox) Take(p []byte) (got []byte, credit uint32, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.buf) == 0 && i.ended == nil {
		i.changed.Wait()
	}
	if len(i.buf) == 0 {
		return p, 0, i.ended
	}
	got = append(p, i.buf...)
	i.owed += len(i.buf)
	if i.buf = i.buf[:0]; i.owed >= Window/4 && i.ended == nil {
		credit, i.owed = uint32(i.owed), 0
		i.allowed += int(credit)
	}
	return got, credit, nil
}

// CopyTo writes what arrives to w until the end of the channel. It calls grant when the peer must get credit.
func (i *Inbox) CopyTo(w io.Writer, grant func(uint32) error) error {
	var buf []byte
	for {
		b, credit, err := i.Take(buf[:0])
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		if buf = b; credit > 0 {
			if err := grant(credit); err != nil {
				return err
			}
		}
	}
}

// An Allowance is how much may be sent on a channel.
type Allowance struct {
	mu      sync.Mutex
	changed sync.Cond
	n       int
	ended   error
}

// NewAllowance returns an allowance of Window bytes.
func NewAllowance() *Allowance {
	a := &Allowance{n: Window}
	a.changed.L = &a.mu
	return a
}

// Add adds credit of the peer. More than Window in all is a violation.
func (a *Allowance) Add(n uint32) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n == 0 || n > Window || a.n+int(n) > Window {
		return Violation("credit of %d bytes with an allowance of %d", n, a.n)
	}
	a.n += int(n)
	a.changed.Broadcast()
	return nil
}

// reserveBytes waits for an allowance and takes at most most bytes of it.
func (a *Allowance) reserveBytes(most int) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.n == 0 && a.ended == nil {
		a.changed.Wait()
	}
	if a.ended != nil {
		return 0, a.ended
	}
	n := min(most, a.n)
	a.n -= n
	return n, nil
}

// Close lets all senders fail with err.
func (a *Allowance) Close(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = err
	a.changed.Broadcast()
}

// Send sends b in frames, as the allowance permits. send must not keep its argument.
func (a *Allowance) Send(b []byte, send func([]byte) error) error {
	for len(b) > 0 {
		n, err := a.reserveBytes(min(len(b), MaxPayload-1))
		if err == nil {
			err = send(b[:n])
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// CopyFrom sends what it reads from r to its end, but not the end of the channel. An error of r is returned in failed,
// which is nil if r ended.
func (a *Allowance) CopyFrom(r io.Reader, send func([]byte) error) (failed, err error) {
	buf := make([]byte, 32<<10)
	for {
		n, readErr := r.Read(buf)
		if err := a.Send(buf[:n], send); err != nil {
			return nil, err
		}
		if readErr == io.EOF {
			return nil, nil
		} else if readErr != nil {
			return readErr, nil
		}
	}
}

// ParseData returns the channel of a data frame and its bytes.
func ParseData(payload []byte) (Channel, []byte, error) {
	if len(payload) == 0 || payload[0] >= byte(channels) {
		return 0, nil, Violation("data without a known channel")
	}
	return Channel(payload[0]), payload[1:], nil
}

// CreditPayload is the payload of a credit frame.
func CreditPayload(c Channel, n uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(c)}, n)
}

// ParseCredit is the reverse of CreditPayload.
func ParseCredit(payload []byte) (Channel, uint32, error) {
	if len(payload) != 5 || payload[0] >= byte(channels) {
		return 0, 0, Violation("a credit frame is malformed")
	}
	return Channel(payload[0]), binary.BigEndian.Uint32(payload[1:]), nil
}
