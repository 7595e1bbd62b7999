package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

// topOrders are what lines can be sorted by: what is worst, or most, comes first.
var topOrders = map[string]func(a, b statusRow) int{
	"lag": func(a, b statusRow) int {
		return cmp.Or(cmp.Compare(b.trouble(), a.trouble()), cmp.Compare(b.LagSeconds, a.LagSeconds),
			cmp.Compare(b.LagBytes, a.LagBytes), cmp.Compare(b.AppendRate, a.AppendRate))
	},
	"rate": func(a, b statusRow) int { return cmp.Compare(b.AppendRate, a.AppendRate) },
	"full": func(a, b statusRow) int { return cmp.Compare(b.FullRatio, a.FullRatio) },
	"p99":  func(a, b statusRow) int { return cmp.Compare(orZero(b.P99Seconds), orZero(a.P99Seconds)) },
	"name": func(statusRow, statusRow) int { return 0 },
}

// trouble ranks how a stream is: well, to be looked at, not made yet or short of a part, failing.
func (r statusRow) trouble() int {
	switch {
	case r.isFailing:
		return 3
	case r.State == shortName(api.Condition_CONDITION_OK.String()):
		return 0
	case r.State == shortName(api.Condition_CONDITION_WARN.String()):
		return 1
	}
	return 2
}

func newTopCommand(env *environment) *cobra.Command {
	t := &top{env: env, interval: statusIntervalDefault, order: "lag"}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch all streams live, a line each: rate, append times, level, lag, time to full, rings, drain",
		Long: `Watch all streams live, a line each, the worst first. Columns and lines that do not fit on the screen are
left out; q ends it.

p50 to max cover all appends of the stream's present or last writer; the rate is that of its target's last report. LAG
is what is not in the store yet: bytes, records, and the age of the oldest. FULL IN is the time until the ring is full
at the present rates; empty while it does not fill. RINGS is how many of the stream's rings exist; WEAR is the used
share of the endurance of the most worn device below them. --once prints one table and ends; --output json prints an
object at each refresh.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.interval <= 0 {
				return usageErrorf("--interval %s: expected more than 0", t.interval)
			}
			if topOrders[t.order] == nil {
				return usageErrorf("--sort %q: expected lag, rate, full, p99 or name", t.order)
			}
			dial := env.dialControlOnce // it asks again, and what was told before stays
			if t.isOnce {
				dial = env.dialControl
			}
			client, err := dial()
			if err != nil {
				return err
			}
			defer client.Close()
			t.client = client
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&t.isOnce, "once", false, "print one table and end")
	cmd.Flags().Var((*config.DurationValue)(&t.interval), "interval", "time between two refreshes")
	cmd.Flags().StringVar(&t.order, "sort", t.order, "what comes first: `lag`, rate, full, p99 or name")
	return cmd
}

// top is the table that is shown again and again.
type top struct {
	env      *environment
	client   *controlClient
	isOnce   bool
	interval time.Duration
	order    string

	rows    []statusRow
	seen    time.Time // when rows were told
	failure error     // why there is nothing newer
}

func (t *top) run(ctx context.Context) error {
	if t.isOnce {
		t.fetchStreams(ctx)
		if t.failure != nil {
			return t.failure
		}
		return t.print(screenSize{columns: statusColumns * 2, rows: 1 << 20})
	}
	screen, ok := openScreen(t.env)
	if !ok || t.env.isJSON() {
		return t.repeat(ctx)
	}
	defer screen.close()
	return t.live(ctx, screen)
}

// repeat prints table after table, for programs.
func (t *top) repeat(ctx context.Context) error {
	for {
		t.fetchStreams(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if t.failure != nil {
			exitCode(t.failure, t.env.stderr)
		} else if err := t.print(screenSize{columns: statusColumns * 2, rows: 1 << 20}); err != nil {
			return err
		}
		select {
		case <-time.After(t.interval):
		case <-ctx.Done():
			return nil
		}
	}
}

// live draws until q, an interrupt, or the end of the terminal. A new size is drawn at once.
func (t *top) live(ctx context.Context, screen *screen) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for isDue := true; ; {
		if isDue {
			t.fetchStreams(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := screen.draw(t.lines(screen.size(), true)); err != nil {
			return nil // the terminal is gone
		}
		select {
		case <-tick.C:
			isDue = true
		case <-resized:
			isDue = false
		case <-screen.quit:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// fetchStreams asks the control plane. What was told before stays when it does not answer.
func (t *top) fetchStreams(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.client.timeout)
	defer cancel()
	var rows []statusRow
	for request := new(api.ListStreamsRequest); ; {
		response, err := t.client.ListStreams(ctx, request)
		if err != nil {
			t.failure = t.client.explain(ctx, "", err)
			return
		}
		for _, one := range response.Streams {
			rows = append(rows, newStatusRow(one))
		}
		if request.PageToken = response.NextPageToken; request.PageToken == "" {
			break
		}
	}
	slices.SortStableFunc(rows, topOrders[t.order])
	t.rows, t.seen, t.failure = rows, time.Now(), nil
}

func (t *top) print(size screenSize) error {
	if t.env.isJSON() {
		rows := t.rows
		if rows == nil {
			rows = []statusRow{}
		}
		return json.NewEncoder(t.env.stdout).Encode(map[string]any{
			"control": t.env.control,
			"time":    t.seen.UTC().Format(time.RFC3339Nano), "streams": rows,
		})
	}
	var text bytes.Buffer
	for _, line := range t.lines(size, false) {
		fmt.Fprintln(&text, line)
	}
	fmt.Fprintln(&text)
	_, err := io.Copy(t.env.stdout, &text)
	return err
}
