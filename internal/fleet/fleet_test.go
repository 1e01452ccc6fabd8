package fleet

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"bailey"
)

var moment = time.Date(2026, 11, 1, 12, 0, 0, 123000, time.UTC)

// frames has one of each kind, with every field set.
func frames() []*Frame {
	id := strings.Repeat("a", IDLength)
	return []*Frame{
		{Register: &Register{Kind: Gateway, Version: "1", Queue: id, Floor: 3, Ledger: &Ledger{"o", "k"}, Images: []string{"debian"}}},
		{Heartbeat: &Heartbeat{moment}},
		{Event: &Event{7, "spend", []byte(`{"a":1}`)}},
		{Receipts: &Receipts{From: 5, Lines: []byte("line\n"), Checkpoint: []byte("signed")}},
		{Result: &Result{ID: id, Body: []byte(`"é"`)}},
		{Result: &Result{ID: id, Error: &Fault{"denied", "no", "ask", true}}},
		{Welcome: &Welcome{"h-1", "laptop", 9, 11, true}},
		{Ack: &Ack{1 << 40}},
		{Command: &Command{id, "kill", []byte(`{}`), moment}},
		{Taken: &Taken{id}},
		{Cosigned: &Cosigned{12, []byte("— witness"), true}},
	}
}

func TestFramesRoundTrip(t *testing.T) {
	for _, f := range frames() {
		data, err := Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(data)
		if err != nil || !reflect.DeepEqual(back, f) {
			t.Errorf("%+v, %v", back, err)
		}
	}
}

// TestProto decodes each frame with a protobuf library that knows fleet.proto, and encodes it again: both give the same
// bytes, and the library finds no field that it does not know.
func TestProto(t *testing.T) {
	frame := describeProto(t)
	for _, f := range frames() {
		data, err := Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		m := dynamicpb.NewMessage(frame)
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		m.Range(func(_ protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if n := len(v.Message().GetUnknown()); n > 0 {
				t.Errorf("%+v has fields that fleet.proto does not have", f)
			}
			return true
		})
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil || !bytes.Equal(again, data) || len(m.GetUnknown()) > 0 {
			t.Errorf("%+v: %x, %x, %v", f, data, again, err)
		}
	}
}

// describeProto reads the messages of fleet.proto, which has only what this needs to know.
func describeProto(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	text, err := os.ReadFile("fleet.proto")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]descriptorpb.FieldDescriptorProto_Type{"bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
		"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "uint64": descriptorpb.FieldDescriptorProto_TYPE_UINT64,
		"bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL}
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("fleet.proto"), Package: proto.String("bailey.fleet.v1"),
		Syntax: proto.String("proto3")}
	field := regexp.MustCompile(`(\w+) (\w+) = (\d+);`)
	for _, m := range regexp.MustCompile(`(?s)message (\w+) \{(.*?)\}`).FindAllSubmatch(text, -1) {
		d := &descriptorpb.DescriptorProto{Name: proto.String(string(m[1]))}
		for _, f := range field.FindAllStringSubmatch(string(m[2]), -1) {
			n, err := strconv.Atoi(f[3])
			if err != nil {
				t.Fatal(err)
			}
			p := &descriptorpb.FieldDescriptorProto{Name: proto.String(f[2]), Number: proto.Int32(int32(n)),
				Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
			if kind, ok := kinds[f[1]]; ok {
				p.Type = kind.Enum()
			} else {
				p.Type, p.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".bailey.fleet.v1."+f[1])
			}
			d.Field = append(d.Field, p)
		}
		file.MessageType = append(file.MessageType, d)
	}
	found, err := protodesc.NewFile(file, nil)
	if err != nil || found.Messages().Len() != 12 {
		t.Fatalf("%d messages, %v", found.Messages().Len(), err)
	}
	return found.Messages().ByName("Frame")
}

