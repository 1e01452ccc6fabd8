package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/redact"
)

// answerLines writes in to jsonLines in pieces of n bytes and returns the answer.
func answerLines(table *redact.Table, in string, n int) (string, *findingCounts, error) {
	var out bytes.Buffer
	l := &jsonLines{table: table, tally: &findingCounts{}, w: &out}
	for in != "" {
		k := min(n, len(in))
		if _, err := l.Write([]byte(in[:k])); err != nil {
			return out.String(), l.tally, err
		}
		in = in[k:]
	}
	err := l.Close()
	return out.String(), l.tally, err
}

func TestJSONLines(t *testing.T) {
	const in = `{"text":"nothing"}` + "\r\n" + `{"id":[1,{"text":"password=x"}],"text":"über password=hunter2hunter","host":"10.1.2.3"}` + "\n" +
		` { "text" : "a<b \u00fc\ud83d\ude00 from 10.1.2.3, \"password\": \"hunter2hunter\"" } ` + "\n" + `{"text":""}`
	const want = `{"text":"nothing","findings":[]}` + "\n" +
		`{"text":"über password=[REDACTED_PASSWORD_1]","findings":[{"category":"PASSWORD","start":15,"end":28}]}` + "\n" +
		`{"text":"a<b ü😀 from [REDACTED_IPV4_1], \"password\": \"[REDACTED_PASSWORD_1]\"","findings":[{"category":"IPV4","start":16,"end":24},{"category":"PASSWORD","start":39,"end":52}]}` + "\n" +
		`{"text":"","findings":[]}` + "\n"
	for _, n := range []int{1, 7, len(in)} {
		got, tally, err := answerLines(NewRedaction().newTable(), in, n)
		if err != nil || got != want {
			t.Errorf("in pieces of %d: %v\n got %s\nwant %s", n, err, got, want)
		}
		r := tally.buildResult()
		if r.Hidden != 3 || len(r.Categories) != 2 || r.Categories[0] != (apitype.Hidden{Category: "PASSWORD", Finds: 2, Distinct: 1, Line: 2}) || r.Categories[1] != (apitype.Hidden{Category: "IPV4", Finds: 1, Distinct: 1, Line: 3}) {
			t.Errorf("%+v", r)
		}
	}
}

// TestBadJSONLines checks that the error gives the number of the bad line and nothing of its content, and that the
// lines before it are answered.
func TestBadJSONLines(t *testing.T) {
	for line, why := range map[string]string{
		"":                                    "not a JSON object",
		"   ":                                 "not a JSON object",
		"x-s3cret":                            "not a JSON object",
		`["x-s3cret"]`:                        "not a JSON object",
		`"x-s3cret"`:                          "not a JSON object",
		`{"text":"x-s3cret"`:                  "not a JSON object",
		`{"text":"x-s3cret",}`:                "not a JSON object",
		`{"text":"x-s3cret" "a":1}`:           "not a JSON object",
		`{x-s3cret}`:                          "not a JSON object",
		`{"text":"x-s3cret"}{"text":""}`:      "more than one",
		`{"text":"x-s3cret"} x`:               "more than one",
		`{"Text":"x-s3cret"}`:                 "no text",
		`{}`:                                  "no text",
		`{"text":7}`:                          "not a string",
		`{"text":null}`:                       "not a string",
		`{"text":["x-s3cret"]}`:               "not a string",
		`{"text":"a","text":"x-s3cret"}`:      "two texts",
		`{"text":"a","te\u0078t":"x-s3cret"}`: "two texts",
		"{\"text\":\"x-s3cret \xff\"}":        "not UTF-8",
		"{\"text\":\"x\",\"\xc3\":1}":         "not UTF-8",
		`{"text":"x-s3cret \ud800"}`:          "surrogate",
		`{"text":"\udc00\ud800"}`:             "surrogate",
		`{"text":"\ud83d\u0041"}`:             "surrogate",
		`{"text":"` + "a\x01" + `"}`:          "not a JSON object",
		`{"text":"x","a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`: "not a JSON object",
	} {
		got, _, err := answerLines(NewRedaction().newTable(), `{"text":"good"}`+"\n"+line+"\n"+`{"text":"after"}`+"\n", 1<<20)
		if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "line 2 ") || !strings.Contains(err.Error(), why) || bailey.HintOf(err) == "" {
			t.Errorf("%.60q: %v, want %q", line, err, why)
		}
		if strings.Contains(err.Error()+bailey.HintOf(err), "s3cret") {
			t.Errorf("the error tells of the line: %v", err)
		}
		if got != `{"text":"good","findings":[]}`+"\n" {
			t.Errorf("%.60q: answered %q", line, got)
		}
	}
}

// TestLongJSONLine checks that a line of maxLine bytes is answered and that a longer one is refused before it is read
// as a whole.
func TestLongJSONLine(t *testing.T) {
	frame := func(n int) string { return `{"text":"` + strings.Repeat(" ", n-len(`{"text":""}`)) + `"}` }
	got, _, err := answerLines(NewRedaction().newTable(), frame(maxLine)+"\n", apitype.MaxPiece)
	if err != nil || len(got) < maxLine {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	l := &jsonLines{table: NewRedaction().newTable(), tally: &findingCounts{}, w: &bytes.Buffer{}}
	for n := 0; err == nil; n += apitype.MaxPiece {
		if n > maxLine {
			t.Fatalf("%d bytes are taken", n)
		}
		_, err = l.Write(bytes.Repeat([]byte("{"), apitype.MaxPiece))
	}
	if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "line 1 is over") {
		t.Error(err)
	}
}

// FuzzJSONLines checks that encoding/json reads an answered line in the same way, that its findings are in order and
// lie within the text, and that the text can be restored from the answer.
func FuzzJSONLines(f *testing.F) {
	for _, s := range []string{`{"text":"password=hunter2hunter ü 10.1.2.3 [REDACTED_X_1]"}`, `{"a":1,"text":"\ud83d\ude00\\ud800"}`, `{"text":"\u0000é=é token=é"}`, `{"text":"\ud800"}`} {
		f.Add(s)
	}
	rules := NewRedaction()
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			return
		}
		table := rules.newTable()
		got, _, err := answerLines(table, line+"\n", 1<<20)
		if err != nil {
			return
		}
		var in struct {
			Text *string `json:"text"`
		}
		members := map[string]json.RawMessage{}
		if json.Unmarshal([]byte(line), &members) != nil || json.Unmarshal(members["text"], &in.Text) != nil || in.Text == nil || !utf8.ValidString(line) {
			t.Fatalf("%q was answered", line)
		}
		var out lineAnswer
		if json.Unmarshal([]byte(got), &out) != nil || out.Findings == nil || table.Restore(out.Text) != *in.Text {
			t.Fatalf("%q: %s", line, got)
		}
		last := 0
		for _, f := range out.Findings {
			if f.Start < last || f.End <= f.Start || f.End > len(*in.Text) {
				t.Fatalf("%q: %v", line, out.Findings)
			}
			last = f.End
		}
	})
}
