// Package reach tests cages with a network: real clients and real attacks run in real cages. The servers, names and
// addresses exist only in the tests.
package reach
