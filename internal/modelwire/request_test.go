package modelwire

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// kept marks a string in a request of testdata that must stay, and encoded a text that stands there in base64.
var (
	kept    = regexp.MustCompile(`KEEP-[^"]*`)
	encoded = regexp.MustCompile(`BASE64\(([^)]*)\)`)
)

// expand returns the request of a file, and the request that editing must give: "hunter2" is replaced wherever it is not
// marked to stay.
func expand(file string) (in, want string) {
	encode := func(s string) string {
		return encoded.ReplaceAllStringFunc(s, func(m string) string {
			return base64.StdEncoding.EncodeToString([]byte(encoded.FindStringSubmatch(m)[1]))
		})
	}
	var b strings.Builder
	rest := file
	for _, span := range kept.FindAllStringIndex(file, -1) {
		at := span[0] - (len(file) - len(rest))
		b.WriteString(hidden.Replace(rest[:at]))
		b.WriteString(file[span[0]:span[1]])
		rest = file[span[1]:]
	}
	b.WriteString(hidden.Replace(rest))
	return encode(file), encode(b.String())
}

// TestRequests edits requests of every endpoint. Each file begins with a line that has the method and the path.
func TestRequests(t *testing.T) {
	files, err := filepath.Glob("testdata/requests/*.json")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			head, body, _ := strings.Cut(string(text), "\n")
			method, path, _ := strings.Cut(strings.TrimPrefix(head, "// "), " ")
			in, want := expand(body)
			e := recognised(t, method, path)
			same, _, err := Edit(e, []byte(in), func(_ Where, s string) string { return s })
			if err != nil || string(same) != in {
				t.Fatalf("%v: without edits, it became %s", err, same)
			}
			got, sum, err := Edit(e, []byte(in), hide)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("%+v\n%s", sum, firstDifference(string(got), want))
			}
			if sum.Edited == 0 || sum.Texts < sum.Edited || !json.Valid(got) {
				t.Errorf("%+v", sum)
			}
		})
	}
}

// firstDifference shows where two texts differ.
func firstDifference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	from := max(0, i-80)
	return fmt.Sprintf("got  …%.200s\nwant …%.200s", got[from:], want[from:])
}

// TestSummaries checks the summaries of requests.
func TestSummaries(t *testing.T) {
	for _, c := range []struct {
		path, in string
		want     Summary
	}{
		{"/v1/messages", `{"model":"m","stream":true,"max_tokens":7,"metadata":{"user_id":"{\"device_id\":\"d\",\"session_id\":\"s1\"}"},
			"tools":[{"name":"Bash"},{"type":"web_search_20250305","name":"web_search"}],
			"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":[{"type":"text","text":"three"},{"type":"text","text":"four hunter2"}]},{"role":"system","content":"note"}]}`,
			Summary{Model: "m", Stream: true, Tools: []string{"Bash", "web_search"}, Messages: 4, LastPrompt: "three\nfour [REDACTED_PASSWORD_1]", Session: "s1", MaxTokens: 7, Texts: 5, Edited: 1}},
		{"/v1/messages", `{"model":"m","metadata":{"user_id":"user_0_account_1_session_abc"},"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"out"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}]}`,
			Summary{Model: "m", Messages: 1, Session: "abc", Opaque: []string{"image/png"}, Texts: 1}},
		{"/v1/responses", `{"model":"m","prompt_cache_key":"k","previous_response_id":"r","input":"hi","tools":[{"type":"function","name":"shell"},{"type":"web_search"}],"max_output_tokens":9}`,
			Summary{Model: "m", Tools: []string{"shell", "web_search"}, Messages: 1, LastPrompt: "hi", Session: "k", Previous: "r", MaxTokens: 9, Texts: 1}},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"tool","tool_call_id":"c","content":"out"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g"}}]}`,
			Summary{Model: "m", Tools: []string{"f", "g"}, Messages: 2, Texts: 2}},
		{"/v1beta/models/gemini-x:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"hi"}]}],"tools":[{"functionDeclarations":[{"name":"f"}]},{"googleSearch":{}}],"generationConfig":{"maxOutputTokens":5},"cachedContent":"c"}`,
			Summary{Model: "gemini-x", Stream: true, Tools: []string{"f"}, Messages: 1, LastPrompt: "hi", Previous: "c", MaxTokens: 5, Texts: 1}},
	} {
		if c.want.LastPrompt != "" {
			c.want.PromptParts = strings.Split(c.want.LastPrompt, "\n")
		}
		_, got, err := Edit(recognised(t, "POST", c.path), []byte(c.in), hide)
		if got.TextBytes < int64(len(c.want.LastPrompt)/2) || got.TextBytes == 0 {
			t.Errorf("%s: %d bytes of text", c.path, got.TextBytes)
		}
		got.TextBytes = 0
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", c.path, err, got, c.want)
		}
	}
}

