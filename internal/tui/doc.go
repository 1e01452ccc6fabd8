// Package tui is the terminal UI. It shows open questions, current calls, receipts and standing grants, and has the
// switch that stops everything. It reads through [Look] and acts through [Hand] when a person says so. It decides
// nothing.
//
// Its rules:
//
//   - A question is shown completely, from the same text that an answer binds. Information that helps to read it
//     follows below.
//   - Every dialog starts at No. Escape is No, and Enter on No is No: to grant, a person must move to Yes or type y.
//     A key counts only if no other key came for 300 ms, so that keys typed before a dialog was visible do not
//     answer it.
//   - The screen does not change while a person works: a new question rings the bell and is announced, but opens
//     nothing.
//   - Foreign text cannot act on the terminal: control characters, direction marks and invisible characters are
//     escaped ([seen]).
//   - Colour must not be the only carrier of information. Any terminal size works: text that does not fit is scrolled or
//     cut with an ellipsis.
//
// [Run] uses the whole screen. [Plain] works line by line, for screen readers and simple terminals.
package tui