func TestRefusedFrames(t *testing.T) {
	id := strings.Repeat("a", IDLength)
	for name, f := range map[string]*Frame{
		"nothing":           {},
		"two":               {Ack: &Ack{1}, Taken: &Taken{id}},
		"no number":         {Event: &Event{0, "spend", nil}},
		"kind":              {Event: &Event{1, "Spend it", nil}},
		"long kind":         {Event: &Event{1, strings.Repeat("a", MaxKind+1), nil}},
		"not JSON":          {Event: &Event{1, "spend", []byte("{")}},
		"not UTF-8":         {Event: &Event{1, "spend", []byte("\"\xff\"")}},
		"short id":          {Command: &Command{ID: "a", Kind: "kill"}},
		"result without id": {Result: &Result{}},
		"queue":             {Register: &Register{Queue: "../../x"}},
		"large body":        {Event: &Event{1, "spend", bytes.Repeat([]byte("1"), MaxBody+1)}},
	} {
		data, err := Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(data); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode(make([]byte, MaxFrame+1)); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
}

// FuzzDecode: no bytes make Decode fail otherwise than with an error of the kind Invalid, and what it accepts is encoded
// to something that it reads as the same.
func FuzzDecode(f *testing.F) {
	for _, m := range frames() {
		data, err := Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if err != nil {
			if !errors.Is(err, bailey.Invalid) {
				t.Fatal(err)
			}
			return
		}
		again, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Decode(again); err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("%+v, %+v, %v", m, back, err)
		}
	})
}

func openQueue(t *testing.T, dir string) *Queue {
	t.Helper()
	q, err := OpenQueue(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

func numbers(t *testing.T, q *Queue, after uint64) (all []uint64) {
	t.Helper()
	for {
		events, _, err := q.After(after)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			return all
		}
		for _, e := range events {
			all, after = append(all, e.Seq), e.Seq
		}
	}
}

// TestQueue: events survive a restart, also one that a crash cut off half-way, and files go when they are acknowledged.
func TestQueue(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "q")
	q := openQueue(t, dir)
	id, large := q.ID(), []byte(`"`+strings.Repeat("x", 1<<20)+`"`)
	for range 7 {
		if err := q.Append("spend", large); err != nil {
			t.Fatal(err)
		}
	}
	if got := numbers(t, q, 2); !reflect.DeepEqual(got, []uint64{3, 4, 5, 6, 7}) {
		t.Error(got)
	}
	if err := q.Acknowledge(9); !errors.Is(err, bailey.Conflict) {
		t.Errorf("a number that was never given: %v", err)
	}
	if err := q.Acknowledge(4); err != nil || q.Floor() == 0 {
		t.Errorf("floor %d, %v", q.Floor(), err)
	}
	q.Close()
	names, _ := filepath.Glob(filepath.Join(dir, "*.events"))
	last := names[len(names)-1]
	f, err := os.OpenFile(last, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte{0, 0, 0, 99, 1, 2, 3, 4, '{'}) // a write that was cut off
	f.Close()
	q = openQueue(t, dir)
	if q.ID() != id {
		t.Error("the queue has another name")
	}
	if err := q.Append("spend", []byte("8")); err != nil {
		t.Fatal(err)
	}
	if got := numbers(t, q, 4); !reflect.DeepEqual(got, []uint64{5, 6, 7, 8}) {
		t.Error(got)
	}
	if err := q.Acknowledge(8); err != nil {
		t.Fatal(err)
	}
	q.Close()
	q = openQueue(t, dir)
	if err := q.Append("spend", []byte("9")); err != nil {
		t.Fatal(err)
	}
	if got := numbers(t, q, 8); !reflect.DeepEqual(got, []uint64{9}) {
		t.Error(got)
	}
	text, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	text[20] ^= 1
	if err := os.WriteFile(last, append(text, text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if q, err := OpenQueue(dir); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("a changed event is used: %v %v", q, err)
	}
}

func TestQueueRefuses(t *testing.T) {
	q := openQueue(t, t.TempDir())
	if err := q.Append("no such kind!", nil); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
	q.total = maxQueue
	if err := q.Append("spend", []byte("1")); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Errorf("a full queue: %v", err)
	}
}

