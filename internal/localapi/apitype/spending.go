package apitype

import (
	"time"

	"bailey"
)

// Spending is the use of a budget.
type Spending struct {
	Account
	Since  time.Time     `json:"since"`
	Until  *time.Time    `json:"until,omitempty"` // when counting restarts
	Calls  int           `json:"calls"`
	Open   int           `json:"open"` // calls that run now
	Wall   time.Duration `json:"wall"`
	CPU    time.Duration `json:"cpu"`
	Output int64         `json:"output"`
	Spent  string        `json:"spent,omitempty"` // the limit that is reached
	Limit  bailey.Budget `json:"limit"`
}
