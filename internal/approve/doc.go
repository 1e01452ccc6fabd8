// Package approve keeps the questions that wait for a person, and what was said to them.
//
// A question is recorded before anybody can see it and stays open until the shortest time that its rules allow, whether
// or not its caller stays. It ends once: enough approvers granted it, somebody denied it, or nobody answered. A grant is
// for the call it was asked for, whenever the same call comes again ([bailey.Question.Subject]), and for one run of it:
// its use is recorded before the call goes on. What was granted can be taken back until then.
//
// What a person denied stays denied for a while, however often it is asked. A grant that stands lets calls through that
// its rules would ask about, until its time is up or it is revoked.
//
// Everything here is an event before it takes effect, and [State] is what events come to: a queue that is made of the
// state of another goes on where that one was. Events are "question", whose data is the [bailey.Question], "answer",
// whose data is an [Event], "use" ([Use]), "grant" ([Standing]) and "grant.revoke" ([Revoked]).
//
// An answer is given to the question's text, which package canon specifies, or to that of a grant.
package approve
