// Package approve keeps the questions that wait for a person.
//
// A question is recorded before anybody can see it, stays open until the shortest time that its rules
// allow, and ends once: enough approvers granted it, somebody denied it, nobody answered, the caller withdrew, or the
// gateway ended. All but the first deny. An answer is recorded before it takes effect.
//
// Events are "question", whose data is the [bailey.Question], and "answer", whose data is an [Event]. If
// an answer cannot be recorded, the question's own expiry in the ledger still says that nothing was granted.
package approve
