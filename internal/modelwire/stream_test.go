package modelwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// checkAnswer edits an answer in one dialect and checks what a client learns: the restored texts, equal in all their
// copies, and thinking as it was.
func checkAnswer(t *testing.T, d Dialect, a answer, editor Editor) {
	t.Helper()
	in := streams[d](a)
	out, _ := streamInPieces(t, endpointOf(d), in, len(in), editor)
	got := readStream(t, d, out)
	want := editor.Text(Where{Kind: Assistant}, whole(a.text))
	if got.text != want {
		t.Fatalf("%s %q: text %q, want %q", d, a.text, got.text, want)
	}
	var args, wantArgs any
	if err := json.Unmarshal([]byte(got.args), &args); err != nil {
		t.Fatalf("%s %q: %v in %s", d, a.args, err, got.args)
	}
	if err := json.Unmarshal([]byte(whole(a.args)), &wantArgs); err != nil {
		t.Fatal(err)
	}
	if wantArgs = editValues(wantArgs, editor, Where{Kind: ToolInput, Tool: "Edit"}); !reflect.DeepEqual(args, wantArgs) {
		t.Fatalf("%s %q: arguments %v, want %v", d, a.args, args, wantArgs)
	}
	if d == OpenAIChat || d == OpenAIResponses {
		if want := editor.Text(Where{Kind: ToolInput, Tool: "apply_patch"}, whole(a.custom)); got.custom != want {
			t.Fatalf("%s %q: custom %q, want %q", d, a.custom, got.custom, want)
		}
	}
	for group, copies := range got.snapshots {
		deltas := map[string]string{"text": got.text, "args": got.args, "custom": got.custom}[group]
		for _, c := range copies {
			if c != deltas {
				t.Fatalf("%s: a copy of %s is %q, the deltas %q", d, group, c, deltas)
			}
		}
	}
	for _, h := range got.hidden {
		if h != "[REDACTED_PASSWORD_1]" {
			t.Fatalf("%s: thinking became %q", d, h)
		}
	}
}

func editValues(v any, editor Editor, where Where) any {
	switch v := v.(type) {
	case string:
		return editor.Text(where, v)
	case []any:
		for i := range v {
			v[i] = editValues(v[i], editor, where.inElement(i))
		}
	case object:
		for k := range v {
			v[k] = editValues(v[k], editor, where.inMember(k))
		}
	}
	return v
}

const (
	sampleText   = `a [REDACTED_PASSWORD_1] "b" [REDACTED_X_9] é😀 [RED`
	sampleArgs   = `{"old_string": "x[REDACTED_PASSWORD_1]\n", "n":1.50, "l":["\u005bREDACTED_HOST_1]", "\ud83d\ude00\ud83d[RED"]}`
	sampleCustom = "*** Update\n+pw = \"[REDACTED_PASSWORD_1]\"\\n[REDACTED_HOST_1"
)

// cutTwice returns s in three pieces.
func cutTwice(s string, i, j int) []string { return []string{s[:i], s[i:j], s[j:]} }

// TestCutAnywhere cuts the texts of an answer at every two characters, inside tokens, escapes and surrogate pairs.
func TestCutAnywhere(t *testing.T) {
	ktest.Long(t)
	for d := range streams {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			for i := range max(len(sampleText), len(sampleArgs), len(sampleCustom)) + 1 {
				for _, j := range []int{i, i + 1, i + 2, i + 7, 1000} {
					checkAnswer(t, d, answer{cutText(sampleText, i, j), cutText(sampleArgs, i, j), cutText(sampleCustom, i, j)}, shower{})
				}
			}
			var a answer
			for _, r := range sampleText {
				a.text = append(a.text, string(r))
			}
			for _, r := range sampleArgs {
				a.args = append(a.args, string(r))
			}
			for _, r := range sampleCustom {
				a.custom = append(a.custom, string(r))
			}
			checkAnswer(t, d, a, shower{})
		})
	}
}

// cutText cuts between characters, because a JSON string of an event has only whole ones.
func cutText(s string, i, j int) []string {
	back := func(n int) int {
		n = min(n, len(s))
		for n > 0 && n < len(s) && s[n]&0xc0 == 0x80 {
			n--
		}
		return n
	}
	return cutTwice(s, back(i), back(j))
}