// TestPlaces checks which place each text is said to have.
func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		path, in string
		want     []string
	}{
		{"/v1/messages", `{"system":"s","messages":[{"role":"user","content":"u"},
			{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"Edit","input":{"edits":[{"old/x":"i"}],"n":1234567}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"r"}]},
			{"type":"document","title":"d","source":{"type":"base64","media_type":"text/plain","data":"ZA=="}},
			{"type":"image","source":{"type":"url","url":"https://l/"}}]}],
			"tools":[{"name":"T","description":"td","input_schema":{"properties":{"description":{"description":"sd"}}}}],"new":"o"}`,
			[]string{"system s", "user u", "assistant a", "tool-input Edit key edits", "tool-input Edit /edits/0 key old/x", "tool-input Edit /edits/0/old~1x i",
				"tool-input Edit key n", "tool-input Edit /n 1234567", "tool-result Edit r", "document d", "document d", "link https://l/",
				"tool-description T td", "tool-description T sd", "other o"}},
		{"/v1/chat/completions", `{"messages":[{"role":"developer","content":"s"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":[\"i\"]}"}},{"id":"d","type":"custom","custom":{"name":"g","input":"free"}}]},{"role":"tool","tool_call_id":"c","content":"r"}]}`,
			[]string{"system s", "tool-input f key a", "tool-input f /a/0 i", "tool-input g free", "tool-result f r"}},
		{"/v1/responses", `{"instructions":"s","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"u"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"not json"},
			{"type":"function_call_output","call_id":"c","output":"r"},{"type":"local_shell_call","call_id":"l","action":{"command":["ls"]}},{"type":"local_shell_call_output","call_id":"l","output":"x"}]}`,
			[]string{"system s", "user u", "tool-input f not json", "tool-result f r", "tool-input local_shell_call key command", "tool-input local_shell_call /command/0 ls", "tool-result x"}},
		{"/v1beta/models/g:generateContent", `{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"a":"i"}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"r"}}}]}]}`,
			[]string{"system s", "tool-input f key a", "tool-input f /a i", "tool-result f key output", "tool-result f /output r"}},
	} {
		var got []string
		_, _, err := Edit(recognised(t, "POST", c.path), []byte(c.in), func(w Where, s string) string {
			place := []string{w.Kind.String(), w.Tool, w.Field, map[bool]string{true: "key"}[w.Key], s}
			got = append(got, strings.Join(slices.DeleteFunc(place, func(s string) bool { return s == "" }), " "))
			return s
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %q\nwant %q", c.path, err, got, c.want)
		}
	}
}

// TestUnreadable checks that a body that two programs could read differently, or whose texts cannot be read, is refused.
func TestUnreadable(t *testing.T) {
	messages, embeddings := recognised(t, "POST", "/v1/messages"), recognised(t, "POST", "/v1/embeddings")
	for _, c := range []struct {
		e     Endpoint
		in    string
		cause error
	}{
		{messages, `{"a":1,"a":2}`, ErrUnreadable},
		{messages, `{"a":1,"\u0061":2}`, ErrUnreadable},
		{messages, "{\"a\":\"\xff\"}", ErrUnreadable},
		{messages, `{"a":1} {}`, ErrUnreadable},
		{messages, `{"a":"` + "\n" + `"}`, ErrUnreadable},
		{messages, `{"a":01}`, ErrUnreadable},
		{messages, `[]`, ErrUnreadable},
		{messages, `{"a":`, ErrUnreadable},
		{messages, "\x28\xb5\x2f\xfd", ErrUnreadable},
		{messages, "\xef\xbb\xbf{}", ErrUnreadable},
		{messages, strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1), ErrUnreadable},
		{messages, strings.Repeat("[", 1<<20), ErrUnreadable},
		{messages, strings.Repeat(" ", MaxBody) + "{}", ErrTooLarge},
		{messages, `{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"???"}}]}]}`, ErrUnreadable},
		{messages, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:text/plain;base64,???"}]}]}`, ErrUnreadable},
		{embeddings, `{"input":[[1,2]]}`, ErrUnreadable},
		{embeddings, `{"input":[1,2]}`, ErrUnreadable},
		{recognised(t, "POST", "/v1/files"), `{"x":1}`, ErrUnreadable},
	} {
		cache := NewCache(1 << 20)
		for range 2 { // the cache must not remember a text that was refused
			out, _, err := cache.Edit(c.e, 0, []byte(c.in), hide)
			if out != nil || !errors.Is(err, c.cause) || bailey.KindOf(err) != bailey.Invalid || bailey.HintOf(err) == "" {
				t.Errorf("%.60q: %q, %v", c.in, out, err)
			}
		}
	}
	for _, in := range []string{"", " \n"} {
		if out, _, err := Edit(messages, []byte(in), hide); err != nil || string(out) != in {
			t.Errorf("%q: %q, %v", in, out, err)
		}
	}
}

