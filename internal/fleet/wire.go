package fleet

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields writes the fields of a message, or reads them: a message describes its fields once for both.
type fields struct {
	out []byte
	in  map[protowire.Number][]byte // when reading: the last value of each field, a number as a varint
	err error
}

func (f *fields) text(n protowire.Number, v *string) {
	b := []byte(*v)
	if f.bytes(n, &b); f.in == nil {
		return
	}
	if !utf8.Valid(b) {
		f.err = invalidFrame("field %d is not UTF-8", n)
	}
	*v = string(b)
}

func (f *fields) bytes(n protowire.Number, v *[]byte) {
	switch {
	case f.in != nil:
		*v = f.in[n]
	case len(*v) > 0:
		f.out = protowire.AppendBytes(protowire.AppendTag(f.out, n, protowire.BytesType), *v)
	}
}

func (f *fields) number(n protowire.Number, v *uint64) {
	switch {
	case f.in == nil && *v != 0:
		f.out = protowire.AppendVarint(protowire.AppendTag(f.out, n, protowire.VarintType), *v)
	case f.in != nil:
		*v = 0
		if b := f.in[n]; b != nil {
			var size int
			if *v, size = protowire.ConsumeVarint(b); size != len(b) {
				f.err = invalidFrame("field %d is not a number", n)
			}
		}
	}
}

func (f *fields) truth(n protowire.Number, v *bool) {
	var one uint64
	if *v {
		one = 1
	}
	f.number(n, &one)
	*v = one != 0
}

// moment is a time in microseconds since 1970.
func (f *fields) moment(n protowire.Number, v *time.Time) {
	var micros uint64
	if !v.IsZero() {
		micros = uint64(v.UnixMicro())
	}
	f.number(n, &micros)
	if f.in != nil {
		if *v = time.UnixMicro(int64(micros)).UTC(); micros == 0 {
			*v = time.Time{}
		}
	}
}

// message is a message inside of the one of f. make creates it if it is there.
func (f *fields) message(n protowire.Number, m message, there bool, make func() message) {
	switch {
	case f.in == nil && there:
		inner := fields{}
		m.describe(&inner)
		if inner.err != nil {
			f.err = inner.err
		}
		f.out = protowire.AppendBytes(protowire.AppendTag(f.out, n, protowire.BytesType), inner.out)
	case f.in != nil && f.in[n] != nil:
		if err := decodeMessage(f.in[n], make()); err != nil {
			f.err = err
		}
	}
}

// message is a message of the protocol.
type message interface{ describe(*fields) }

// sub describes a message field of a pointer type.
func sub[T any, P interface {
	*T
	message
}](f *fields, n protowire.Number, p *P) {
	f.message(n, *p, *p != nil, func() message { *p = new(T); return *p })
}

func (m *Frame) describe(f *fields) {
	sub(f, 1, &m.Register)
	sub(f, 2, &m.Heartbeat)
	sub(f, 3, &m.Event)
	sub(f, 4, &m.Receipts)
	sub(f, 5, &m.Result)
	sub(f, 6, &m.Welcome)
	sub(f, 7, &m.Ack)
	sub(f, 8, &m.Command)
	sub(f, 9, &m.Taken)
	sub(f, 10, &m.Cosigned)
}

func (m *Register) describe(f *fields) {
	var text []byte
	if f.in == nil {
		text, f.err = json.Marshal(m)
	}
	f.bytes(1, &text)
	if f.in == nil {
		return
	}
	if err := json.Unmarshal(text, m); err != nil {
		f.err = invalidFrame("the registration cannot be read: %v", err)
	}
}

func (m *Heartbeat) describe(f *fields) { f.moment(1, &m.Time) }

func (m *Event) describe(f *fields) {
	f.number(1, &m.Seq)
	f.text(2, &m.Kind)
	f.bytes(3, &m.Body)
}

func (m *Receipts) describe(f *fields) {
	f.number(1, &m.From)
	f.bytes(2, &m.Lines)
	f.bytes(3, &m.Checkpoint)
}

