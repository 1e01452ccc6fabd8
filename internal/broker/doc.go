// Package broker lends credentials to one call at a time: a [Client] asks, a [Server] lends. The two are processes of
// their own, best of different users, and the server trusts no client: what it lends it lends by its own [Table].
//
// # The protocol
//
// Over a socket of package peer, whose far end's uid the kernel tells both sides, go frames. A client sends one whose
// payload is an object in JSON, and reads what comes back before it sends the next:
//
//	h  {"version":1}                                          who are you, and what do you lend
//	s  {"version":1,"wants":[{"name","env","file"}]}          what would a loan come to
//	l  {"version":1,"receipt","capability","wants","text","signatures"}   lend
//	r  {"version":1,"ids":[…]}                                the loan is over
//	a  {"version":1,"digest":"…"}                             use the table of this digest (the server's own uid alone)
//	m  {"version":1}                                          make a key that signs for a log
//	k  {"version":1,"key":"…"}                                which of my keys are there; without key all
//	g  {"version":1,"key","text"}                             sign the text of a log with this key
//
// An answer is one frame o with an object, or x with kind, message and hint. Behind the o of a loan comes a frame v for
// each want, in their order, that holds the value and nothing else: no value is ever in JSON. Keys that are unknown, given
// twice or in other letters are refused on both sides, and so is a frame over [maxAsk] bytes. A loan ends with r, with its
// connection, or at its time.
//
// # What is lent for what
//
// A lease whose table entry says "approval: none" is lent to any admitted uid; where a text of a question comes with the
// request it has to name all leases as below, so that what somebody was told is what is lent. Any other is lent for an
// answer: the text of the question (package canon), and signatures over it. The text has to be of the capability that is
// called and to name exactly these leases, each with the adapter, the scope and the time of the table; it must not have
// expired; the approvers of the table whose signatures hold must reach the level, the roles and the count of each entry. Of
// a text with the same digest, or the same nonce, nothing is lent a second time: a line in the journal says so before a
// value leaves.
//
// # What a log's key signs
//
// A key is made for the uid that asks, signs for that uid alone while the table admits it, and its private half never leaves.
// Messages and journal name it by its public half, 64 hexadecimal digits. It signs two texts, each in its one encoding: a
// checkpoint (c2sp.org/tlog-checkpoint) of three lines,
//
//	origin
//	size, in decimal
//	root, 32 bytes in base64
//
// and the word that it is a log's first key, "bailey.audit/key/v1", "none" and its verifier key in a line each. The first
// text binds it to an origin. From then on a smaller size, the same size with another root, and another origin are
// refused: a line in the journal says what was signed before the signature leaves. That a larger tree begins with the
// smaller one it cannot know.
//
// # The directory
//
// A directory of mode 0700 that belongs to the server's user holds broker.yaml (the table, 0600), journal (0600) and
// lock; keys (0700) in it holds a file for each key, PEM of PKCS #8 (0600). The journal is JSON, a line for each event:
// start, apply, lend, end, key, sign. The line of a loan or a signature is on the disk (fsync) before the values or the
// signature leave, so that whatever ends the process, an answer is used once and no key signs less than before. A last line
// that is not whole is of what never left, and is cut off; anything else that does not read, or a signature that does not
// follow the one before, is refused.
package broker