// TestEveryByte cuts the stream itself at every byte, and in pieces of every size.
func TestEveryByte(t *testing.T) {
	ktest.Long(t)
	a := answer{cutText(sampleText, 6, 20), cutText(sampleArgs, 20, 80), cutText(sampleCustom, 22, 40)}
	for d, stream := range streams {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			checkCuts(t, endpointOf(d), stream(a), 1)
			checkCuts(t, endpointOf(d), strange(stream(a)), 7) // TestTrap18 cuts such a stream at every byte
			if d == Gemini {
				checkCuts(t, Endpoint{Dialect: Gemini, Operation: Generate, Array: true}, arrayOf(stream(a)), 1)
			}
		})
	}
}

// strange returns the same events with a byte order mark, carriage returns, comments, data in several lines, fields of
// no meaning, and an end without a newline.
func strange(in string) string {
	in = strings.ReplaceAll(in, "\r\n", "\n")
	in = strings.ReplaceAll(in, "\n\n", "\n: comment\nid: 7\n\n:\n\n")
	in = strings.ReplaceAll(in, ",\"delta\":", ",\ndata:\"delta\":")
	in = strings.ReplaceAll(in, "\n", "\r\n")
	return "\xef\xbb\xbf" + strings.TrimRight(in, "\r\n:")
}

// arrayOf returns the events of a stream as one JSON array.
func arrayOf(in string) string {
	in = strings.ReplaceAll(in, "\r\n\r\ndata: ", "\n,\r\n")
	return "[" + strings.TrimPrefix(strings.TrimSpace(in), "data: ") + "\n]\n"
}

// checkCuts checks a stream in pieces of several sizes, and cut once at each byte, or each so many.
func checkCuts(t *testing.T, e Endpoint, in string, step int) {
	t.Helper()
	want, usage := streamInPieces(t, e, in, len(in), shower{})
	if e.Array {
		if !json.Valid([]byte(want)) {
			t.Fatalf("no JSON: %s", want)
		}
	}
	if !strings.Contains(want, "hunter2") {
		t.Fatal(want)
	}
	check := func(got string, u Usage) {
		if got != want || !reflect.DeepEqual(u, usage) {
			t.Fatalf("usage %+v, want %+v\n got %s\nwant %s", u, usage, got, want)
		}
	}
	for size := 1; size < 32; size++ {
		check(streamInPieces(t, e, in, size, shower{}))
	}
	for i := 0; i < len(in); i += step {
		var out bytes.Buffer
		s := NewStream(e, &out, shower{})
		s.Write([]byte(in[:i]))
		s.Write([]byte(in[i:]))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		check(out.String(), s.Usage())
	}
}

