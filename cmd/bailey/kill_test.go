//go:build linux

package main

const asksForDates = `
@id("dates-ask") @reason("a person has to know what day it is") @approval("count=1,ttl=10m")
forbid (principal, action == Action::"system.date", resource)
unless { context.approvals.contains("dates-ask") };`
