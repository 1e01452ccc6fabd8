package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// someReceipts returns one receipt for each status, with hostile values in the fields that callers choose.
func someReceipts() (list []receipts.Record) {
	at := time.Date(2026, 11, 3, 9, 0, 0, 5_000_000, time.UTC)
	for i, status := range receipts.Statuses() {
		seq := uint64(2 + 2*i)
		r := receipts.Record{Hash: audit.Hash{byte(seq)}}
		r.Seq, r.Intent = seq, bailey.Intent{Receipt: bailey.ReceiptID(fmt.Sprint("r-", i)), Capability: "=cmd|' /C calc'!A0", Agent: "local", Person: "@me",
			Host: "castle", Session: "s-1", Door: "mcp", Client: "+1\r\n\"quoted\"", Input: json.RawMessage(`{"repo":"<.>"}`), StartedAt: at}
		if status != receipts.Open {
			r.OutcomeSeq, r.OutcomeHash = seq+1, audit.Hash{byte(seq + 1)}
			r.Outcome = &bailey.Outcome{Receipt: r.Intent.Receipt, Status: status, Decision: "deny", Reason: "-no\nreally", Executed: new(false),
				Rules: []bailey.Rule{{ID: "=rule", Source: "x.cedar:1"}}, EndedAt: at.Add(1500 * time.Millisecond)}
		}
		list = append(list, r)
	}
	return list
}