// TestOddShapes checks that a text at a place that the format does not have is edited all the same.
func TestOddShapes(t *testing.T) {
	for path, bodies := range map[string][]string{
		"/v1/messages": {`{"messages":"hunter2"}`, `{"messages":{"role":"user","content":"hunter2"}}`, `{"system":{"a":["hunter2"]}}`, `{"tools":"hunter2"}`, `{"tools":["hunter2"]}`,
			`{"tools":{"description":"hunter2"}}`, `{"messages":["hunter2",["hunter2"]]}`, `{"messages":[{"role":"user","content":[{"type":"new","x":{"y":"hunter2"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"document","source":"hunter2"}]}]}`, `{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":["hunter2"]}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"thinking","text":"hunter2"},{"thought":true,"text":"hunter2"}]}]}`, `{"Messages":[{"content":"hunter2"}]}`, `{"messages":[{"role":"user","content":[{"type":"tool_use","input":"hunter2"}]}]}`},
		"/v1/chat/completions": {`{"messages":[{"role":"assistant","tool_calls":"hunter2"}]}`, `{"messages":[{"role":"assistant","tool_calls":[{"function":"hunter2"}]}]}`, `{"messages":[{"role":"assistant","function_call":{"name":"f","arguments":{"a":"hunter2"}}}]}`,
			`{"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"hunter2!"}}]}]}`, `{"functions":[{"name":"f","description":"hunter2"}]}`},
		"/v1/responses":                    {`{"input":{"role":"user","content":"hunter2"}}`, `{"prompt":"hunter2"}`, `{"prompt":{"id":"p","variables":{"a":"hunter2"}}}`, `{"input":[{"type":"mcp_approval_request","name":"f","arguments":"{\"a\":\"hunter2\"}"}]}`},
		"/v1/messages/batches":             {`{"requests":"hunter2"}`, `{"requests":["hunter2"]}`, `{"requests":[{"params":"hunter2"}]}`, `{"requests":[{"params":{"messages":[{"content":"hunter2"}]}}]}`},
		"/v1beta/models/g:generateContent": {`{"contents":"hunter2"}`, `{"contents":{"parts":"hunter2"}}`, `{"contents":[{"parts":{"functionResponse":"hunter2"}}]}`, `{"generationConfig":{"stopSequences":["hunter2"]}}`, `{"contents":[{"parts":[{"inlineData":{"mimeType":"text/x","data":7},"text":"hunter2"}]}]}`},
		"/v1beta/models/g:countTokens":     {`{"generateContentRequest":"hunter2"}`, `{"generateContentRequest":{"contents":[{"parts":[{"text":"hunter2"}]}]}}`},
	} {
		for _, in := range bodies {
			out, _, err := Edit(recognised(t, "POST", path), []byte(in), hide)
			if want := strings.ReplaceAll(in, "hunter2", "[REDACTED_PASSWORD_1]"); err != nil || string(out) != want {
				t.Errorf("%s\n got %s %v\nwant %s", path, out, err, want)
			}
		}
	}
}

