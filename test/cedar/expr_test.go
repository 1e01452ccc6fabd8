package cedar

import (
	"fmt"
	"strings"
	"unicode"
)

// expr is an expression as a tree, so that a case can be shrunk: text in which every @ stands for an argument.
type expr struct {
	kind kind
	text []string // around the arguments: one more than there are arguments
	args []*expr
}

func leaf(k kind, text string) *expr { return &expr{k, []string{text}, nil} }

// form returns an expression for a text in which @ stands for each argument.
func form(k kind, text string, args ...*expr) *expr {
	return &expr{k, strings.SplitN(text, "@", len(args)+1), args}
}

func (e *expr) String() string {
	var b strings.Builder
	e.write(&b)
	return b.String()
}

func (e *expr) write(b *strings.Builder) {
	b.WriteString(e.text[0])
	for i, a := range e.args {
		a.write(b)
		b.WriteString(e.text[i+1])
	}
}

// writer generates expressions about the attributes in the scope of a rule.
type writer struct {
	dice
	has   []attr
	amiss int // one in this many has a wrong type; 0 for never
}

func (w *writer) expr(k kind, depth int) *expr {
	if w.amiss > 0 && w.IntN(w.amiss) == 0 {
		k = kind(w.IntN(int(kinds)))
	}
	if depth <= 0 || w.IntN(8) == 0 {
		return w.simple(k)
	}
	if w.IntN(12) == 0 {
		return form(k, "(if @ then @ else @)", w.expr(boolean, depth-1), w.expr(k, depth-1), w.expr(k, depth-1))
	}
	switch k {
	case boolean:
		return w.condition(depth - 1)
	case long:
		op := pick(w.dice, "(@ + @)", "(@ - @)", "(@ * @)", "-(@)", "--@")
		if !strings.HasPrefix(op, "(") {
			return form(long, op, w.expr(long, depth-1))
		}
		return form(long, op, w.expr(long, depth-1), w.expr(long, depth-1))
	case strs:
		return w.set(strs, str, depth-1)
	case longs:
		return w.set(longs, long, depth-1)
	case str:
		if w.IntN(3) == 0 {
			return form(str, pick(w.dice, `{a: @, "b c": @}.a`, `{"a": @, "b c": @}["b c"]`), w.expr(str, depth-1), w.expr(str, depth-1))
		}
	case rec:
		return form(rec, pick(w.dice, `{a: @, "b c": @}`, `{"b c": @, "a": @}`, `{x: @, "\u{78}y": @}`), w.expr(str, depth-1), w.expr(long, depth-1))
	}
	return w.simple(k)
}

func (w *writer) set(k, of kind, depth int) *expr {
	var args []*expr
	for range 1 + w.IntN(3) {
		args = append(args, w.expr(of, depth))
	}
	return form(k, "["+strings.TrimSuffix(strings.Repeat("@, ", len(args)), ", ")+"]", args...)
}

// condition returns a boolean expression of the given depth.
func (w *writer) condition(depth int) *expr {
	two := func(text string, k kind) *expr {
		return form(boolean, text, w.expr(k, depth), w.expr(k, depth))
	}
	any := pick(w.dice, boolean, long, str, strs, longs, rec, agent, target, act)
	many := pick(w.dice, strs, strs, longs)
	one := str
	if many == longs {
		one = long
	}
	switch w.IntN(16) {
	case 0, 1:
		return two("(@ && @)", boolean)
	case 2:
		return two("(@ || @)", boolean)
	case 3:
		return form(boolean, pick(w.dice, "!(@)", "!@", "!!@"), form(boolean, "(@)", w.expr(boolean, depth)))
	case 4, 5:
		return two(pick(w.dice, "(@ == @)", "(@ != @)"), any)
	case 6, 7:
		return two(pick(w.dice, "(@ < @)", "(@ <= @)", "(@ > @)", "(@ >= @)"), long)
	case 8:
		return form(boolean, "@ like "+w.pattern(), form(str, "(@)", w.expr(str, depth)))
	case 9:
		return form(boolean, "@.contains(@)", w.expr(many, depth), w.expr(one, depth))
	case 10:
		return two(pick(w.dice, "@.containsAll(@)", "@.containsAny(@)"), many)
	case 11:
		return form(boolean, "@.isEmpty()", w.expr(many, depth))
	case 12:
		return w.guarded(depth)
	case 13:
		return w.presence()
	case 14:
		return w.extension()
	}
	return w.place()
}

// guarded tests whether an optional input is present, and then uses it.
func (w *writer) guarded(depth int) *expr {
	a := pick(w.dice, w.has...)
	if a.optional == "" {
		return w.simple(boolean)
	}
	old := w.has
	w.has = append(old[:len(old):len(old)], attr{a.path, a.kind, ""}, attr{a.path, a.kind, ""}, attr{a.path, a.kind, ""})
	body := w.expr(boolean, depth)
	w.has = old
	return form(boolean, pick(w.dice, "(@ && @)", "(@ && @)", "(if @ then @ else false)"), leaf(boolean, "("+a.optional+")"), body)
}

