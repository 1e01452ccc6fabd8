package cedar

import "fmt"

// extension returns an expression about addresses, decimals or times. Each side has its own parser for their texts.
func (w *writer) extension() *expr {
	switch w.IntN(4) {
	case 0:
		return leaf(boolean, pick(w.dice, w.ip()+pick(w.dice, ".isIpv4()", ".isIpv6()", ".isLoopback()", ".isMulticast()"), fmt.Sprintf("%s.isInRange(%s)", w.ip(), w.ip()), w.ip()+" == "+w.ip()))
	case 1:
		return leaf(boolean, pick(w.dice, w.decimal()+" == "+w.decimal(), fmt.Sprintf("%s.%s(%s)", w.decimal(), pick(w.dice, "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual"), w.decimal())))
	case 2:
		op := pick(w.dice, "==", "<", "<=", ">", ">=")
		return leaf(boolean, fmt.Sprintf("%s %s %s", w.datetime(), op, w.datetime()))
	}
	return leaf(boolean, fmt.Sprintf("%s %s %s", w.duration(), pick(w.dice, "==", "<", ">="), w.duration()))
}

func (w *writer) ip() string {
	return fmt.Sprintf("ip(%q)", pick(w.dice, "10.0.0.1", "10.0.0.0/8", "10.1.2.3/8", "0.0.0.0/0", "127.0.0.1", "127.0.0.1/8", "127.0.0.0/7", "224.0.0.1", "224.0.0.0/4", "224.0.0.0/3",
		"::1", "::1/127", "::", "::/0", "ff00::/8", "ff00::/7", "fe80::1", "1:2:3:4:5:6:7:8", "ABCD::1", "::ffff:10.0.0.1", "10.0.0.01", "1.2.3", "fe80::1%eth0", "10.0.0.1/33", "10.0.0.1/08", "10.0.0.1/", "256.0.0.1", "::/129", "::/064", " 10.0.0.1", ""))
}

func (w *writer) decimal() string {
	return fmt.Sprintf("decimal(%q)", pick(w.dice, "1.0", "1.5", "1.2345", "1.23456", "-0.0001", "0.0", "-0.0", "922337203685477.5807", "922337203685477.5808", "-922337203685477.5808", "-922337203685477.5809",
		"1.", ".5", "01.5", "1", "+1.0", " 1.0", "1.50", "1e3", "-1.5", "--1.0", ""))
}

func (w *writer) datetime() string {
	d := fmt.Sprintf("datetime(%q)", pick(w.dice, "2024-10-15", "2024-10-15T11:38:02Z", "2024-10-15T11:38:02.101Z", "2024-10-15T11:38:02.1Z", "2024-10-15T11:38:02+0100", "2024-10-15T11:38:02.101-0130", "2024-10-15T11:38:02+01:00",
		"2024-02-30", "2024-02-29", "2023-02-29", "2016-12-31T23:59:60Z", "2016-12-31T24:00:00Z", "0000-01-01", "9999-12-31", "-001-01-01", "2024-1-5", "2024-10-15T11:38Z", "2024-10-15T11:38:02", "2024-10-15T00:00:00+2359", "2024-10-15T00:00:00+2400", "2024-10-15T00:00:00-2360", "1969-12-31T23:59:59.999Z", ""))
	return pick(w.dice, d, d, d+".toDate()", d+".offset("+w.duration()+")")
}

func (w *writer) duration() string {
	d := fmt.Sprintf("duration(%q)", pick(w.dice, "1d2h3m4s5ms", "-1d", "1h", "60m", "1h1d", "", "1", "10ms", "-", "0s", "1d1d", "+1d", "106751991167d", "106751991168d", "9223372036854775807ms", "9223372036854775808ms", "-9223372036854775808ms", "1.5h", "1D", " 1d"))
	switch w.IntN(6) {
	case 0:
		return w.datetime() + ".toTime()"
	case 1:
		return w.datetime() + ".durationSince(" + w.datetime() + ")"
	case 2:
		return d + pick(w.dice, ".toMilliseconds()", ".toSeconds()", ".toMinutes()", ".toHours()", ".toDays()")
	}
	return d
}
