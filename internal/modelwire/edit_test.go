package modelwire

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

var hidden = strings.NewReplacer("hunter2", "[REDACTED_PASSWORD_1]", "db-7.corp", "[REDACTED_HOST_1]")
var shown = strings.NewReplacer("[REDACTED_PASSWORD_1]", "hunter2", "[REDACTED_HOST_1]", "db-7.corp")

func hide(_ Where, s string) string { return hidden.Replace(s) }

// shower restores tokens. It writes what cannot become a token at once.
type shower struct{ skip func(Where) bool }

func (e shower) Text(where Where, s string) string {
	if e.skip != nil && e.skip(where) {
		return s
	}
	return shown.Replace(s)
}

func (e shower) Writer(where Where, out io.Writer) io.WriteCloser {
	if e.skip != nil && e.skip(where) {
		return nil
	}
	return &showWriter{out: out}
}

type showWriter struct {
	held []byte
	out  io.Writer
}

func (w *showWriter) Write(p []byte) (int, error) {
	w.held = append(w.held, p...)
	s := shown.Replace(string(w.held))
	keep := 0
	if i := strings.LastIndexByte(s, '['); i >= 0 && (strings.HasPrefix("[REDACTED_PASSWORD_1]", s[i:]) || strings.HasPrefix("[REDACTED_HOST_1]", s[i:])) {
		keep = len(s) - i
	}
	w.held = append(w.held[:0], s[len(s)-keep:]...)
	_, err := io.WriteString(w.out, s[:len(s)-keep])
	return len(p), err
}

func (w *showWriter) Close() error {
	_, err := w.out.Write(w.held)
	return err
}

func recognised(t testing.TB, method, path string) Endpoint {
	t.Helper()
	e, ok := Recognise(method, path)
	if !ok {
		t.Fatalf("%s %s is not recognised", method, path)
	}
	return e
}

// streamInPieces edits a stream that is written in pieces of the given size.
func streamInPieces(t testing.TB, e Endpoint, in string, size int, editor Editor) (string, Usage) {
	t.Helper()
	out, u, err := tryPieces(e, in, size, editor)
	if err != nil {
		t.Fatal(err)
	}
	return out, u
}

// tryPieces is streamInPieces for a stream that may be refused.
func tryPieces(e Endpoint, in string, size int, editor Editor) (string, Usage, error) {
	var out bytes.Buffer
	s := NewStream(e, &out, editor)
	for len(in) > 0 {
		n := min(size, len(in))
		if _, err := s.Write([]byte(in[:n])); err != nil {
			return "", Usage{}, err
		}
		in = in[n:]
	}
	if err := s.Close(); err != nil {
		return "", Usage{}, err
	}
	return out.String(), s.Usage(), nil
}

func TestEditMessages(t *testing.T) {
	e := recognised(t, "POST", "/v1/messages?beta=true")
	const in = `{"model":"claude-x", "stream" : true,"system":[{"type":"text","text":"host db-7.corp\u00e9","cache_control":{"type":"ephemeral"}}],
 "messages":[{"role":"user","content":"hunter2 \/ ok"},
 {"role":"assistant","content":[{"type":"thinking","thinking":"hunter2","signature":"hunter2"},{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ping db-7.corp","n":1.50e3}}]},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"from db-7.corp"},{"type":"text","text":"now hunter2"}]}],"max_tokens":100}`
	want := strings.ReplaceAll(in, `host db-7.corp\u00e9`, `host [REDACTED_HOST_1]é`)
	want = strings.ReplaceAll(want, `hunter2 \/ ok`, `[REDACTED_PASSWORD_1] / ok`)
	want = strings.ReplaceAll(want, "db-7.corp", "[REDACTED_HOST_1]")
	want = strings.ReplaceAll(want, "now hunter2", "now [REDACTED_PASSWORD_1]")
	got, sum, err := Edit(e, []byte(in), hide)
	if err != nil || string(got) != want {
		t.Fatalf("%v\n got %s\nwant %s", err, got, want)
	}
	if sum.Model != "claude-x" || !sum.Stream || sum.Messages != 3 || sum.MaxTokens != 100 || sum.LastPrompt != "now [REDACTED_PASSWORD_1]" {
		t.Errorf("%+v", sum)
	}
}

const messageStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"claude-x\",\"content\":[],\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n" +
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
	"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"use [REDAC\"}}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"TED_PASSWORD_1] [RED\"}}\n\n" +
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_9\",\"name\":\"Bash\",\"input\":{}}}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"command\\\": \\\"ping [REDACTED\\\\u00\"}}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"5fHOST_1]\\\\n\\\"}\"}}\n\n" +
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n" +
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":42}}\n\n" +
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

func TestMessageStream(t *testing.T) {
	e := recognised(t, "POST", "/v1/messages")
	got, u := streamInPieces(t, e, messageStream, len(messageStream), shower{})
	for _, want := range []string{`"text":"use "`, `"text":"hunter2 "`, `{"type":"text_delta","text":"[RED"}`, `{\"command\": \"ping "`, `"partial_json":"db-7.corp\\n\"}"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	if u.Input != 15 || u.Output != 42 || u.CacheRead != 5 || u.StopReason != "tool_use" || len(u.ToolNames) != 1 {
		t.Errorf("%+v", u)
	}
	for size := 1; size < len(messageStream); size++ {
		if again, _ := streamInPieces(t, e, messageStream, size, shower{}); again != got {
			t.Fatalf("pieces of %d give\n%s", size, again)
		}
	}
}
