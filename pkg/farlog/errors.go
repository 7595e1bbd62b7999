package farlog

//go:generate go run ../internal/gen

import "fmt"

// Result is a result code of the C core.
type Result int32

// Error is the outcome of a cold call: one line that names the thing, its value and what was expected.
// errors.Is(err, ErrHeld) and the like match its result.
type Error struct {
	Result Result
	Errno  int
	Text   string
}

func (e *Error) Error() string {
	if e.Text == "" {
		return e.Result.String()
	}
	return e.Text
}

// Unwrap gives the sentinel of the result.
func (e *Error) Unwrap() error {
	return e.Result.sentinel()
}

// TooLargeError says how much space the next record needs.
type TooLargeError struct {
	Need int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("next record takes %d bytes, more than the buffer has", e.Need)
}

// Is matches ErrTooLarge.
func (e *TooLargeError) Is(target error) bool {
	return target == ErrTooLarge
}