func exportedAs(t *testing.T, format string) []byte {
	t.Helper()
	form, ok := exportFormats()[format]
	if !ok {
		t.Fatalf("no format %s", format)
	}
	var b bytes.Buffer
	err := form.begin(&b, "00ff", 99)
	for i, r := range someReceipts() {
		if err == nil {
			err = form.record(&b, i == 0, newExported(r, "00ff", 99))
		}
	}
	if err == nil {
		err = form.end(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestExportJSON checks that each JSON format preserves the receipts and their positions in the ledger.
func TestExportJSON(t *testing.T) {
	var whole struct {
		Origin   string
		Size     uint64
		Receipts []exportRecord
	}
	if err := json.Unmarshal(exportedAs(t, "json"), &whole); err != nil || whole.Origin != "00ff" || whole.Size != 99 {
		t.Fatalf("%+v %v", whole, err)
	}
	var lines []exportRecord
	for dec := json.NewDecoder(bytes.NewReader(exportedAs(t, "jsonl"))); ; {
		var r exportRecord
		err := dec.Decode(&r)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, r)
	}
	for name, list := range map[string][]exportRecord{"json": whole.Receipts, "jsonl": lines} {
		if len(list) != len(receipts.Statuses()) {
			t.Fatalf("%s: %d receipts", name, len(list))
		}
		for i, r := range list {
			want := someReceipts()[i]
			if r.Seq != want.Seq || r.Hash != want.Hash || r.Size != 99 || r.Origin != "00ff" || r.Status != want.Status() || r.Intent.Client != want.Intent.Client {
				t.Errorf("%s: %+v", name, r)
			}
			switch open := r.Status == receipts.Open; {
			case open && (r.Outcome != nil || r.OutcomeSeq != nil || r.OutcomeHash != nil):
				t.Errorf("%s: an open receipt has an end: %+v", name, r)
			case !open && (*r.OutcomeSeq != want.OutcomeSeq || *r.OutcomeHash != want.OutcomeHash || r.Outcome.Reason != want.Outcome.Reason):
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	if n := bytes.Count(exportedAs(t, "jsonl"), []byte("\n")); n != len(receipts.Statuses()) {
		t.Errorf("%d lines", n)
	}
}

// TestExportCSV checks that the output conforms to RFC 4180, with one line for each receipt. No cell may be a formula
// for a spreadsheet, and no data may be lost, except for marks and escapes.
func TestExportCSV(t *testing.T) {
	data := exportedAs(t, "csv")
	r := csv.NewReader(bytes.NewReader(data))
	rows, err := r.ReadAll()
	if err != nil || len(rows) != 1+len(receipts.Statuses()) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	column := func(row []string, name string) string { return row[slices.Index(rows[0], name)] }
	for i, row := range rows[1:] {
		for _, cell := range row {
			if cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
				t.Errorf("a spreadsheet may run %q", cell)
			}
		}
		want := someReceipts()[i]
		if column(row, "capability") != "'=cmd|' /C calc'!A0" || column(row, "person") != "'@me" || column(row, "status") != string(want.Status()) ||
			column(row, "seq") != fmt.Sprint(want.Seq) || column(row, "hash") != want.Hash.String() || column(row, "size") != "99" || column(row, "started_at") != "2026-11-03T09:00:00.005Z" {
			t.Errorf("%q", row)
		}
		open := want.Status() == receipts.Open
		if (column(row, "outcome_seq") == "") != open || (column(row, "ended_at") == "") != open || !open && column(row, "rules") != `[{"id":"=rule","source":"x.cedar:1"}]` {
			t.Errorf("%q", row)
		}
	}
	if !bytes.Contains(data, []byte(`"'+1\r\n""quoted"""`)) {
		t.Errorf("a cell with quotes and a new line is not as it was: %q", data)
	}
	if lines := bytes.Count(data, []byte("\r\n")); lines != len(rows) || bytes.Count(data, []byte("\n")) != lines {
		t.Errorf("%d rows in %d lines: %q", len(rows), lines, data)
	}
}

func TestDefused(t *testing.T) {
	for cell, want := range map[string]string{"": "", "a=1": "a=1", "=1": "'=1", "+1": "'+1", "-1": "'-1", "@x": "'@x", "\tx": "'\tx", "\rx": "'\rx", "\n=1": "'\n=1", "＝1": "'＝1", "'=1": "'=1", "7": "7", "a;=1": "a;'=1", "a;b": "a;b", ";;@x": ";;'@x"} {
		if got := escapeFormula(cell); got != want {
			t.Errorf("%q: %q", cell, got)
		}
	}
}

// ocsfSchema contains what OCSF 1.6.0 requires of API Activity events and their objects: attributes, their types, and
// groups of which one attribute must be present. Source: the schema definitions of events/base_event,
// events/application/api_activity and the objects.
var ocsfSchema = map[string]struct {
	required, integers, texts []string
	oneOf                     []string
	objects                   map[string]string
}{
	"api_activity": {
		required: []string{"activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid", "actor", "api", "src_endpoint"},
		integers: []string{"activity_id", "category_uid", "class_uid", "type_uid", "severity_id", "status_id", "time", "start_time", "end_time", "duration"},
		texts:    []string{"activity_name", "category_name", "class_name", "type_name", "status", "status_detail", "message"},
		objects:  map[string]string{"metadata": "metadata", "actor": "actor", "api": "api", "src_endpoint": "network_endpoint", "unmapped": "object"},
	},
	"metadata": {required: []string{"product", "version"}, integers: []string{"sequence"}, texts: []string{"version", "uid", "log_name", "original_time"}, objects: map[string]string{"product": "product"}},
	"product":  {oneOf: []string{"name", "uid"}, texts: []string{"name", "vendor_name", "version"}},
	"actor": {oneOf: []string{"process", "user", "invoked_by", "session", "app_name", "app_uid"}, texts: []string{"app_name"},
		objects: map[string]string{"user": "user", "session": "session"}},
	"user":             {oneOf: []string{"account", "name", "uid"}, texts: []string{"name"}},
	"session":          {texts: []string{"uid"}},
	"api":              {required: []string{"operation"}, texts: []string{"operation"}, objects: map[string]string{"request": "request", "response": "response"}},
	"request":          {required: []string{"uid"}, texts: []string{"uid"}, objects: map[string]string{"data": "object"}},
	"response":         {integers: []string{"code"}, texts: []string{"error", "message"}},
	"network_endpoint": {oneOf: []string{"ip", "uid", "name", "hostname", "svc_name", "instance_uid", "interface_uid", "interface_name", "domain"}, texts: []string{"name", "hostname"}},
}

// checkOCSF returns the violations of the schema, for example an attribute that the schema above does not contain.
func checkOCSF(kind, path string, v any) (wrong []string) {
	object, ok := v.(map[string]any)
	if !ok {
		return []string{path + " is no object"}
	}
	if kind == "object" {
		return nil
	}
	schema := ocsfSchema[kind]
	for _, name := range schema.required {
		if object[name] == nil {
			wrong = append(wrong, path+"."+name+" is missing")
		}
	}
	if len(schema.oneOf) > 0 && !slices.ContainsFunc(schema.oneOf, func(n string) bool { return object[n] != nil }) {
		wrong = append(wrong, path+" has none of "+strings.Join(schema.oneOf, ", "))
	}
	for name, value := range object {
		_, text := value.(string)
		number, isNumber := value.(json.Number)
		switch inner := schema.objects[name]; {
		case inner != "":
			wrong = append(wrong, checkOCSF(inner, path+"."+name, value)...)
		case slices.Contains(schema.integers, name) && isNumber && !strings.ContainsAny(number.String(), ".e"):
		case slices.Contains(schema.texts, name) && text:
		default:
			wrong = append(wrong, fmt.Sprintf("%s.%s is %v", path, name, value))
		}
	}
	return wrong
}

func TestExportOCSF(t *testing.T) {
	dec := json.NewDecoder(bytes.NewReader(exportedAs(t, "ocsf")))
	dec.UseNumber()
	for _, want := range someReceipts() {
		var e map[string]any
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range checkOCSF("api_activity", "event", e) {
			t.Errorf("%s: %s", want.Status(), wrong)
		}
		number := func(name string) string { return fmt.Sprint(e[name]) }
		if number("class_uid") != "6003" || number("category_uid") != "6" || number("type_uid") != "600399" || number("activity_id") != "99" || number("time") != "1793696400005" {
			t.Errorf("%v", e)
		}
		status := map[bailey.Status]string{bailey.OK: "1", bailey.Refused: "2", bailey.Failed: "2", bailey.Interrupted: "2", bailey.Killed: "2", bailey.Pending: "99", receipts.Open: "0"}
		if number("status_id") != status[want.Status()] {
			t.Errorf("%s: status_id %s", want.Status(), number("status_id"))
		}
		at := e["unmapped"].(map[string]any)["ledger"].(map[string]any)
		if fmt.Sprintf("%v %v %v %v", at["seq"], at["hash"], at["size"], at["origin"]) != fmt.Sprintf("%v %v %v %v", want.Seq, want.Hash, 99, "00ff") || (at["outcome_hash"] == nil) != (want.Status() == receipts.Open) {
			t.Errorf("%v", at)
		}
	}
	if wrong := checkOCSF("api_activity", "event", map[string]any{"actor": map[string]any{}, "colour": "red", "time": "now"}); len(wrong) < 11 {
		t.Errorf("the check finds nothing: %v", wrong)
	}
}

// TestReport checks that the report contains the data of the receipts, and that no text in them can forge a line.
func TestReport(t *testing.T) {
	r := &sessionReport{Session: "s-1", Counts: map[bailey.Status]int{}, Asked: map[string]int{}, Cages: map[string]int{}}
	for _, record := range someReceipts() {
		r.addRecord(record)
	}
	ran := someReceipts()[0]
	ran.Intent.Agent, ran.Intent.Input = "evil\nSession s-2", json.RawMessage(`{"a":"`+strings.Repeat("x", 4000)+`"}`)
	ran.Outcome.Executed, ran.Outcome.Cage, ran.Outcome.Argv, ran.Outcome.ExitCode = new(true), &bailey.Cage{Kind: "full"}, []string{"git", "\x1b[2Jstatus"}, new(3)
	r.addRecord(ran)
	r.Ledger = reportedLedger{"00ff", 99, audit.Hash{7}}
	var b bytes.Buffer
	r.writePage(&b)
	page := b.String()
	for _, want := range []string{"Session s-1\n", "agent   evil\\nSession s-2, local\n", "Calls     2 ok, 1 denied, 1 failed,", "Ran in    1 full\n", "decided  deny by =rule\n", "why      -no\\nreally\n",
		"ran      in the jail full, exit code 3: git \\x1b[2Jstatus\n", "ran      nothing\n", "ran      unknown\n", "receipt  r-1 (entries 4 and 5)\n", "(entries 14, no outcome yet)\n",
		"bailey audit verify. The ledger 00ff had 99 entries; the hash of the last was\n0700"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.ContainsAny(page, "\x1b\r") || strings.Count(page, "\nSession") != 0 {
		t.Errorf("a text reaches the terminal as it is:\n%q", page)
	}
	if longest := slices.MaxFunc(strings.Split(page, "\n"), func(a, b string) int { return len(a) - len(b) }); len(longest) > 500 {
		t.Errorf("a line of %d bytes", len(longest))
	}
}
