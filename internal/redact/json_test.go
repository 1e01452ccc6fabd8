package redact

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	table := NewTable()
	table.Learn("K", "hunter2hunter2")
	table.Learn("PIN", "90125678")
	in := map[string]any{
		"a": "x hunter2hunter2", "hunter2hunter2": []any{"hunter2hunter2", nil, true, json.Number("1.5"), map[string]any{}},
		"n": json.Number("90125678"), "f": 90125678.0, "g": 2.5, "i": 7, "l": "[REDACTED_K_1]", "s": []string{"hunter2hunter2"}, "z": []any(nil),
	}
	before := fmt.Sprint(in)
	got, n := table.JSON(in)
	want := map[string]any{
		"a": "x [REDACTED_K_1]", "[REDACTED_K_1]": []any{"[REDACTED_K_1]", nil, true, json.Number("1.5"), map[string]any{}},
		"n": "[REDACTED_PIN_1]", "f": "[REDACTED_PIN_1]", "g": 2.5, "i": 7, "l": "[REDACTED__K_1]", "s": []any{"[REDACTED_K_1]"}, "z": []any(nil),
	}
	if !reflect.DeepEqual(got, any(want)) || n != 6 {
		t.Errorf("%d tokens\n got %#v\nwant %#v", n, got, want)
	}
	if fmt.Sprint(in) != before {
		t.Errorf("the input was changed: %v", in)
	}
	got.(map[string]any)["hunter"] = 1
	if len(in) != 9 {
		t.Error("the copy shares the input's map")
	}
}

// TestJSONOther checks that if a value has no JSON form, a token replaces it.
func TestJSONOther(t *testing.T) {
	table := NewTable()
	for _, v := range []any{make(chan int), func() {}, math.NaN(), map[string]any{"x": make(chan int)}["x"]} {
		if got, n := table.JSON(v); got != "[REDACTED_VALUE_X]" || n != 1 {
			t.Errorf("%T gives %v, %d", v, got, n)
		}
	}
}

// TestJSONCollision checks that if a full table gives two keys the same token, they stay two keys.
func TestJSONCollision(t *testing.T) {
	table := NewTable()
	for i := range MaxEntries {
		table.tokenFor("FILL", fmt.Append(nil, i))
	}
	table.Learn("K", "hunter2hunter2")
	table.Learn("K", "swordfish")
	got, n := table.JSON(map[string]any{"hunter2hunter2": 1, "swordfish": 2})
	want := map[string]any{"[REDACTED_K_X]": 1, "[REDACTED_K_X]_": 2}
	if !reflect.DeepEqual(got, any(want)) || n != 2 {
		t.Errorf("%d: %#v", n, got)
	}
}

// TestJSONNames checks that a value is hidden if only its key says that it is a secret.
func TestJSONNames(t *testing.T) {
	table := ruled(t).NewTable()
	in := map[string]any{
		"password": "hunter2x", "apiToken": "aB3dE5fG7hI9jK1l", "user": "hunter2", "key_name": "prod5zyx", "n": []any{map[string]any{"secret": "0123456789abcdef", "note": "from 10.1.2.3"}},
		"passphrase": "[REDACTED_X_1] then 4", "token": "${TOKEN}",
	}
	got, n := table.JSON(in)
	want := map[string]any{
		"password": "[REDACTED_PASSWORD_1]", "apiToken": "[REDACTED_TOKEN_1]", "user": "hunter2", "key_name": "prod5zyx",
		"n":          []any{map[string]any{"secret": "[REDACTED_TOKEN_2]", "note": "from [REDACTED_IPV4_1]"}},
		"passphrase": "[REDACTED__X_1] then 4", "token": "${TOKEN}",
	}
	if !reflect.DeepEqual(got, any(want)) || n != 4 {
		t.Errorf("%d\n got %v\nwant %v", n, got, want)
	}
}

// A person who judges a call sees where it goes, but no secret on the way there.
func TestForPerson(t *testing.T) {
	rules, err := Compile(Config{})
	if err != nil {
		t.Fatal(err)
	}
	table := rules.NewTable()
	in := map[string]any{"to": "10.20.30.40", "more": []any{"2001:db8::17 and ops@example.com", "[REDACTED_IPV4_1]"},
		"url": "postgres://app:hunter2hunter@10.20.30.40/db", "password": "correct-horse-9"}
	if out, _ := table.JSON(in); strings.Contains(fmt.Sprint(out), "10.20.30.40") {
		t.Errorf("a model would see %v", out)
	}
	out := fmt.Sprint(table.ForPerson(in))
	for _, want := range []string{"to:10.20.30.40", "2001:db8::17 and ops@example.com", "[REDACTED__IPV4_1]"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s lacks %s", out, want)
		}
	}
	for _, secret := range []string{"hunter2hunter", "correct-horse-9"} {
		if strings.Contains(out, secret) {
			t.Errorf("%s has %s", out, secret)
		}
	}
}
