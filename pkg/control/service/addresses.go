package service

import (
	"fmt"

	"google.golang.org/grpc/codes"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/identity"
)

// checkAddresses refuses what a target could not compare with the address of a connection.
func checkAddresses(who string, addresses []string) error {
	if len(addresses) > identity.AddressesMax {
		return refusal.InvalidArgument(who+": ", []*api.Problem{{
			Field: "addresses", Value: fmt.Sprint(len(addresses)),
			Rule: fmt.Sprintf("expected at most %d", identity.AddressesMax),
		}})
	}
	for _, text := range addresses {
		if _, err := identity.Network(text); err != nil {
			return refusal.WithProblems(codes.InvalidArgument, fmt.Sprintf("%s: %v", who, err),
				[]*api.Problem{{Field: "addresses", Value: fmt.Sprintf("%.80q", text), Rule: err.Error()}})
		}
	}
	return nil
}
