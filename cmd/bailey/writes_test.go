package main

// writing allows git.commit and git.push, which the starter policy denies.
const writing = `
@id("write")
permit (principal, action in [Action::"git.commit", Action::"git.push"], resource == Target::"local")
when { context.cage == "full" && context.writes };`
