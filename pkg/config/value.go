package config

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// SizeValue is a number of bytes on a command line: 4096, 64KiB, 1GiB. Only binary units are taken, because "MB"
// means two things. It implements pflag.Value.
type SizeValue uint64

// DurationValue is a length of time that is not negative: 250us, 1m30s. It implements pflag.Value.
type DurationValue time.Duration

var sizeUnits = []struct {
	name  string
	bytes uint64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
}

func (s *SizeValue) Set(text string) error {
	bytes, err := ParseSize(text)
	if err != nil {
		return err
	}
	*s = SizeValue(bytes)
	return nil
}

func (s *SizeValue) String() string { return FormatSize(uint64(*s)) }

// Type is the word that --help prints for the value.
func (s *SizeValue) Type() string { return "size" }

func (d *DurationValue) Set(text string) error {
	duration, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = DurationValue(duration)
	return nil
}

func (d *DurationValue) String() string { return time.Duration(*d).String() }

// Type is the word that --help prints for the value.
func (d *DurationValue) Type() string { return "duration" }

// ParseSize reads a size: digits, then nothing (bytes), B, KiB, MiB, GiB or TiB.
func ParseSize(text string) (uint64, error) {
	number, unit := text, uint64(1)
	for _, known := range sizeUnits {
		if strings.HasSuffix(text, known.name) {
			number, unit = strings.TrimSuffix(text, known.name), known.bytes
			break
		}
	}
	count, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("size %q: expected a whole number of bytes, or one with KiB, MiB, GiB or TiB, such as "+
			"64MiB", text)
	}
	high, bytes := bits.Mul64(count, unit)
	if high != 0 {
		return 0, fmt.Errorf("size %q: expected less than 16384 PiB", text)
	}
	return bytes, nil
}

// FormatSize writes a size so that ParseSize reads the same number: the largest unit that divides it.
func FormatSize(bytes uint64) string {
	for _, known := range sizeUnits {
		if bytes >= known.bytes && bytes%known.bytes == 0 && known.bytes > 1 {
			return strconv.FormatUint(bytes/known.bytes, 10) + known.name
		}
	}
	return strconv.FormatUint(bytes, 10)
}

// ParseDuration reads a length of time with a unit; a bare number other than 0 has none and is refused.
func ParseDuration(text string) (time.Duration, error) {
	duration, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("duration %q: expected a number with a unit, such as 250us, 5s or 1m30s", text)
	}
	if duration < 0 {
		return 0, fmt.Errorf("duration %q: expected zero or more", text)
	}
	return duration, nil
}
