package front

// InputOf is inputOf, for its fuzz test.
var InputOf = inputOf