// TestCommands: a command begins once, also after a restart, and its result stays until it is taken.
func TestCommands(t *testing.T) {
	dir, now := t.TempDir(), moment
	open := func() *Commands {
		c, err := OpenCommands(dir, func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open()
	first, second := &Command{ID: NewID(), Kind: "kill", Deadline: now.Add(time.Minute)}, &Command{ID: NewID(), Kind: "kill", Deadline: now.Add(time.Minute)}
	for _, m := range []*Command{first, second} {
		if fresh, r := c.Begin(m); !fresh || r != nil {
			t.Fatal(fresh, r)
		}
		if fresh, r := c.Begin(m); fresh || r != nil {
			t.Fatal("begun twice", r)
		}
	}
	if err := c.Finish(&Result{ID: first.ID, Body: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	c.Close() // a crash while the second one runs
	f, _ := os.OpenFile(c.name, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString(`{"id":"half`)
	f.Close()
	c = open()
	if fresh, r := c.Begin(first); fresh || string(r.Body) != "1" {
		t.Error(fresh, r)
	}
	if fresh, r := c.Begin(second); fresh || r == nil || r.Error == nil || !strings.Contains(r.Error.Message, "outcome is unknown") {
		t.Error(fresh, r)
	}
	if n := len(c.Results()); n != 2 {
		t.Errorf("%d results", n)
	}
	c.Take(first.ID)
	c.Take(second.ID)
	c.Close()
	c = open()
	if fresh, _ := c.Begin(first); fresh || len(c.Results()) != 0 {
		t.Error("a command that was taken runs again")
	}
	now = now.Add(25 * time.Hour)
	c.Close()
	c = open()
	if fresh, r := c.Begin(first); fresh || r.Error == nil || !strings.Contains(r.Error.Message, "deadline") {
		t.Errorf("after its deadline: %v %v", fresh, r)
	}
	late := &Command{ID: NewID(), Kind: "kill", Deadline: now.Add(MaxDeadline + time.Hour)}
	if fresh, r := c.Begin(late); fresh || r.Error == nil {
		t.Error("a deadline that is too late")
	}
}

// pair is a stream in memory.
type pair struct {
	in, out chan *Frame
	ctx     context.Context
}

func (p pair) Send(f *Frame) error {
	select {
	case p.out <- f:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func (p pair) Recv() (*Frame, error) {
	select {
	case f := <-p.in:
		return f, nil
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	}
}

// TestClientRunsOnce: a server that sends each command several times, over several connections, gets one run and the
// same result; a handler that panics is an error.
func TestClientRunsOnce(t *testing.T) {
	dir := t.TempDir()
	commands, err := OpenCommands(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	streams := make(chan pair)
	var runs atomic.Int32
	c := &Client{Queue: openQueue(t, filepath.Join(dir, "q")), Commands: commands,
		Register: func(context.Context) (Register, error) { return Register{Kind: Gateway}, nil },
		Handlers: Handlers{"count": func(_ context.Context, body []byte) ([]byte, error) { runs.Add(1); return body, nil },
			"panic": func(context.Context, []byte) ([]byte, error) { panic("x") }},
		Dial: func(ctx context.Context) (Stream, error) {
			up, down := make(chan *Frame, 100), make(chan *Frame, 100)
			streams <- pair{up, down, ctx}
			return pair{down, up, ctx}, nil
		}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	count := &Command{ID: NewID(), Kind: "count", Body: []byte("5"), Deadline: time.Now().Add(time.Minute)}
	crash := &Command{ID: NewID(), Kind: "panic", Deadline: time.Now().Add(time.Minute)}
	other := &Command{ID: NewID(), Kind: "other", Deadline: time.Now().Add(time.Minute)}
	for connection := range 2 {
		s := <-streams
		if f, err := s.Recv(); err != nil || f.Register == nil || !isID(f.Register.Queue) {
			t.Fatal(f, err)
		}
		s.Send(&Frame{Welcome: &Welcome{Host: "h-1"}})
		for _, m := range []*Command{count, count, crash, other} {
			s.Send(&Frame{Command: m})
		}
		got := map[string]*Result{}
		for len(got) < 3 {
			f, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if f.Result != nil {
				got[f.Result.ID] = f.Result
			}
		}
		if string(got[count.ID].Body) != "5" || got[crash.ID].Error == nil || got[other.ID].Error.Kind != string(bailey.NotFound) {
			t.Errorf("%+v %+v", got[count.ID], got[crash.ID])
		}
		if connection == 0 {
			s.Send(&Frame{Register: &Register{}}) // ends the connection
		}
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
	cancel()
	<-ended
}
