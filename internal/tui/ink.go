package tui

// ink adds text attributes, and colours if they are wanted (https://no-color.org).
type ink bool

func (ink) set(code, s string) string {
	if s == "" {
		return ""
	}
	return "\x1b[" + code + "m" + s + "\x1b[m"
}

func (i ink) bold(s string) string    { return i.set("1", s) }
func (i ink) reverse(s string) string { return i.set("7", s) }

func (i ink) color(code, otherwise, s string) string {
	if i {
		return i.set(code, s)
	}
	if otherwise == "" {
		return s
	}
	return i.set(otherwise, s)
}

func (i ink) faint(s string) string { return i.color("90", "", s) }
func (i ink) label(s string) string { return i.color("36", "", s) }
func (i ink) bad(s string) string   { return i.color("1;31", "1", s) }
func (i ink) warn(s string) string  { return i.color("33", "", s) }
func (i ink) good(s string) string  { return i.color("32", "", s) }
