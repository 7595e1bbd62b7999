package fix

import (
	"fmt"
	"strings"
)

// Decimal is a quantity or a price in units of 10⁻⁸: exact for all that FIX engines send, and comparable with ==.
type Decimal int64

const (
	decimalPlaces = 8
	decimalUnit   = 100_000_000
	decimalMax    = Decimal(1<<63 - 1)
)

// ParseDecimal reads a FIX float: an optional minus, digits, optionally a point and digits. Digits beyond the eighth
// place must be zero.
func ParseDecimal(value []byte) (Decimal, error) {
	text := string(value)
	digits, isNegative := strings.CutPrefix(text, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	if whole == "" && fraction == "" {
		return 0, fmt.Errorf("number %q: expected digits", text)
	}
	for len(fraction) > decimalPlaces && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	if len(fraction) > decimalPlaces {
		return 0, fmt.Errorf("number %q: expected at most %d decimal places", text, decimalPlaces)
	}
	n := Decimal(0)
	for _, c := range []byte(whole + fraction + "00000000"[len(fraction):]) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("number %q: expected digits and at most one point", text)
		}
		if n > (decimalMax-9)/10 {
			return 0, fmt.Errorf("number %q: expected less than 92 thousand million", text)
		}
		n = n*10 + Decimal(c-'0')
	}
	if isNegative {
		n = -n
	}
	return n, nil
}

// Float returns the number as a float64, for averages.
func (d Decimal) Float() float64 {
	return float64(d) / decimalUnit
}

// String writes the number without the zeros that say nothing.
func (d Decimal) String() string {
	sign := ""
	n := uint64(d)
	if d < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%0*d", sign, n/decimalUnit, decimalPlaces, n%decimalUnit)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
