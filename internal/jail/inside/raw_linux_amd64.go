package inside

const sysSeccomp = 317
