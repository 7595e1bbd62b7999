// Package farlog is the Go client of the C core, and the one package of farlog that imports "C".
//
// It compiles the core itself: `go get` and `go build` need a C compiler and nothing built before.
//
// A [Writer] appends records to a ring; when Append returns nil the record has reached the durability level that the
// Position names. A [Shared] writer does so for any number of goroutines. A [Reader] copies whole, checked records out
// of a ring, and as a drain releases their space once a store has them.
//
// Errors: hot calls return the sentinels of this package unchanged; cold calls (open, format, inspect) return an
// [Error] that carries the core's one-line text and matches its sentinel with errors.Is.
//
// Memory: bytes given to this package are not kept beyond the call. Batches cross the boundary, not records.
package farlog