func (m *Result) describe(f *fields) {
	f.text(1, &m.ID)
	f.bytes(2, &m.Body)
	sub(f, 3, &m.Error)
}

func (m *Fault) describe(f *fields) {
	f.text(1, &m.Kind)
	f.text(2, &m.Message)
	f.text(3, &m.Hint)
}

func (m *Welcome) describe(f *fields) {
	f.text(1, &m.Host)
	f.text(2, &m.Name)
	f.number(3, &m.Acked)
	f.number(4, &m.Receipts)
	f.truth(5, &m.Forked)
}

func (m *Ack) describe(f *fields) { f.number(1, &m.Seq) }

func (m *Command) describe(f *fields) {
	f.text(1, &m.ID)
	f.text(2, &m.Kind)
	f.bytes(3, &m.Body)
	f.moment(4, &m.Deadline)
}

func (m *Taken) describe(f *fields) { f.text(1, &m.ID) }

func (m *Cosigned) describe(f *fields) {
	f.number(1, &m.Size)
	f.bytes(2, &m.Line)
	f.truth(3, &m.Forked)
}

// Encode returns a frame as it goes over the wire.
func Encode(m *Frame) ([]byte, error) {
	var f fields
	m.describe(&f)
	if f.err == nil && len(f.out) > MaxFrame {
		f.err = invalidFrame("the frame has %d bytes, at most %d are allowed", len(f.out), MaxFrame)
	}
	return f.out, f.err
}

// Decode reads a frame and checks its form. Its fields share the memory of data.
func Decode(data []byte) (*Frame, error) {
	m := &Frame{}
	if len(data) > MaxFrame {
		return nil, invalidFrame("the frame has %d bytes, at most %d are allowed", len(data), MaxFrame)
	}
	if err := decodeMessage(data, m); err != nil {
		return nil, err
	}
	return m, m.check()
}

// decodeMessage ignores fields that it does not know: a newer version of the other side may send them.
func decodeMessage(data []byte, m message) error {
	f := fields{in: map[protowire.Number][]byte{}}
	for len(data) > 0 {
		n, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return invalidFrame("the frame is broken: %v", protowire.ParseError(size))
		}
		data = data[size:]
		switch size = protowire.ConsumeFieldValue(n, kind, data); {
		case size < 0:
			return invalidFrame("the frame is broken: %v", protowire.ParseError(size))
		case kind == protowire.BytesType:
			value, _ := protowire.ConsumeBytes(data)
			f.in[n] = value
		case kind == protowire.VarintType:
			f.in[n] = data[:size]
		}
		data = data[size:]
	}
	m.describe(&f)
	return f.err
}

// check validates what both sides must not send.
func (m *Frame) check() error {
	set := 0
	for _, there := range []bool{m.Register != nil, m.Heartbeat != nil, m.Event != nil, m.Receipts != nil,
		m.Result != nil, m.Welcome != nil, m.Ack != nil, m.Command != nil, m.Taken != nil, m.Cosigned != nil} {
		if there {
			set++
		}
	}
	switch {
	case set != 1:
		return invalidFrame("a frame must have one message, and this one has %d", set)
	case m.Register != nil && !isID(m.Register.Queue):
		return invalidFrame("the name of the queue is not an id")
	case m.Event != nil && m.Event.Seq == 0:
		return invalidFrame("an event has no number")
	case m.Event != nil:
		return checkContent(m.Event.Kind, m.Event.Body)
	case m.Command != nil && !isID(m.Command.ID), m.Result != nil && !isID(m.Result.ID),
		m.Taken != nil && !isID(m.Taken.ID):
		return invalidFrame("the id of a command must have %d characters", IDLength)
	case m.Command != nil:
		return checkContent(m.Command.Kind, m.Command.Body)
	case m.Result != nil && len(m.Result.Body) > 0:
		return checkContent("result", m.Result.Body)
	}
	return nil
}
