package modelwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"bailey/internal/redact"
)

// The tests below have the numbers of known traps of redacting and restoring in a stream between a client and a model.
// Traps 2, 12, 19, 20, 22, 23, 24 and 26 concern connections, sessions and tokens, which this package does not have.

// TestTrap01 checks that a body that is still compressed is refused, because its texts would pass unread.
func TestTrap01(t *testing.T) {
	for _, head := range []string{"\x1f\x8b\x08\x00", "\x28\xb5\x2f\xfd\x04", "\x78\x9c\xab", "\x0b\x02\x80{}\x03"} {
		if out, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(head), hide); out != nil || !errors.Is(err, ErrUnreadable) {
			t.Errorf("%q: %q %v", head, out, err)
		}
	}
}

// TestTrap03 checks that signatures, thinking and all else that a provider compares stay, in requests and replies.
func TestTrap03(t *testing.T) {
	for _, part := range []string{
		`{"type":"thinking","thinking":"hunter2","signature":"hunter2"}`, `{"type":"redacted_thinking","data":"hunter2"}`, `{"type":"reasoning","summary":["hunter2"],"encrypted_content":"hunter2"}`,
		`{"text":"a","thoughtSignature":"hunter2"}`, `{"type":"tool_use","id":"hunter2","name":"hunter2","input":{}}`, `{"type":"text","text":"a","cache_control":{"type":"hunter2"}}`,
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"hunter2"}}`, `{"type":"function_call","call_id":"hunter2","id":"hunter2","name":"hunter2","arguments":"{}"}`,
	} {
		in := `{"model":"hunter2","messages":[{"role":"assistant","content":[` + part + `]}]}`
		if out, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(in), hide); err != nil || string(out) != in {
			t.Errorf("%v %s", err, out)
		}
		reply := strings.ReplaceAll(`{"role":"assistant","content":[`+part+`]}`, "hunter2", token)
		if out, _, err := Restore(recognised(t, "POST", "/v1/messages"), []byte(reply), show); err != nil || string(out) != reply {
			t.Errorf("%v %s", err, out)
		}
	}
}

// TestTrap04 checks that unknown fields and types pass with their strings edited.
func TestTrap04(t *testing.T) {
	in := `{"new_field":{"deep":[{"er":"hunter2","n":1e9,"b":null}]},"messages":[{"role":"user","content":[{"type":"hologram","frames":["hunter2"]}],"extra":"hunter2"}]}`
	out, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(in), hide)
	if want := strings.ReplaceAll(in, "hunter2", token); err != nil || string(out) != want {
		t.Errorf("%v %s", err, out)
	}
}

// turns are requests of one conversation: each begins with the last, a text becomes blocks, and the history is compacted.
var turns = []string{
	`{"messages":[{"role":"user","content":"use hunter2"}`,
	`{"messages":[{"role":"user","content":[{"type":"text","text":"use hunter2"}]},{"role":"assistant","content":"ok db-7.corp"}`,
	`{"messages":[{"role":"user","content":"use hunter2"},{"role":"assistant","content":"ok db-7.corp"},{"role":"user","content":"again hunter2"}`,
	`{"messages":[{"role":"user","content":"summary: db-7.corp"},{"role":"user","content":"use hunter2"}`,
}

// TestTrap05 checks that the same text becomes the same bytes at every place of every turn, with and without a cache.
func TestTrap05(t *testing.T) {
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table := rules.NewTable()
	table.Learn("PASSWORD", "hunter2")
	table.Learn("NAME", "db-7.corp")
	text := func(_ Where, s string) string { s, _ = table.Text(s); return s }
	cache := NewCache(1 << 20)
	for _, turn := range turns {
		for range 2 {
			plain, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(turn+"]}"), text)
			cached, _, err2 := cache.Edit(recognised(t, "POST", "/v1/messages"), table.Generation(), []byte(turn+"]}"), text)
			want := strings.NewReplacer("hunter2", token, "db-7.corp", "[REDACTED_NAME_1]").Replace(turn) + "]}"
			if err = errors.Join(err, err2); err != nil || string(plain) != want || string(cached) != want {
				t.Errorf("%v\n%s\n%s\n%s", err, plain, cached, want)
			}
		}
	}
}

// TestTrap06 checks that a secret learned late changes the history once, that this is counted, and that it is stable
// afterwards.
func TestTrap06(t *testing.T) {
	table := redact.NewTable()
	text := func(_ Where, s string) string { s, _ = table.Text(s); return s }
	cache := NewCache(1 << 20)
	body := []byte(`{"messages":[{"role":"user","content":"use late-secret"},{"role":"user","content":"other"}]}`)
	var changed []int
	var bodies []string
	for i := range 4 {
		if i == 2 {
			table.Learn("LATE", "late-secret")
		}
		out, sum, err := cache.Edit(recognised(t, "POST", "/v1/messages"), table.Generation(), body, text)
		if err != nil {
			t.Fatal(err)
		}
		changed, bodies = append(changed, sum.Changed), append(bodies, string(out))
	}
	if !slices.Equal(changed, []int{0, 0, 1, 0}) || bodies[0] != bodies[1] || bodies[2] != bodies[3] || bodies[1] == bodies[2] {
		t.Errorf("%v %q", changed, bodies)
	}
}

// TestTrap07 checks that no cache_control is added, moved or removed.
func TestTrap07(t *testing.T) {
	in := `{"system":[{"type":"text","text":"hunter2","cache_control":{"type":"ephemeral","ttl":"1h"}},{"type":"text","text":"b"}],"tools":[{"name":"x","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"hunter2","cache_control":{"type":"ephemeral"}}]}],"cache_control":{"type":"ephemeral"}}`
	out, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(in), hide)
	if want := strings.ReplaceAll(in, "hunter2", token); err != nil || string(out) != want {
		t.Errorf("%v %s", err, out)
	}
}

// TestTrap08 checks that white space, the order of keys, numbers and escapes stay as they came, beside an edited text.
func TestTrap08(t *testing.T) {
	in := "\t{ \"z\" : 1.0 ,\r\n\"a\":1E400,\"n\":-0,\"big\":123456789012345678901234567890,\"\\u0061b\":\"\\u00e9\\/\\ud83d\\ude00\", \"system\":\"hunter2\",\"e\":{ },\"l\":[ ] }\n"
	out, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(in), hide)
	if want := strings.ReplaceAll(in, "hunter2", token); err != nil || string(out) != want {
		t.Errorf("%v %q", err, out)
	}
}

// TestTrap09 checks that token counts, batches and compaction are edited like the requests themselves, and that a
// conversation that the provider keeps is named.
func TestTrap09(t *testing.T) {
	message := `{"messages":[{"role":"user","content":"hunter2"}]}`
	for path, in := range map[string]string{
		"/v1/messages/count_tokens": message, "/v1/messages/batches": `{"requests":[{"custom_id":"a","params":` + message + `}]}`,
		"/v1/responses/compact": `{"input":[{"role":"user","content":"hunter2"}]}`, "/v1/responses": `{"previous_response_id":"resp_0","input":"hunter2"}`,
	} {
		out, sum, err := Edit(recognised(t, "POST", path), []byte(in), hide)
		if want := strings.ReplaceAll(in, "hunter2", token); err != nil || string(out) != want || strings.Contains(in, "previous") != (sum.Previous == "resp_0") {
			t.Errorf("%s: %v %s %+v", path, err, out, sum)
		}
	}
	if e := recognised(t, "POST", "/v1/files"); !e.Opaque {
		t.Errorf("%+v", e)
	}
}

// TestTrap10 checks that contents that cannot be read are named, so that a policy can decide.
func TestTrap10(t *testing.T) {
	part := func(media string) string {
		return `{"type":"image","source":{"type":"base64","media_type":"` + media + `","data":"AAAA"}}`
	}
	in := `{"messages":[{"role":"user","content":[` + part("image/png") + "," + part("application/pdf") + "," + part("image/png") + `,{"type":"tool_result","content":[` + part("image/webp") + `]},
		{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},{"type":"image_url","image_url":{"url":"data:image/gif;base64,AAAA"}},{"inlineData":{"mimeType":"video/mp4","data":"AAAA"}}]}]}`
	out, sum, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(in), hide)
	want := []string{"image/png", "application/pdf", "image/webp", "audio/wav", "image/gif", "video/mp4"}
	if err != nil || string(out) != in || !slices.Equal(sum.Opaque, want) {
		t.Errorf("%v %v %s", err, sum.Opaque, out)
	}
}

// TestTrap11 checks that metadata stays, and that paths and hosts in results of tools are passed to the function.
func TestTrap11(t *testing.T) {
	in := `{"metadata":{"user_id":"{\"device_id\":\"hunter2\"}"},"messages":[{"role":"user","content":[{"type":"tool_result","content":"/home/ann@db-7.corp"}]}]}`
	out, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(in), hide)
	if want := strings.ReplaceAll(in, "db-7.corp", "[REDACTED_HOST_1]"); err != nil || string(out) != want {
		t.Errorf("%v %s", err, out)
	}
}

// TestTrap13 checks that each block holds back only its own text, that pings pass meanwhile, and that the text is
// written at the end of its block, at an error and at the end of the stream.
func TestTrap13(t *testing.T) {
	delta := func(i int, s string) string {
		return sseEvent(fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%s}}`, i, quoted(s)))
	}
	for _, end := range []string{sseEvent(`{"type":"content_block_stop","index":0}`), sseEvent(`{"type":"error","error":{"type":"overloaded_error"}}`), sseEvent(`{"type":"message_stop"}`), ""} {
		var out bytes.Buffer
		s := NewStream(endpointOf(Anthropic), &out, shower{})
		io.WriteString(s, delta(0, "a [REDACTED_PASS")+delta(1, "b [REDACTED_HO")+sseEvent(`{"type": "ping"}`))
		if got := out.String(); !strings.Contains(got, `"a "`) || !strings.Contains(got, `"b "`) || !strings.HasSuffix(got, "{\"type\": \"ping\"}\n\n") {
			t.Fatal(got)
		}
		out.Reset()
		io.WriteString(s, end)
		s.Close()
		if want := delta(0, "[REDACTED_PASS"); !strings.HasPrefix(out.String(), want) {
			t.Errorf("at %q: %q", end, out.String())
		}
		if !strings.Contains(out.String(), end) {
			t.Errorf("%q is missing in %q", end, out.String())
		}
	}
}

// TestTrap14 checks partial JSON that is cut inside tokens, escapes and surrogate pairs, and a restored text that needs
// escapes.
func TestTrap14(t *testing.T) {
	args := `{"old_string":"\u005bREDACTED\u005fPASSWORD_1] \ud83d\ude00 [REDACTED_KEY_1]"}`
	table := keyed(t)
	for i := range len(args) + 1 {
		for j := i; j <= len(args); j += 17 {
			for d, stream := range streams {
				if d == Gemini {
					continue
				}
				in := stream(answer{[]string{"x"}, cutTwice(args, i, j), []string{"x"}})
				out, _ := streamInPieces(t, endpointOf(d), in, len(in), tableEditor{table})
				got := readStream(t, d, out).args
				if want := `{"old_string":"hunter2 😀 a\"\nb\\"}`; !sameJSON(got, want) {
					t.Fatalf("%s %q: %s", d, cutTwice(args, i, j), got)
				}
			}
		}
	}
}

// keyed returns a table with a password and a key that needs escapes in JSON.
func keyed(t testing.TB) *redact.Table {
	table := redact.NewTable()
	for name, secret := range map[string]string{"PASSWORD": "hunter2", "KEY": "a\"\nb\\"} {
		table.Learn(name, secret)
		table.Text(secret)
	}
	if got := table.Restore("[REDACTED_PASSWORD_1][REDACTED_KEY_1]"); got != "hunter2a\"\nb\\" {
		t.Fatal(got)
	}
	return table
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

// TestTrap15 checks that the input of a custom tool is free text: what looks like an escape is none, and a restored text
// gets none.
func TestTrap15(t *testing.T) {
	table := keyed(t)
	patch := []string{"+key = [REDACTED_", "KEY_1]\n+\\u005bREDACTED_KEY_1] \\", "n[REDACTED_PASSWORD_1]"}
	for _, d := range []Dialect{OpenAIResponses, OpenAIChat} {
		out, _ := streamInPieces(t, endpointOf(d), streams[d](answer{[]string{"x"}, []string{"{}"}, patch}), 1<<20, tableEditor{table})
		if got, want := readStream(t, d, out).custom, "+key = a\"\nb\\\n+\\u005bREDACTED_KEY_1] \\nhunter2"; got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// TestTrap16 checks that events that repeat a whole text have the same text as its pieces.
func TestTrap16(t *testing.T) {
	args := `{"a":"[REDACTED_PASSWORD_1]","b":"[REDACTED_KEY_1]","c":"\u00e9\/[RED"`
	for _, tail := range []string{"}", "", `,"d":"[REDACTED_PASS`, `,"d":"x\u00`, `,"d":"x\ud83d`, "]", "} trailing \"[REDACTED_PASSWORD_1]\"", ` "[REDACTED_PASSWORD_1]"`} {
		in := responsesStream(answer{cutTwice(sampleText, 5, 9), cutTwice(args+tail, 9, 30), cutTwice(sampleCustom, 3, 40)})
		out, _ := streamInPieces(t, endpointOf(OpenAIResponses), in, len(in), tableEditor{keyed(t)})
		got := readStream(t, OpenAIResponses, out)
		for group, copies := range got.snapshots {
			want := map[string]string{"text": got.text, "args": got.args, "custom": got.custom}[group]
			if len(copies) < 3 || slices.ContainsFunc(copies, func(s string) bool { return s != want }) {
				t.Errorf("%q: %s is %q, copies %q", tail, group, want, copies)
			}
		}
		if !strings.Contains(got.args, "hunter2") {
			t.Error(got.args)
		}
	}
}

// TestTrap17 checks that counts and offsets stay, and that cited texts stay with their offsets.
func TestTrap17(t *testing.T) {
	in := `{"content":[{"type":"text","text":"x","citations":[{"type":"char_location","cited_text":"` + token + `","start_char_index":3,"end_char_index":25}]}],"stop_sequence":"` + token + `","usage":{"input_tokens":1,"output_tokens":2}}`
	if out, _, err := Restore(endpointOf(Anthropic), []byte(in), show); err != nil || string(out) != in {
		t.Errorf("%v %s", err, out)
	}
	delta := sseEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"cited_text":"` + token + `","start_char_index":3}}}`)
	if out, _ := streamInPieces(t, endpointOf(Anthropic), delta, 10, shower{}); out != delta {
		t.Error(out)
	}
}

// TestTrap18 checks errors inside a stream, comments, carriage returns, data in several lines and the end mark.
func TestTrap18(t *testing.T) {
	delta := `{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"[REDACTED_P"}`
	for _, end := range []string{`{"type":"error","code":"server_error","message":"x"}`, `{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error"},"output":[]}}`} {
		for _, eol := range []string{"\n", "\r\n", "\r"} {
			in := strings.ReplaceAll(": hi\n\nevent: response.output_text.delta\ndata:"+strings.Replace(delta, `,"delta"`, ",\ndata: \"delta\"", 1)+"\n\ndata: "+end+"\n\ndata: [DONE]\n\n", "\n", eol)
			out, u := streamInPieces(t, endpointOf(OpenAIResponses), in, len(in), shower{})
			lost := strings.Index(out, `"[REDACTED_P"`)
			if u.Error != "server_error" || lost < 0 || strings.Index(out, end) < lost || !strings.HasSuffix(out, eol+eol+"data: [DONE]"+eol+eol) {
				t.Errorf("%+v %q", u, out)
			}
			for size := range len(in) {
				if again, _ := streamInPieces(t, endpointOf(OpenAIResponses), in, size+1, shower{}); again != out {
					t.Fatalf("pieces of %d give\n%q, want\n%q", size+1, again, out)
				}
			}
		}
	}
}

// TestTrap21 checks that an editor knows the tool and the field of each string, so that it can restore an old_string
// and leave a command, in streams and in whole replies.
func TestTrap21(t *testing.T) {
	editor := shower{skip: func(w Where) bool { return w.Kind == ToolInput && (w.Tool != "Edit" || w.Field != "/old_string") }}
	args := `{"old_string":"` + token + `","command":"` + token + `","edits":[{"old_string":"` + token + `"}]}`
	want := strings.Replace(args, token, "hunter2", 1)
	for d, stream := range streams {
		in := stream(answer{[]string{"x"}, cutTwice(args, 20, 40), []string{token}})
		out, _ := streamInPieces(t, endpointOf(d), in, len(in), editor)
		got := readStream(t, d, out)
		if !sameJSON(got.args, want) || strings.Contains(got.custom, "hunter2") {
			t.Errorf("%s: %s %s", d, got.args, got.custom)
		}
		for _, c := range got.snapshots["args"] {
			if c != want {
				t.Errorf("%s: %s", d, c)
			}
		}
	}
	reply := `{"content":[{"type":"tool_use","name":"Edit","input":` + args + `},{"type":"tool_use","name":"Bash","input":` + args + `}]}`
	out, _, err := Restore(endpointOf(Anthropic), []byte(reply), editor.Text)
	if err != nil || string(out) != strings.Replace(reply, token, "hunter2", 1) {
		t.Errorf("%v %s", err, out)
	}
}

// TestTrap25 checks that nothing of a body that cannot be edited is returned, and that an error of the writer ends the
// stream.
func TestTrap25(t *testing.T) {
	if out, _, err := Restore(endpointOf(Anthropic), []byte(`{"a":1,"a":2}`), show); out != nil || err == nil {
		t.Errorf("%q %v", out, err)
	}
	in := `{"system":"hunter2","messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"?"}}]}]}`
	if out, _, err := Edit(endpointOf(Anthropic), []byte(in), hide); out != nil || err == nil {
		t.Errorf("%q %v", out, err)
	}
	s := NewStream(endpointOf(Anthropic), io.Discard, brokenEditor{})
	if _, err := io.WriteString(s, sseEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`)); !errors.Is(err, io.ErrShortBuffer) {
		t.Error(err)
	}
	start := `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"%s","input":{}}}`
	s = NewStream(endpointOf(Anthropic), io.Discard, shower{})
	if _, err := io.WriteString(s, sseEvent(fmt.Sprintf(start, "Edit"))+sseEvent(fmt.Sprintf(start, "Bash"))); !errors.Is(err, ErrUnreadable) {
		t.Error(err)
	}
	args := sseEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":\"b\"}"}}`)
	s = NewStream(endpointOf(Anthropic), io.Discard, brokenEditor{})
	if _, err := io.WriteString(s, args); !errors.Is(err, io.ErrShortBuffer) {
		t.Error(err)
	}
}

