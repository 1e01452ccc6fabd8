package jail

// Bare is whether this platform has no cage, so that calls are held by policy alone. On Linux it never is: a cage
// that cannot be built is a refusal.
const Bare = false
