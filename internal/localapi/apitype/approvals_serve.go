package apitype

// ApprovalsServeEvent is the ledger event for the start of the HTTP interface for answers.
const ApprovalsServeEvent = "approvals.serve"
