package archive

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Period is how long objects are kept: years and days of the calendar, or a duration. It implements pflag.Value.
type Period struct {
	years, days int
	rest        time.Duration
	text        string
}

// ParsePeriod reads 6y, 90d or a Go duration such as 36h.
func ParsePeriod(text string) (Period, error) {
	var p Period
	return p, p.Set(text)
}

// Set reads a period. Errors: ErrInvalid.
func (p *Period) Set(text string) error {
	read := Period{text: text}
	number, isYears := strings.CutSuffix(text, "y")
	days, isDays := strings.CutSuffix(text, "d")
	var err error
	switch {
	case isYears:
		read.years, err = strconv.Atoi(number)
	case isDays:
		read.days, err = strconv.Atoi(days)
	default:
		read.rest, err = time.ParseDuration(text)
	}
	if err != nil || read.years < 0 || read.days < 0 || read.rest < 0 || read.years > 1000 ||
		read == (Period{text: text}) {
		return fmt.Errorf(
			"%w: period %q: expected years, days or a duration above 0, such as 6y, 90d or 36h",
			ErrInvalid,
			text,
		)
	}
	*p = read
	return nil
}

// String is the period as it was given.
func (p *Period) String() string { return p.text }

// Type is the word that --help prints for the value.
func (p *Period) Type() string { return "period" }

// After is the end of the period that begins at a time, in whole seconds, never earlier.
func (p Period) After(begin time.Time) time.Time {
	end := begin.UTC().AddDate(p.years, 0, p.days).Add(p.rest)
	if whole := end.Truncate(time.Second); whole.Before(end) {
		return whole.Add(time.Second)
	}
	return end
}
