package main

import (
	"context"
	"fmt"

	"github.com/farlog/farlog/pkg/store"
)

// compare compares a store that was found whole with another one.
func (v *verifyResult) compare(ctx context.Context, here *store.Store, options verifyOptions) error {
	there, err := openToRead(options.against)
	if err != nil {
		return fmt.Errorf("--against %s: %w", options.against, err)
	}
	v.Against = options.against
	if v.Compare, err = store.Compare(ctx, here, there, options.stream); err != nil {
		return fmt.Errorf("--against %s: %w", options.against, err)
	}
	for _, one := range v.Compare {
		v.OK = v.OK && one.Difference == ""
	}
	return ctx.Err()
}

func comparisonText(one store.Comparison, against string) string {
	switch {
	case one.Difference != "":
		return "DIFFERS: " + one.Difference
	case one.OnlyHere > 0:
		return fmt.Sprintf("%d records are the same in %s, which is %d behind", one.Records, against, one.OnlyHere)
	case one.OnlyThere > 0:
		return fmt.Sprintf("%d records are the same in %s, which is %d ahead", one.Records, against, one.OnlyThere)
	}
	return fmt.Sprintf("%d records are the same in %s", one.Records, against)
}
