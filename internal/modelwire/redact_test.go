package modelwire

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/redact"
)

// plantedRecord is a text with secrets of the corpus of package redact.
type plantedRecord struct {
	Text    string
	Secrets []string
}

// drawRecords returns n records of the corpus by a seed.
func drawRecords(t testing.TB, r *rand.Rand, n int) (drawn []plantedRecord) {
	t.Helper()
	f, err := os.Open("../redact/testdata/corpus/positives.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []plantedRecord
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var rec plantedRecord
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
	if len(all) < n {
		t.Fatalf("%d records, %v", len(all), lines.Err())
	}
	for _, i := range r.Perm(len(all))[:n] {
		drawn = append(drawn, all[i])
	}
	return drawn
}

// field is a place of a request where a text can be planted.
type field struct {
	path, before, after string
	encode              func(string) string
}

func asJSON(s string) string   { return quoted(s) }
func asBase64(s string) string { return `"` + base64.StdEncoding.EncodeToString([]byte(s)) + `"` }
func asNested(s string) string { return quoted(`{"command":["sh",` + quoted(s) + `]}`) }

// fields are the places of texts in all dialects and encodings.
var fields = []field{
	{"/v1/messages", `{"system":`, `}`, asJSON},
	{"/v1/messages", `{"messages":[{"role":"user","content":`, `}]}`, asJSON},
	{"/v1/messages", `{"messages":[{"role":"assistant","content":[{"type":"text","text":`, `}]}]}`, asJSON},
	{"/v1/messages", `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"Bash","input":{"command":`, `}}]}]}`, asJSON},
	{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":`, `}]}]}`, asJSON},
	{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":`, `}]}]}]}`, asJSON},
	{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":`, `}}]}]}`, asBase64},
	{"/v1/messages", `{"messages":[],"tools":[{"name":"x","description":`, `}]}`, asJSON},
	{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"unheard_of","a":{"b":[`, `]}}]}]}`, asJSON},
	{"/v1/messages/batches", `{"requests":[{"custom_id":"a","params":{"messages":[{"role":"user","content":`, `}]}}]}`, asJSON},
	{"/v1/chat/completions", `{"messages":[{"role":"tool","tool_call_id":"a","content":`, `}]}`, asJSON},
	{"/v1/chat/completions", `{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":`, `}}]}]}`, asNested},
	{"/v1/responses", `{"input":[{"type":"function_call_output","call_id":"a","output":`, `}]}`, asJSON},
	{"/v1/responses", `{"input":[{"type":"function_call","call_id":"a","name":"f","arguments":`, `}]}`, asNested},
	{"/v1/responses", `{"input":[{"type":"custom_tool_call","call_id":"a","name":"f","input":`, `}]}`, asJSON},
	{"/v1/embeddings", `{"input":[`, `]}`, asJSON},
	{"/v1beta/models/g:generateContent", `{"contents":[{"parts":[{"text":`, `}]}]}`, asJSON},
	{"/v1beta/models/g:generateContent", `{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{"output":`, `}}}]}]}`, asJSON},
	{"/v1beta/models/g:generateContent", `{"contents":[{"parts":[{"inlineData":{"mimeType":"text/plain","data":`, `}}]}]}`, asBase64},
}

// readable returns all that a model can read in a body: its strings, the JSON inside them, and texts in base64.
func readable(v any, out *strings.Builder) {
	switch v := v.(type) {
	case string:
		out.WriteString(v + "\n")
		var inner any
		if json.Unmarshal([]byte(v), &inner) == nil {
			readable(inner, out)
		}
		if b, err := base64.StdEncoding.DecodeString(v); err == nil {
			out.Write(b)
		}
	case []any:
		for _, e := range v {
			readable(e, out)
		}
	case object:
		for k, e := range v {
			out.WriteString(k + "\n")
			readable(e, out)
		}
	}
}

func readableText(t testing.TB, body []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var out strings.Builder
	readable(v, &out)
	return out.String()
}

// TestPlantedSecrets plants 200 secrets of the corpus, drawn by a printed seed, in all fields and encodings: as many are
// hidden as in the texts alone.
func TestPlantedSecrets(t *testing.T) {
	ktest.Long(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		t.Fatal(err)
	}
	alone, planted := 0, 0
	for i, rec := range drawRecords(t, rand.New(rand.NewPCG(seed, 2)), 200) {
		out, _ := rules.NewTable().Text(rec.Text)
		isHidden := containsNone(out, rec.Secrets)
		if isHidden {
			alone++
		}
		inAll := true
		for _, f := range fields {
			table := rules.NewTable()
			body := []byte(f.before + f.encode(rec.Text) + f.after)
			out, _, err := Edit(recognised(t, "POST", f.path), body, func(_ Where, s string) string { s, _ = table.Text(s); return s })
			if err != nil {
				t.Fatal(err)
			}
			if !containsNone(readableText(t, out), rec.Secrets) {
				if inAll = false; isHidden {
					t.Errorf("record %d in %s: %s", i, f.before, out)
				}
			}
		}
		if inAll {
			planted++
		}
	}
	t.Logf("hidden alone %d, in all fields %d of 200", alone, planted)
	if planted < alone || alone < 170 {
		t.Errorf("%d are hidden in all fields, %d alone", planted, alone)
	}
}

func containsNone(text string, secrets []string) bool {
	for _, s := range secrets {
		if strings.Contains(text, s) {
			return false
		}
	}
	return true
}

// TestKnownSecrets learns 200 secrets, drawn by a printed seed, and plants each in all fields, as it is and encoded.
// None may be readable. A model that copies the tokens into its text and into the inputs of its calls gets its secret
// back, and text that only looks like a token survives.
func TestKnownSecrets(t *testing.T) {
	ktest.Long(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	table := redact.NewTable()
	var secrets []string
	for _, rec := range drawRecords(t, r, 200) {
		secret := strings.TrimSpace(rec.Secrets[0])
		table.Learn("KNOWN", secret)
		secrets = append(secrets, secret)
	}
	editor := func(_ Where, s string) string { s, _ = table.Text(s); return s }
	for i, secret := range secrets {
		text := "literal [REDACTED_KNOWN_1] [REDACTED__X] before " + secret + " b64 " + base64.StdEncoding.EncodeToString([]byte(secret)) +
			" hex " + hex.EncodeToString([]byte(secret)) + " url " + url.QueryEscape(secret) + " end"
		for _, f := range fields {
			body := []byte(f.before + f.encode(text) + f.after)
			out, _, err := Edit(recognised(t, "POST", f.path), body, editor)
			if err != nil {
				t.Fatal(err)
			}
			read := readableText(t, out)
			if len(secret) > 5 && (strings.Contains(read, secret) || strings.Contains(read, hex.EncodeToString([]byte(secret)))) {
				t.Fatalf("secret %d is readable in %s: %s", i, f.before, read)
			}
		}
		if i%4 == 0 {
			checkCopied(t, r, table, text)
		}
	}
}

// checkCopied lets a model copy what it reads of text into an answer, cut at random, and checks that the client gets
// text itself.
func checkCopied(t *testing.T, r *rand.Rand, table *redact.Table, text string) {
	t.Helper()
	reads, _ := table.Text(text)
	args := `{"file_path":"/x","old_string":` + quoted(reads) + `}`
	for d, stream := range streams {
		i, j, k := r.IntN(len(reads)), r.IntN(len(args)), r.IntN(len(reads))
		in := stream(answer{cutText(reads, i, i+r.IntN(30)), cutText(args, j, j+r.IntN(30)), cutText(reads, k, k+r.IntN(30))})
		out, _ := streamInPieces(t, endpointOf(d), in, 1+r.IntN(900), tableEditor{table})
		got := readStream(t, d, out)
		var input struct {
			Old string `json:"old_string"`
		}
		if err := json.Unmarshal([]byte(got.args), &input); err != nil || input.Old != text || got.text != text {
			t.Fatalf("%s: %v\n  text %q\n input %q\nwant   %q", d, err, got.text, input.Old, text)
		}
		if (d == OpenAIChat || d == OpenAIResponses) && got.custom != text {
			t.Fatalf("%s: custom %q, want %q", d, got.custom, text)
		}
	}
}

// TestCachedPrefix runs a long session: in every turn, the bytes of the earlier messages are the same, although the
// session finds new secrets in each.
func TestCachedPrefix(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	records := drawRecords(t, rand.New(rand.NewPCG(seed, 4)), 40)
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table, cache := rules.NewTable(), NewCache(4<<20)
	var history, before bytes.Buffer
	history.WriteString(`{"model":"m","system":"You are an agent.","messages":[`)
	for i, rec := range records {
		if i > 0 {
			history.WriteByte(',')
		}
		fmt.Fprintf(&history, `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%d","content":%s}]}`, i, quoted(rec.Text))
		out, sum, err := cache.Edit(recognised(t, "POST", "/v1/messages"), table.Generation(), append(bytes.Clone(history.Bytes()), "]}"...),
			func(_ Where, s string) string { s, _ = table.Text(s); return s })
		if err != nil || sum.Changed != 0 || !bytes.HasPrefix(out, before.Bytes()) {
			t.Fatalf("turn %d: %v, %+v", i, err, sum)
		}
		before.Reset()
		before.Write(bytes.TrimSuffix(out, []byte("]}")))
	}
}

// TestRestorerAsWriter checks that a Restorer of package redact is a writer as this package wants it.
func TestRestorerAsWriter(t *testing.T) {
	var _ Editor = tableEditor{}
	var _ io.WriteCloser = redact.NewTable().Restorer(io.Discard)
}
