package inside

const (
	sysSeccomp = 317
	sysSetns   = 308
)
