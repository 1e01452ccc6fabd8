// Package reach holds the tests of cages with a network: real clients and real attacks in real cages, against servers of the
// test's own, in a world whose names and addresses the machine knows nothing of.
package reach
