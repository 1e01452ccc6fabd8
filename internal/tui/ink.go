package tui

// textStyler adds text attributes, and colours if they are wanted (https://no-color.org).
type textStyler bool

func (textStyler) applySGR(code, s string) string {
	if s == "" {
		return ""
	}
	return "\x1b[" + code + "m" + s + "\x1b[m"
}

func (i textStyler) bold(s string) string    { return i.applySGR("1", s) }
func (i textStyler) reverse(s string) string { return i.applySGR("7", s) }

func (i textStyler) colorOrStyle(code, otherwise, s string) string {
	if i {
		return i.applySGR(code, s)
	}
	if otherwise == "" {
		return s
	}
	return i.applySGR(otherwise, s)
}

func (i textStyler) faint(s string) string       { return i.colorOrStyle("90", "", s) }
func (i textStyler) labelText(s string) string   { return i.colorOrStyle("36", "", s) }
func (i textStyler) errorText(s string) string   { return i.colorOrStyle("1;31", "1", s) }
func (i textStyler) warningText(s string) string { return i.colorOrStyle("33", "", s) }
func (i textStyler) successText(s string) string { return i.colorOrStyle("32", "", s) }