func (w *writer) presence() *expr {
	return leaf(boolean, pick(w.dice, "context has input", "context.input has ref", `context.input has "a b"`, "context.input has meta.n", "principal has person",
		"principal has nobody", "resource has kind", "action has name", "context.session has id", "context.time has zone", `context.input has "if"`, "context has input.meta.owner"))
}

// place returns an expression about the principal, the action or the resource.
func (w *writer) place() *expr {
	acts := func() string {
		return pick(w.dice, `Action::"git.push"`, `Action::"git.status"`, `Action::"odd.names"`, `Action::"pack:git"`, `Action::"sideEffect:readOnly"`, `Action::"risk:critical"`, `Action::"builtin"`, `Action::"disk.wipe"`, `Action::"reversibility:readOnly"`)
	}
	switch w.IntN(7) {
	case 0, 1:
		return leaf(boolean, "action in "+acts())
	case 2:
		return leaf(boolean, fmt.Sprintf("action in [%s, %s]", acts(), acts()))
	case 3:
		return leaf(boolean, pick(w.dice, "action == ", "action != ")+acts())
	case 4:
		return leaf(boolean, pick(w.dice, `principal == Agent::"claude"`, `principal in Agent::"claude"`, `principal in [Agent::"claude", Agent::"codex"]`, `Agent::"claude" in principal`, `principal == Agent::"\u{fc}nï"`))
	case 5:
		return leaf(boolean, pick(w.dice, `resource == Target::"local"`, `resource in Target::"host:web1"`, `resource in [Target::"local"]`, `resource == Target::"sandbox:box-1"`))
	}
	return leaf(boolean, pick(w.dice, `principal is Agent`, `resource is Target`, `principal is Target`, `principal == resource`, `action in principal`, `principal in []`,
		`Action::"git.push" in Action::"pack:git"`, `Action::"git.status" in [Action::"risk:low"]`, `Action::"pack:git" in Action::"builtin"`))
}

// simple returns an expression without branches.
func (w *writer) simple(k kind) *expr {
	if w.IntN(3) > 0 {
		for range 12 {
			if a := pick(w.dice, w.has...); a.kind == k && a.optional == "" || w.amiss > 0 && w.IntN(w.amiss*4) == 0 {
				return leaf(a.kind, a.path)
			}
		}
	}
	switch k {
	case boolean:
		if w.IntN(4) == 0 {
			return leaf(boolean, pick(w.dice, "true", "false"))
		}
		return w.place()
	case long:
		return leaf(long, pick(w.dice, "0", "1", "-1", "2", "12", "23", "2147483648", "3037000500", "9007199254740991", "9223372036854775807", "-9223372036854775808", "-9223372036854775807", "(-1)", "007"))
	case str:
		if w.IntN(12) == 0 {
			return leaf(str, pick(w.dice, `Agent::"claude".person`, `Target::"local".kind`, `Agent::"nobody".person`))
		}
		return leaf(str, w.quote(pick(w.dice, words()...)))
	case strs:
		return leaf(strs, fmt.Sprintf("[%s, %s]", w.quote(pick(w.dice, words()...)), w.quote(pick(w.dice, words()...))))
	case longs:
		return leaf(longs, pick(w.dice, "[1]", "[0, 1, 1]", "[12, -1]", "[9223372036854775807]"))
	case rec:
		return leaf(rec, pick(w.dice, "{}", `{a: "a", "b c": 1}`, "context.session", `{id: "a", unattended: true}`, `{owner: "a"}`))
	case agent:
		return leaf(agent, pick(w.dice, "principal", `Agent::"claude"`, `Agent::"nobody"`))
	case target:
		return leaf(target, pick(w.dice, "resource", `Target::"local"`))
	}
	return leaf(act, pick(w.dice, "action", `Action::"git.push"`, `Action::"pack:git"`))
}

// quote writes a string, with each character either literal or in one of its escaped forms.
func (w *writer) quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		b.WriteString(w.char(r))
	}
	return b.String() + `"`
}

func (w *writer) char(r rune) string {
	short := map[rune]string{'\n': `\n`, '\t': `\t`, '\r': `\r`, 0: `\0`, '"': `\"`, '\\': `\\`, '\'': `\'`}
	switch e, ok := short[r]; {
	case ok && w.IntN(3) > 0:
		return e
	case r < 0x80 && w.IntN(6) == 0:
		return fmt.Sprintf(`\x%02x`, r)
	case ok || !unicode.IsPrint(r) || w.IntN(6) == 0:
		return fmt.Sprintf(pick(w.dice, `\u{%x}`, `\u{%X}`, `\u{%06x}`), r)
	}
	return string(r)
}

// pattern returns an operand for like.
func (w *writer) pattern() string {
	var b strings.Builder
	b.WriteByte('"')
	for range w.IntN(4) {
		if w.IntN(2) == 0 {
			b.WriteString("*")
		}
		for _, r := range pick(w.dice, words()...) {
			if r == '*' {
				b.WriteString(pick(w.dice, `\*`, "*"))
				continue
			}
			b.WriteString(w.char(r))
		}
	}
	return b.String() + pick(w.dice, "", "*") + `"`
}
