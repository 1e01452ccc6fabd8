//go:build unix

package main

// variable is a variable's name as it is compared.
func variable(name string) string { return name }

// inheritsHere lists what no other system has: nothing.
func inheritsHere(string) bool { return false }
