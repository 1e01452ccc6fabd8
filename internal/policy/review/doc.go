// Package review has the tools with which an operator examines rules: it explains decisions, compares policies, runs
// rule tests, decides past calls again, and derives rules from past calls and from permission lists. It decides no
// call: package policy does, and this package sees a loaded policy only through the methods of [policy.Engine].
package review
