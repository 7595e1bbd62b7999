package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/farlog/farlog/pkg/control/pattern"
)

// everyPage asks for a list page by page until its last; ask is given the token of each.
func (e *environment) everyPage(ctx context.Context, ask func(ctx context.Context, client *controlClient,
	token string) (next string, err error),
) error {
	client, err := e.dialControl()
	if err != nil {
		return err
	}
	defer client.Close()
	page := func(token string) (string, error) {
		call, cancel := context.WithTimeout(ctx, client.timeout)
		defer cancel()
		next, err := ask(call, client, token)
		if err != nil {
			return "", client.explain(call, "", err)
		}
		return next, nil
	}
	for token := ""; ; {
		if token, err = page(token); err != nil || token == "" {
			return err
		}
	}
}

// listed is a page of a list.
type listed interface {
	proto.Message
	GetNextPageToken() string
}

// listAll asks for a list page by page, and gives all of it as one page: what repeats is of all of them, the rest of
// the last.
func listAll[Q proto.Message, A listed](ctx context.Context, env *environment, request Q,
	ask func(*controlClient, context.Context, Q, ...grpc.CallOption) (A, error),
) (all A, err error) {
	all = all.ProtoReflect().New().Interface().(A)
	fields := request.ProtoReflect().Descriptor().Fields()
	err = env.everyPage(ctx, func(ctx context.Context, client *controlClient, token string) (string, error) {
		request.ProtoReflect().Set(fields.ByName("page_token"), protoreflect.ValueOfString(token))
		page, err := ask(client, ctx, request)
		if err != nil {
			return "", err
		}
		next := page.GetNextPageToken()
		page.ProtoReflect().Clear(page.ProtoReflect().Descriptor().Fields().ByName("next_page_token"))
		proto.Merge(all, page)
		return next, nil
	})
	return all, err
}

// streamListCommand is a command that lists what belongs to streams: to all, to one, or to those of a pattern.
func streamListCommand(short, long string, run func(ctx context.Context, stream string) error) *cobra.Command {
	return &cobra.Command{
		Use:   "list [STREAM]",
		Short: short,
		Long: long +
			" STREAM is a name or a pattern: * stands for one part of a name, ** at the end for all parts that " +
			"follow. Without STREAM, all are listed.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("got %d arguments, expected: %s; a pattern is to be quoted, or the shell makes "+
					"names of files of it", len(args), cmd.UseLine())
			}
			if len(args) == 1 && pattern.Check(args[0]) != nil {
				return usageErrorf("stream %q: expected a name or a pattern such as desk7/* or desk7/**", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), strings.Join(args, "")) },
	}
}

// mayBeEmpty is an error when a list has nothing because there is no stream of that name. It needs to be asked for an
// empty list only.
func (e *environment) mayBeEmpty(ctx context.Context, stream string) error {
	if stream == "" || isPattern(stream) {
		return nil
	}
	_, err := e.streamStatus(ctx, stream)
	return err
}

// isPattern tells a pattern from a name in full.
func isPattern(stream string) bool { return strings.ContainsAny(stream, `*?[\`) }

func (e *environment) newTable() *tabwriter.Writer {
	return tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
}

// writeTable prints a message as JSON, or as a table below a head, which has more where it is to be wide.
func (e *environment) writeTable(message proto.Message, head, wide string, rows func(table *tabwriter.Writer)) error {
	if e.isJSON() {
		return e.writeProto(message)
	}
	if e.isWide() {
		head += wide
	}
	table := e.newTable()
	fmt.Fprintln(table, head)
	rows(table)
	return table.Flush()
}

// stampText is a time for people, "-" for none.
func stampText(at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	return at.AsTime().Format(time.RFC3339)
}

// numberText is a number of which 0 is none.
func numberText(number uint64) string {
	if number == 0 {
		return "-"
	}
	return strconv.FormatUint(number, 10)
}

// listText joins names, "-" for none.
func listText(names []string) string { return orDash(strings.Join(names, ", ")) }

// upper is a value of a flag as the protocol spells it.
func upper(text string) string { return strings.ToUpper(text) }
