// Package tui is the terminal UI: what waits for a person, what runs, what was done, what stands, and the switch that
// stops everything. It is a viewer over [Look], and acts through [Hand] when a person says so; it decides nothing.
//
// Its rules:
//
//   - A question is shown whole, from the very text that an answer binds, and below it what helps to read it.
//   - Every dialog begins at No. Escape is No, Enter on No is No: to grant takes a move to Yes, or the letter y. A key
//     counts when none came for 300 ms, so that a dialog is never answered by what was typed before it was seen.
//   - Nothing moves under the fingers: a new question rings the bell and is announced, and opens nothing.
//   - What others wrote cannot act on the terminal: controls, marks of direction and what cannot be seen come out
//     escaped ([seen]).
//   - Colour says nothing that words do not. Any size will do: what does not fit is scrolled to, or cut with an ellipsis.
//
// [Run] takes the whole screen; [Plain] goes line by line, for screen readers and for terminals that can do no more.
package tui
