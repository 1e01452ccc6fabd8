package apitype

// A grant requires operator rights. A denial requires none. No interface for agents offers either command.
const ApproveVerb, DenyVerb = "approve", "deny"

// MaxDenial limits the reason for a denial in bytes. The agent and the ledger get the reason.
const MaxDenial = 400
