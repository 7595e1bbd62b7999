package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/retry"
)

const (
	driftLinesMost  = 20 // of what is not so: the rest is counted
	waitPause       = 200 * time.Millisecond
	waitPauseMost   = 2 * time.Second
	waitToldSeldom  = 5 * time.Second // between two lines that say how far it is
	waitToldOfAny   = time.Second     // where something has changed
	answerErrorsMax = 3               // in a row, of a control plane that is asked how far it is
)

// waitSo asks again and again what of a fabric is not so in the world, until all of it is or the time is over, and
// gives what is not by then.
func waitSo(ctx context.Context, env *environment, client *controlClient, fabric *api.Fabric, limit time.Duration,
) ([]*api.Drift, error) {
	end := time.Now().Add(limit)
	told, count, failed := time.Now(), -1, 0
	for delays := retry.New(waitPause, waitPauseMost); ; {
		asking, cancel := context.WithTimeout(ctx, client.timeout)
		answer, err := client.ApplyFabric(asking, &api.ApplyFabricRequest{Fabric: fabric, DryRun: true})
		cancel()
		if failed++; err != nil && (failed >= answerErrorsMax || time.Now().After(end)) {
			return nil, client.explain(ctx, "", err)
		}
		if err == nil {
			failed = 0
			if len(answer.Changes) > 0 {
				return nil, fmt.Errorf("another client has changed the declared state, such as %s %s: farlog apply "+
					"--dry-run shows the differences", answer.Changes[0].Kind, answer.Changes[0].Name)
			}
			left := len(answer.Drift)
			if left == 0 || time.Now().After(end) {
				return answer.Drift, nil
			}
			if since := time.Since(told); since >= waitToldSeldom || left != count && since >= waitToldOfAny {
				fmt.Fprintf(env.stderr, "waiting for %d objects, such as %s\n", left, driftText(answer.Drift[0]))
				told, count = time.Now(), left
			}
		}
		if err := retry.Sleep(ctx, min(delays.NextBackOff(), max(time.Until(end), 0))); err != nil {
			return nil, err
		}
	}
}

// showDrift prints what is declared and not so: a line each, with what is wrong. Of many the first ones, and how many
// there are.
func showDrift(env *environment, drift []*api.Drift) {
	for _, one := range drift[:min(len(drift), driftLinesMost)] {
		fmt.Fprintln(env.stdout, "!", driftText(one))
	}
	if len(drift) <= driftLinesMost {
		return
	}
	counts := map[string]int{}
	for _, one := range drift[driftLinesMost:] {
		counts[strings.TrimSpace(one.Kind+"s "+conditionText(one))]++
	}
	var texts []string
	for what, count := range counts {
		texts = append(texts, fmt.Sprintf("%d %s", count, what))
	}
	slices.Sort(texts)
	fmt.Fprintf(env.stdout, "! and %d more: %s; farlog status, or --output json, has all of them\n",
		len(drift)-driftLinesMost, strings.Join(texts, ", "))
}

func driftText(one *api.Drift) string {
	what := conditionText(one)
	if what != "" {
		what += ": "
	}
	return plain(fmt.Sprintf("%s %s  %s%s", one.Kind, one.Name, what, one.Reason))
}

func conditionText(one *api.Drift) string {
	if one.Condition == api.Condition_CONDITION_UNSPECIFIED {
		return ""
	}
	return strings.ToUpper(shortName(one.Condition.String()))
}
