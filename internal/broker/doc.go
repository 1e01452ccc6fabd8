// Package broker lends credentials to one call at a time: a [Client] asks, a [Server] lends. The two are separate
// processes and should run as different users. The server trusts no client: its own [Table] determines what it lends.
//
// # The protocol
//
// Frames pass over a socket of package peer, on which the kernel tells each side the uid of the other. A client sends
// one frame whose payload is a JSON object, and must read the answer before it sends the next:
//
//	h  {"version":1}                                          version, state and leases of the broker
//	s  {"version":1,"wants":[{"name","env","file"}]}          terms of a loan
//	l  {"version":1,"receipt","capability","wants","text","signatures"}   lend
//	r  {"version":1,"ids":[…]}                                the loan is over
//	a  {"version":1,"digest":"…"}                             use the table with this digest (server's uid only)
//	e  {"version":1,"wants":[{"name"}]}                       end open loans with these leases, or all (server's uid only)
//	m  {"version":1}                                          make a key that signs for a log
//	k  {"version":1,"key":"…"}                                whether my key exists; without key, all my keys
//	g  {"version":1,"key","text"}                             sign the text of a log with this key
//
// An answer is one frame: o with an object, or x with kind, message and hint. The o of a loan is followed by one frame
// v for each want, in order, which contains only the value: JSON never contains a value. Both sides refuse unknown
// keys, duplicate keys, keys in another case, and frames of more than [maxAsk] bytes. A loan ends with r, with its
// connection, or when its time is over.
//
// # Conditions of a loan
//
// A lease whose table entry says "approval: none" is lent to any admitted uid. If the request contains the text of a
// question, that text must still name all leases as described below, so that a person was told exactly what is lent.
// Any other lease needs an answer: the text of the question (package approvaltext) and signatures over it. The text
// must be about the called capability. It must name exactly these leases, each with the adapter, scope and time of the
// table, and must not have expired. The approvers in the table whose signatures are valid must reach the level, the
// roles and the count of each entry. A text is used once: nothing is lent again for the same digest or the same nonce.
// A line in the journal records the use before a value leaves.
//
// # Texts that a log's key signs
//
// A key is made for the uid that asks, and signs only for that uid while the table admits it. Its private half never
// leaves the broker. Messages and journal name it by its public half, 64 hexadecimal digits. It signs two texts, each
// in its only encoding. The first is a checkpoint (c2sp.org/tlog-checkpoint) of three lines:
//
//	origin
//	size, in decimal
//	root, 32 bytes in base64
//
// The second states that it is the first key of a log: "bailey.audit/key/v1", "none" and its verifier key, one per
// line. The first signed text binds the key to an origin. After that, a smaller size, the same size with another root,
// and another origin are refused: a line in the journal records the signed text before the signature leaves. The broker
// cannot check that a larger tree begins with the smaller one.
//
// # The directory
//
// A directory of mode 0700 that belongs to the server's user contains broker.yaml (the table, 0600), journal (0600) and
// lock. Its subdirectory keys (0700) contains one file for each key, PEM of PKCS #8 (0600), and issued (0700) one file
// (0600) for each credential that its issuer can still revoke. The journal has one line of
// JSON for each event: start, apply, lend, end, key, sign. The line of a loan or a signature is on the disk (fsync)
// before the values or the signature leave. Even if the process is killed, an answer is used at most once and no key
// signs less than before. If the last line is incomplete, its values or signature never left, and it is cut off. Any
// other line that cannot be read, or a signature that may not follow the previous one, is refused.
package broker
