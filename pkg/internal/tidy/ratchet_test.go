package tidy

// ratchet holds what is over a limit and may only shrink, with its present length: "path" for a file, "path:function"
// for a function, "path:columns" for the number of lines in a file that are too wide. Empty is the aim.
var ratchet = map[string]int{}
