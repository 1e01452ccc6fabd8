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

func (f *fields) textField(n protowire.Number, v *string) {
	b := []byte(*v)
	if f.bytesField(n, &b); f.in == nil {
		return
	}
	if !utf8.Valid(b) {
		f.err = invalidFrame("field %d is not UTF-8", n)
	}
	*v = string(b)
}

func (f *fields) bytesField(n protowire.Number, v *[]byte) {
	switch {
	case f.in != nil:
		*v = f.in[n]
	case len(*v) > 0:
		f.out = protowire.AppendBytes(protowire.AppendTag(f.out, n, protowire.BytesType), *v)
	}
}

func (f *fields) numberField(n protowire.Number, v *uint64) {
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

func (f *fields) truthField(n protowire.Number, v *bool) {
	var one uint64
	if *v {
		one = 1
	}
	f.numberField(n, &one)
	*v = one != 0
}

// moment is a time in microseconds since 1970.
func (f *fields) momentField(n protowire.Number, v *time.Time) {
	var micros uint64
	if !v.IsZero() {
		micros = uint64(v.UnixMicro())
	}
	f.numberField(n, &micros)
	if f.in != nil {
		if *v = time.UnixMicro(int64(micros)).UTC(); micros == 0 {
			*v = time.Time{}
		}
	}
}

// message is a message inside of the one of f. make creates it if it is there.
func (f *fields) messageField(n protowire.Number, m message, there bool, make func() message) {
	switch {
	case f.in == nil && there:
		inner := fields{}
		m.describeFields(&inner)
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
type message interface{ describeFields(*fields) }

// sub describes a message field of a pointer type.
func subMessage[T any, P interface {
	*T
	message
}](f *fields, n protowire.Number, p *P) {
	f.messageField(n, *p, *p != nil, func() message { *p = new(T); return *p })
}

func (m *Frame) describeFields(f *fields) {
	subMessage(f, 1, &m.Register)
	subMessage(f, 2, &m.Heartbeat)
	subMessage(f, 3, &m.Event)
	subMessage(f, 4, &m.Receipts)
	subMessage(f, 5, &m.Result)
	subMessage(f, 6, &m.Welcome)
	subMessage(f, 7, &m.Ack)
	subMessage(f, 8, &m.Command)
	subMessage(f, 9, &m.Taken)
	subMessage(f, 10, &m.Cosigned)
}

func (m *Register) describeFields(f *fields) {
	var text []byte
	if f.in == nil {
		text, f.err = json.Marshal(m)
	}
	f.bytesField(1, &text)
	if f.in == nil {
		return
	}
	if err := json.Unmarshal(text, m); err != nil {
		f.err = invalidFrame("the registration cannot be read: %v", err)
	}
}

func (m *Heartbeat) describeFields(f *fields) { f.momentField(1, &m.Time) }

func (m *Event) describeFields(f *fields) {
	f.numberField(1, &m.Seq)
	f.textField(2, &m.Kind)
	f.bytesField(3, &m.Body)
}

func (m *Receipts) describeFields(f *fields) {
	f.numberField(1, &m.From)
	f.bytesField(2, &m.Lines)
	f.bytesField(3, &m.Checkpoint)
}

func (m *Result) describeFields(f *fields) {
	f.textField(1, &m.ID)
	f.bytesField(2, &m.Body)
	subMessage(f, 3, &m.Error)
}

func (m *Fault) describeFields(f *fields) {
	f.textField(1, &m.Kind)
	f.textField(2, &m.Message)
	f.textField(3, &m.Hint)
	f.truthField(4, &m.Unknown)
}

func (m *Welcome) describeFields(f *fields) {
	f.textField(1, &m.Host)
	f.textField(2, &m.Name)
	f.numberField(3, &m.Acked)
	f.numberField(4, &m.Receipts)
	f.truthField(5, &m.Forked)
}

func (m *Ack) describeFields(f *fields) { f.numberField(1, &m.Seq) }

func (m *Command) describeFields(f *fields) {
	f.textField(1, &m.ID)
	f.textField(2, &m.Kind)
	f.bytesField(3, &m.Body)
	f.momentField(4, &m.Deadline)
}

func (m *Taken) describeFields(f *fields) { f.textField(1, &m.ID) }

func (m *Cosigned) describeFields(f *fields) {
	f.numberField(1, &m.Size)
	f.bytesField(2, &m.Line)
	f.truthField(3, &m.Forked)
}

// Encode returns a frame as it goes over the wire.
func Encode(m *Frame) ([]byte, error) {
	var f fields
	m.describeFields(&f)
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
	return m, m.checkForm()
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
	m.describeFields(&f)
	return f.err
}

// check validates what both sides must not send.
func (m *Frame) checkForm() error {
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
