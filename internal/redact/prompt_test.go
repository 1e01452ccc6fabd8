package redact

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// TestPromptOfASession checks that a text for a model keeps the tokens of its session, that a secret found once is hidden
// without its context too, and that a literal token of the data comes back as it was.
func TestPromptOfASession(t *testing.T) {
	t.Parallel()
	rules, err := Compile(Config{})
	if err != nil {
		t.Fatal(err)
	}
	table := rules.NewTable()
	before := table.Generation()
	const secret = "kd83hHsk29xlPq0w"
	hidden := table.Prompt("password=" + secret)
	if strings.Contains(hidden, secret) || table.Generation() == before {
		t.Fatalf("%q, generation %d", hidden, table.Generation())
	}
	if again := table.Prompt(hidden); again != hidden {
		t.Errorf("a token of the session became %q", again)
	}
	if bare := table.Prompt("is " + secret + " known?"); strings.Contains(bare, secret) {
		t.Errorf("without its context the secret is %q", bare)
	}
	const literal = "write [REDACTED_PASSWORD_99] there"
	none := func(Category) bool { return false }
	if out := table.RestoreOf(table.Prompt(literal), none); out != literal {
		t.Errorf("a literal token became %q", out)
	}
	if out := table.RestoreOf(hidden, none); out != hidden {
		t.Errorf("without a grant: %q", out)
	}
	if out := table.RestoreOf(hidden, func(c Category) bool { return c == Password }); out != "password="+secret {
		t.Errorf("with a grant: %q", out)
	}
}

// TestRestorerBesideWriters checks that a Restorer and the learning of texts do not block each other.
func TestRestorerBesideWriters(t *testing.T) {
	t.Parallel()
	table := NewTable()
	table.Learn("PASSWORD", "first-secret-of-the-table")
	token, _ := table.Text("first-secret-of-the-table")
	var both sync.WaitGroup
	for range 4 {
		both.Go(func() {
			for range 300 {
				r := table.RestorerOf(io.Discard, func(Category) bool { return true })
				io.WriteString(r, strings.Repeat(token+" ", 10))
				r.Close()
			}
		})
	}
	both.Go(func() {
		for range 300 {
			table.Learn("PASSWORD", strings.Repeat("x", 8)+token)
		}
	})
	both.Wait()
}

// TestTokensOfEarlierTables checks that a token in a history, which this table does not have, never stands for a text that
// this table finds later.
func TestTokensOfEarlierTables(t *testing.T) {
	t.Parallel()
	rules, err := Compile(Config{})
	if err != nil {
		t.Fatal(err)
	}
	table := rules.NewTable()
	const old = "the password was [REDACTED_PASSWORD_1]"
	table.ReserveTokens([]byte(old + " [REDACTED_PASSWORD_99999999999] [REDACTED_X"))
	if hidden := table.Prompt("password=kd83hHsk29xlPq0w"); hidden != "password=[REDACTED_PASSWORD_2]" {
		t.Errorf("the new secret is %q", hidden)
	}
	sent := table.Prompt(old)
	if got := table.Restore(sent); got != old {
		t.Errorf("%q was sent, and %q comes back", sent, got)
	}
}

// TestReservesFewCategories checks that a text with tokens of many categories cannot fill the table, and that no such
// token gets a text later.
func TestReservesFewCategories(t *testing.T) {
	t.Parallel()
	table := NewTable()
	var b strings.Builder
	for i := range 3 * maxReservedCategories {
		fmt.Fprintf(&b, "[REDACTED_A%d_7]", i)
	}
	table.ReserveTokens([]byte(b.String()))
	if n := len(table.last); n > maxReservedCategories {
		t.Errorf("%d categories are reserved", n)
	}
	category := Category(fmt.Sprint("A", 3*maxReservedCategories-1))
	table.Learn(category, "kd83hHsk29xlPq0w")
	if got := table.Prompt("kd83hHsk29xlPq0w"); strings.Contains(b.String(), got) {
		t.Errorf("%s stands for two texts", got)
	}
}