// TestCutLarge cuts a large stream at random, by a printed seed.
func TestCutLarge(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var a answer
	for range 400 {
		a.text = append(a.text, randomText(r))
		a.custom = append(a.custom, randomText(r))
	}
	value := quoted(whole(a.text))
	args := `{"file_path":"/x","content":` + value + `,"more":[` + value + `]}`
	for len(args) > 0 {
		n := len(cutText(args, 1+r.IntN(30), 1000)[0])
		n = max(n, min(len(args), 4))
		for n < len(args) && args[n]&0xc0 == 0x80 {
			n++
		}
		a.args = append(a.args, args[:n])
		args = args[n:]
	}
	for d, stream := range streams {
		checkAnswer(t, d, a, shower{})
		in := stream(a)
		want, _ := streamInPieces(t, endpointOf(d), in, len(in), shower{})
		for range 5 {
			var out bytes.Buffer
			s := NewStream(endpointOf(d), &out, shower{})
			for rest := in; len(rest) > 0; {
				n := min(len(rest), 1+r.IntN(3000))
				s.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if err := s.Close(); err != nil || out.String() != want {
				t.Fatalf("%s: %v", d, err)
			}
		}
	}
}

func randomText(r *rand.Rand) string {
	texts := []string{"[REDACTED_PASSWORD_1]", "[REDACTED_HOST_1]", "[REDA", "CTED_", "PASSWORD_1]", "a b", "\"\\", "\n\t\x01", "é", "😀", "[[", "]"}
	return texts[r.IntN(len(texts))]
}

// TestUntouchedEvents checks that a stream without tokens passes byte for byte.
func TestUntouchedEvents(t *testing.T) {
	a := answer{[]string{"hello ", "[world] \u00e9"}, []string{`{"a"`, ` : "\u00e9\/",`, `"b":[1.0e5,null]}`}, []string{"x [", "y\n"}}
	for d, stream := range streams {
		for _, in := range []string{stream(a), strange(stream(a)), strings.ReplaceAll(stream(a), `\"b\"`, `\u0022b\u0022`)} {
			if got, _ := streamInPieces(t, endpointOf(d), in, 100, tokenless{}); got != in {
				t.Errorf("%s\n got %q\nwant %q", d, got, in)
			}
		}
	}
}

// tokenless is an editor that changes nothing.
type tokenless struct{}

func (tokenless) Text(_ Where, s string) string { return s }
func (tokenless) Writer(_ Where, out io.Writer) io.WriteCloser {
	return struct {
		io.Writer
		io.Closer
	}{out, io.NopCloser(nil)}
}

// TestIncompleteStream checks that a reply that ends too early loses nothing, and that an event of our own does not
// continue a broken line.
func TestIncompleteStream(t *testing.T) {
	in := anthropicStream(answer{cutText("x [REDACTED_PASSWORD_1] y [RED", 6, 27), cutText(sampleArgs, 5, 9), nil})
	for i := range len(in) {
		out, _ := streamInPieces(t, endpointOf(Anthropic), in[:i], 50, shower{})
		cut := strings.LastIndex(in[:i], "\n\n") + 2
		if i > cut && !strings.HasSuffix(out, in[cut:i]) && json.Valid([]byte(in[strings.LastIndex(in[:i], "data: ")+6:i])) == false {
			t.Fatalf("the end %q is missing in %q", in[cut:i], out)
		}
		complete := readStream(t, Anthropic, out[:strings.LastIndex("\n\n"+out, "\n\n")])
		if i > len(in)/2 && cut == i {
			if want := readStream(t, Anthropic, in[:i]); complete.text != shown.Replace(want.text) {
				t.Fatalf("%q, want %q", complete.text, want.text)
			}
		}
	}
}

// TestStreamErrors checks that an error of the writer is final, that an event has a limit, and that closing twice is one.
func TestStreamErrors(t *testing.T) {
	s := NewStream(endpointOf(Anthropic), brokenWriter{}, shower{})
	if _, err := s.Write([]byte("data: {}\n\n")); !errors.Is(err, io.ErrShortBuffer) {
		t.Error(err)
	}
	if _, err := s.Write([]byte("data: {}\n\n")); !errors.Is(err, io.ErrShortBuffer) {
		t.Error(err)
	}
	if err := s.Close(); !errors.Is(err, io.ErrShortBuffer) {
		t.Error(err)
	}
	for _, e := range []Endpoint{endpointOf(Anthropic), {Dialect: Gemini, Array: true}} {
		s = NewStream(e, io.Discard, shower{})
		var err error
		s.Write([]byte(`[{"a":"`))
		for i := 0; err == nil && i < 100; i++ {
			_, err = s.Write(bytes.Repeat([]byte("x"), 1<<20))
		}
		if !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
	}
	for _, block := range []string{`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":"x"}}`, `{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","name":"x"}}`} {
		s = NewStream(endpointOf(Anthropic), io.Discard, shower{})
		var err error
		for i := 0; err == nil && i < 2*maxOpen; i++ {
			_, err = io.WriteString(s, sseEvent(fmt.Sprintf(block, i)))
		}
		if !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
	}
	s = NewStream(endpointOf(Anthropic), io.Discard, shower{})
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortBuffer }

// TestHoldsBackLittle checks that a text is written as soon as it cannot become a token, and that events of other kinds
// do not wait.
func TestHoldsBackLittle(t *testing.T) {
	var out bytes.Buffer
	s := NewStream(endpointOf(Anthropic), &out, shower{})
	delta := `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}` + "\n\n"
	for _, step := range []struct{ in, want string }{
		{"hello [RED", "hello "}, {"DACTED_P", "[REDDACTED_P"}, {"] [REDACTED_PASSWORD_1", "] "}, {"]", "hunter2"},
	} {
		out.Reset()
		fmt.Fprintf(s, delta, quoted(step.in))
		if want := fmt.Sprintf(delta, quoted(step.want)); out.String() != want {
			t.Errorf("%q gave %q, want %q", step.in, out.String(), want)
		}
		out.Reset()
		const ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n: comment\n\n"
		if io.WriteString(s, ping); out.String() != ping {
			t.Errorf("the ping became %q", out.String())
		}
	}
}

// TestCallsWithOneIndex checks parallel calls that all have the index 0, as some providers send them.
func TestCallsWithOneIndex(t *testing.T) {
	call := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"%s","function":{"name":"%s","arguments":"{\"a\":\"` + token + `\"}"}}]}}]}` + "\n\n"
	in := fmt.Sprintf(call+call+call, "c1", "Edit", "c2", "Bash", "c3", "Edit")
	got, u := streamInPieces(t, endpointOf(OpenAIChat), in, 10, shower{skip: func(w Where) bool { return w.Tool != "Edit" || w.Field != "/a" }})
	want := strings.ReplaceAll(in, token, "hunter2")
	want = strings.Replace(want, `"Bash","arguments":"{\"a\":\"hunter2`, `"Bash","arguments":"{\"a\":\"`+token, 1)
	if got != want || strings.Join(u.ToolNames, " ") != "Edit Bash Edit" {
		t.Errorf("%v\n got %s\nwant %s", u.ToolNames, got, want)
	}
}