// TestSpelling checks strings that JSON can spell in several ways: those that change are written with few escapes, and
// halves of surrogate pairs survive.
func TestSpelling(t *testing.T) {
	for in, want := range map[string]string{
		`\u0068unter2`:                    `[REDACTED_PASSWORD_1]`,
		`\u00e9\/\b\f\n\r\t\"\\ hunter2`:  `é/\u0008\u000c\n\r\t\"\\ [REDACTED_PASSWORD_1]`,
		`\ud83d\ude00 \ud83d hunter2\ude`: "",
		`\ud83d hunter2 \ude00`:           `\ud83d [REDACTED_PASSWORD_1] \ude00`,
		`\ud83d\ude00hunter2`:             `😀[REDACTED_PASSWORD_1]`,
		`\ud83d\u0041hunter2`:             `\ud83dA[REDACTED_PASSWORD_1]`,
		`\u2028` + "\u2028\x7f hunter2":   "\u2028\u2028\x7f [REDACTED_PASSWORD_1]",
		`\u00e9\ud83d\/ nothing`:          `\u00e9\ud83d\/ nothing`,
	} {
		out, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(`{"system":"`+in+`"}`), hide)
		if want == "" {
			if err == nil {
				t.Errorf("%s is not refused", in)
			}
			continue
		}
		if err != nil || string(out) != `{"system":"`+want+`"}` {
			t.Errorf("%s became %s, want %s, %v", in, out, want, err)
		}
	}
}

// TestKeys checks that secrets in keys of a tool's input are hidden, that two keys stay different, and that long numbers
// become texts.
func TestKeys(t *testing.T) {
	in := `{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{"hunter2":1,"[REDACTED_PASSWORD_1]":2,"n":{"hunter2":[123456789]}}}]}]}`
	out, _, err := Edit(recognised(t, "POST", "/v1/messages"), []byte(in), func(w Where, s string) string {
		return strings.ReplaceAll(hide(w, s), "123456789", "[REDACTED_N_1]")
	})
	want := `{"[REDACTED_PASSWORD_1]_":1,"[REDACTED_PASSWORD_1]":2,"n":{"[REDACTED_PASSWORD_1]":["[REDACTED_N_1]"]}}`
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v %s", err, out)
	}
}

// TestCache checks that the cache gives the same result as no cache, that it asks for a text once in a generation, that
// it counts texts whose form has changed, and that it has a limit.
func TestCache(t *testing.T) {
	e := recognised(t, "POST", "/v1/messages")
	cache := NewCache(1 << 20)
	body := []byte(`{"system":"hunter2 a","messages":[{"role":"user","content":"hunter2 a"},{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{"a":"hunter2 a"}}]}]}`)
	asked := 0
	text := func(w Where, s string) string { asked++; return hide(w, s) }
	want, _, _ := Edit(e, body, hide)
	edit := func(generation int, text TextFunc) (string, Summary) {
		t.Helper()
		got, sum, err := cache.Edit(e, generation, body, text)
		if err != nil {
			t.Fatal(err)
		}
		return string(got), sum
	}
	first, _ := edit(1, text)
	n := asked
	second, sum := edit(1, text)
	if first != string(want) || second != first || n != 4 || asked != n+1 || sum.Changed != 0 || sum.Texts != 4 || sum.Edited != 3 {
		t.Errorf("asked %d, then %d; %+v\n%s\n%s", n, asked, sum, first, second) // a key is not kept
	}
	if _, sum := edit(2, text); asked != 2*n+1 || sum.Changed != 0 {
		t.Errorf("asked %d, %+v", asked, sum)
	}
	late := func(w Where, s string) string { return strings.ReplaceAll(hide(w, s), " a", " [REDACTED_A_1]") }
	third, sum := edit(3, late)
	if fourth, again := edit(3, late); sum.Changed != 3 || again.Changed != 0 || fourth != third || third == second {
		t.Errorf("%+v %+v %s", sum, again, third)
	}
	for i := range 2000 {
		cache.Edit(e, 3, fmt.Appendf(nil, `{"system":"%d %s"}`, i, strings.Repeat("x", 1000)), late)
	}
	total := 0
	for _, texts := range []map[Where]map[string]cachedText{cache.young, cache.old} {
		for _, m := range texts {
			for raw, c := range m {
				total += len(raw) + len(c.edited)
			}
		}
	}
	if total > 1<<20+4096 || total < 1<<18 {
		t.Errorf("%d bytes are kept", total)
	}
}

// TestEditWithin checks that no text is edited after the context has ended, and that the cause is returned.
func TestEditWithin(t *testing.T) {
	gone := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	edited := 0
	_, _, err := NewCache(1<<20).EditWithin(ctx, recognised(t, "POST", "/v1/messages"), 0,
		[]byte(`{"messages":[{"role":"user","content":["one","two","three"]}]}`), func(_ Where, s string) string {
			edited++
			cancel(gone)
			return s
		})
	if !errors.Is(err, gone) || edited != 1 {
		t.Errorf("%d texts were edited, %v", edited, err)
	}
}
