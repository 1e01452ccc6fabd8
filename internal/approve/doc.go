// Package approve keeps the questions that wait for a person, and the answers.
//
// A question is recorded before it is visible. It stays open for the shortest time that its rules allow, whether or not
// its caller waits. It ends once: enough approvers grant it, a person denies it, or it expires. A grant is valid for
// the same call, whenever that is made again ([bailey.Question.Subject]), and for one run of it: the use is recorded
// before the call continues. Until then the grant can be revoked.
//
// If a person denies a call, it stays denied for a while, however often it is made. A standing grant allows calls that
// its rules would ask about, until it expires or is revoked.
//
// Every change that permits something is recorded as an event before it takes effect, and [State] is the result of the
// events: a queue made from the state of another continues from there. Events are "question", whose data is the
// [bailey.Question], "answer", whose data is an [Event], "use" ([Use]), "grant" ([Standing]) and "grant.revoke"
// ([Revoked]).
//
// An answer applies to the question's text, which package canon specifies, or to the text of a grant.
package approve