// TestTruncatedArray checks that a text that is held back is one more element if the array ends too early.
func TestTruncatedArray(t *testing.T) {
	e := Endpoint{Dialect: Gemini, Operation: Generate, Array: true}
	element := `{"candidates":[{"content":{"parts":[{"text":"%s"}],"role":"model"}}]}`
	for _, end := range []string{"", "\n", "\n,", "\n,\r\n", "\n]", "]\n"} {
		before, _, _ := strings.Cut(end, "]")
		comma := map[bool]string{true: ",", false: ""}[!strings.Contains(end, ",")]
		want := "[" + fmt.Sprintf(element, "a ") + before + comma + fmt.Sprintf(element, "[RED") + end[len(before):]
		in := "[" + fmt.Sprintf(element, "a [RED") + end
		for size := range len(in) {
			if got, _ := streamInPieces(t, e, in, size+1, shower{}); got != want {
				t.Fatalf("pieces of %d\n got %q\nwant %q", size+1, got, want)
			}
		}
	}
}

// TestPairsAreWhole checks that an editor gets a surrogate pair as one character, wherever it is cut.
func TestPairsAreWhole(t *testing.T) {
	in := `{"a":"x\ud83d\ude00y\ud83d\u0041\ude00"}`
	for i := range len(in) {
		var out bytes.Buffer
		p := newPartial(Where{}, wholeWriters(func(_ Where, s string) string { return strings.ReplaceAll(s, "😀", "smile") }), &out)
		p.writePiece(in[:i])
		p.writePiece(in[i:])
		p.finishText()
		if got := out.String(); got != `{"a":"xsmiley\ud83dA\ude00"}` {
			t.Fatalf("cut at %d: %s", i, got)
		}
	}
}

// TestBytewiseWriter checks an editor whose writer cuts its text inside characters.
func TestBytewiseWriter(t *testing.T) {
	var out bytes.Buffer
	p := newPartial(Where{}, func(where Where, out io.Writer) io.WriteCloser {
		return wholeWriters(show)(where, writerFunc(func(b []byte) {
			for i := range b {
				out.Write(b[i : i+1])
			}
		}))
	}, &out)
	p.writePiece(`["\u00e9 é", "é\ud83d\u00e9` + token + `é😀\ud83d\"", 1]`)
	p.finishText()
	if got, want := out.String(), `["\u00e9 é", "é\ud83d\u00e9hunter2é😀\ud83d\"", 1]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// TestNoLastLine checks that a text that is held back after a last event without an end is written as an event of its
// own.
func TestNoLastLine(t *testing.T) {
	delta := `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}`
	for _, end := range []string{"", "\n", "\r\n"} {
		got, _ := streamInPieces(t, endpointOf(Anthropic), fmt.Sprintf(delta, "a [RED")+end, 9, shower{})
		if want := fmt.Sprintf(delta, "a ") + end + "\n\n" + fmt.Sprintf(delta, "[RED") + "\n\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	const half = `data: {"type":"content_bl`
	got, _ := streamInPieces(t, endpointOf(Anthropic), fmt.Sprintf(delta, "a [RED")+"\n\n"+half, 9, shower{})
	if want := fmt.Sprintf(delta, "a ") + "\n\n" + fmt.Sprintf(delta, "[RED") + "\n\n" + half; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUsageTwice checks that counts that a stream repeats are not added.
func TestUsageTwice(t *testing.T) {
	for d, event := range map[Dialect]string{
		Anthropic:       `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":5}}`,
		OpenAIResponses: `{"type":"response.completed","response":{"output":[{"type":"function_call","name":"f"}],"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":4},"output_tokens":5}}}`,
		OpenAIChat:      `{"choices":[],"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens":5}}`,
		Gemini:          `{"usageMetadata":{"promptTokenCount":7,"cachedContentTokenCount":4,"candidatesTokenCount":5}}`,
	} {
		_, u := streamInPieces(t, endpointOf(d), strings.Repeat("data: "+event+"\n\n", 2), 50, shower{})
		if u.Input != 7 || u.Output != 5 || u.CacheRead != 4 || len(u.ToolNames) > 1 {
			t.Errorf("%s: %+v", d, u)
		}
	}
}