// brokenEditor has writers that fail.
type brokenEditor struct{ tokenless }

func (brokenEditor) Writer(Where, io.Writer) io.WriteCloser { return brokenCloser{} }

type brokenCloser struct{ brokenWriter }

func (brokenCloser) Close() error { return io.ErrShortBuffer }

// TestFlushBefore checks that a text that is held back is written before the event of Chat Completions that ends it: a
// call, a finish reason, an error or the end mark.
func TestFlushBefore(t *testing.T) {
	chunk := func(delta, finish string) string {
		return `data: {"id":"c","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
	}
	for _, end := range []string{"data: [DONE]\n\n", chunk("{}", `"stop"`), "data: {\"error\":{\"code\":\"overloaded\"}}\n\n",
		chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":""}}]}`, "null")} {
		in := chunk(`{"content":"a [REDACTED_"}`, "null") + end
		out, _ := streamInPieces(t, endpointOf(OpenAIChat), in, len(in), shower{})
		want := chunk(`{"content":"a "}`, "null") + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"[REDACTED_"},"finish_reason":null}]}` + "\n\n" + end
		if out != want {
			t.Errorf("got  %s\nwant %s", out, want)
		}
	}
}

// TestFlushBeforeCall checks the same for Gemini, where a text ends before a part that is no text.
func TestFlushBeforeCall(t *testing.T) {
	chunk := func(parts, more string) string {
		return `data: {"candidates":[{"content":{"parts":[` + parts + `],"role":"model"}` + more + "}],\"modelVersion\":\"g\"}\n\n"
	}
	call := `{"functionCall":{"name":"f","args":{}}}`
	own := `data: {"modelVersion":"g","candidates":[{"content":{"parts":[{"text":"[REDACTED_"}],"role":"model"}}]}` + "\n\n"
	held := chunk(`{"text":"a [REDACTED_"}`, "")
	for in, want := range map[string]string{
		held + chunk(call, ""):                                          chunk(`{"text":"a "}`, "") + own + chunk(call, ""),
		held + chunk("", `,"finishReason":"STOP"`):                      chunk(`{"text":"a "}`, "") + own + chunk("", `,"finishReason":"STOP"`),
		held + chunk(`{"text":"HOST_1]"},`+call+`,{"text":"[RED"}`, ""): chunk(`{"text":"a "}`, "") + chunk(`{"text":"db-7.corp"},`+call+`,{"text":""}`, "") + strings.Replace(own, "[REDACTED_", "[RED", 1),
		chunk(`{"text":"[RED"},`+call, ""):                              chunk(`{"text":"[RED"},`+call, ""),
		chunk(`{"text":"[RED"}`, `,"finishReason":"STOP"`):              chunk(`{"text":"[RED"}`, `,"finishReason":"STOP"`),
	} {
		if out, _ := streamInPieces(t, endpointOf(Gemini), in, len(in), shower{}); out != want {
			t.Errorf("got  %s\nwant %s", out, want)
		}
	}
}
