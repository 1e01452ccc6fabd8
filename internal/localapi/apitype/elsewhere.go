package apitype

// If the platform has no cage (jail.Bare; never on Linux), every start of an interface or a gateway prints a warning.
// status and doctor report it too, and a separate rule must permit calls that run without a cage.

const Disabled = "SANDBOX DISABLED: this platform has no cage; calls are held by policy alone"

// BareFinding returns the finding of the doctor. It is only a warning, because calls do run.
func BareFinding() Finding {
	return Finding{"cage", Warning, Disabled, "use Linux, or a Linux virtual machine, for what reads other people's files"}
}
